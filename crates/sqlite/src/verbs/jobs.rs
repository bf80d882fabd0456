//! Jobs: kept by id, each with a queue of its own.

use std::time::Duration;

use ostler_core::{JobId, Timestamp};
use ostler_store::jobs::{
    FORMER_JOBS, JobAnswer, JobChange, JobFilter, JobPut, JobRecord, MAX_JOBS_PRUNED, NewJob, queue_of,
};
use ostler_store::views::Counts;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::fault::readable;
use crate::row::Uid;
use crate::tx::{Sql, Tx};

/// Whether the job `j` has tasks that were not removed yet.
const HAS_TASKS: &str = "EXISTS(SELECT 1 FROM queue q JOIN lane l ON l.queue = q.id
    WHERE q.name = j.queue AND (l.queued + l.claimed + l.running
        + l.completed - l.pruned_completed + l.failed - l.pruned_failed + l.cancelled - l.pruned_cancelled) > 0)";

pub(crate) fn put(tx: &mut Tx<'_>, job: &NewJob) -> Sql<JobPut> {
    let made = tx
        .prepare(
            "INSERT INTO job(id, name, queue, fingerprint, spec, items, made_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT(id) DO NOTHING",
        )?
        .execute(params![
            Uid::of(job.id.0),
            job.name,
            queue_of(job.id),
            job.fingerprint,
            job.spec,
            i64::try_from(job.items).unwrap_or(i64::MAX),
            tx.now.millis()
        ])?;
    if made == 0 {
        return Ok(JobPut::Existing);
    }
    tx.ring_news();
    Ok(JobPut::Created)
}

pub(crate) fn change(tx: &mut Tx<'_>, job: JobId, change: JobChange) -> Sql<JobAnswer> {
    let set = match change {
        JobChange::Cancel => "coalesce(cancelled_at, ?2)",
        JobChange::Reopen => "nullif(?2, ?2)",
        JobChange::Remove => return remove(tx, job),
    };
    let changed = tx
        .prepare(&format!("UPDATE job SET cancelled_at = {set} WHERE id = ?1"))?
        .execute(params![Uid::of(job.0), tx.now.millis()])?;
    if changed == 0 {
        return Ok(JobAnswer::NotFound);
    }
    tx.ring_news();
    Ok(JobAnswer::Done)
}

/// Removes a job that has no tasks, with its queue.
fn remove(tx: &mut Tx<'_>, job: JobId) -> Sql<JobAnswer> {
    // What this transaction has counted so far decides whether it is empty.
    tx.flush_lanes()?;
    let found: Option<(String, bool)> = tx
        .prepare(&format!("SELECT j.queue, {HAS_TASKS} FROM job j WHERE j.id = ?1"))?
        .query_row([Uid::of(job.0)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        None => Ok(JobAnswer::NotFound),
        Some((_, true)) => Ok(JobAnswer::HasTasks),
        Some((queue, false)) => {
            drop_job(tx, Uid::of(job.0), &queue)?;
            tx.ring_news();
            Ok(JobAnswer::Done)
        }
    }
}

/// The jobs that match. One that cannot be understood is passed over.
pub(crate) fn list(conn: &Connection, filter: &JobFilter, limit: usize) -> Sql<Vec<JobRecord>> {
    let mut statement = conn.prepare_cached(
        "SELECT j.id, j.name, j.fingerprint, j.spec, j.items, j.made_at, j.cancelled_at, q.paused, q.id
         FROM job j LEFT JOIN queue q ON q.name = j.queue
         WHERE (?1 IS NULL OR j.id = ?1) AND (?2 IS NULL OR j.fingerprint = ?2) AND (?3 IS NULL OR j.id < ?3)
         ORDER BY j.id DESC LIMIT ?4",
    )?;
    let uid = |job: Option<JobId>| job.map(|job| Uid::of(job.0));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![uid(filter.id), filter.fingerprint, uid(filter.before), limit])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.extend(readable(record(conn, row))?);
    }
    Ok(all)
}

fn record(conn: &Connection, row: &Row<'_>) -> Sql<JobRecord> {
    let (counts, pruned) = totals(conn, row.get(8)?)?;
    Ok(JobRecord {
        job: NewJob {
            id: JobId(row.get::<_, Uid>(0)?.id()),
            name: row.get(1)?,
            fingerprint: row.get(2)?,
            spec: row.get(3)?,
            items: row.get(4)?,
        },
        made_at: Timestamp::from_millis(row.get(5)?),
        cancelled_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        paused: row.get(7)?,
        counts,
        pruned,
    })
}

/// What the lanes of a queue have counted, and how much of it was pruned.
fn totals(conn: &Connection, queue: Option<i64>) -> Sql<(Counts, u64)> {
    conn.prepare_cached(
        "SELECT coalesce(sum(queued), 0), coalesce(sum(claimed), 0), coalesce(sum(running), 0), coalesce(sum(completed), 0),
            coalesce(sum(failed), 0), coalesce(sum(cancelled), 0),
            coalesce(sum(pruned_completed + pruned_failed + pruned_cancelled), 0)
         FROM lane WHERE queue = ?1",
    )?
    .query_row([queue], |row| {
        let counts = Counts {
            queued: row.get(0)?,
            claimed: row.get(1)?,
            running: row.get(2)?,
            completed: row.get(3)?,
            failed: row.get(4)?,
            cancelled: row.get(5)?,
        };
        Ok((counts, row.get(6)?))
    })
}

/// Removes jobs that are older than `age` and have no tasks, the oldest first, with their queues.
pub(crate) fn prune(tx: &mut Tx<'_>, age: Duration) -> Sql<()> {
    // What this transaction has counted so far decides who is empty.
    tx.flush_lanes()?;
    let old: Vec<(Uid, String)> = {
        let mut statement = tx.prepare(&format!(
            "SELECT j.id, j.queue FROM job j WHERE j.made_at < ?1 AND NOT {HAS_TASKS} ORDER BY j.made_at, j.id LIMIT ?2"
        ))?;
        let most = i64::try_from(MAX_JOBS_PRUNED).unwrap_or(i64::MAX);
        statement
            .query_map(params![tx.now.before(age).millis(), most], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Sql<_>>()?
    };
    for (job, queue) in old {
        drop_job(tx, job, &queue)?;
    }
    Ok(())
}

fn drop_job(tx: &mut Tx<'_>, job: Uid, queue: &str) -> Sql<()> {
    tx.prepare("DELETE FROM job WHERE id = ?1")?.execute([job])?;
    drop_queue(tx, queue)
}

/// Removes a queue that has no tasks. What it has counted goes on under another name.
fn drop_queue(tx: &mut Tx<'_>, name: &str) -> Sql<()> {
    let Some(queue) = tx.queue(name)? else { return Ok(()) };
    let (id, lanes) = (queue.id, queue.lanes.clone());
    for (lane, kind) in lanes {
        let former = tx.lane(FORMER_JOBS, &kind)?;
        tx.prepare(
            "UPDATE lane SET completed = lane.completed + gone.completed, failed = lane.failed + gone.failed,
                cancelled = lane.cancelled + gone.cancelled, pruned_completed = lane.pruned_completed + gone.pruned_completed,
                pruned_failed = lane.pruned_failed + gone.pruned_failed,
                pruned_cancelled = lane.pruned_cancelled + gone.pruned_cancelled,
                high_water = max(lane.high_water, gone.high_water),
                attempts = lane.attempts + gone.attempts, retried = lane.retried + gone.retried,
                replayed_failed = lane.replayed_failed + gone.replayed_failed,
                replayed_cancelled = lane.replayed_cancelled + gone.replayed_cancelled
             FROM lane gone WHERE lane.id = ?1 AND gone.id = ?2",
        )?
        .execute([former, lane])?;
    }
    for sql in [
        "DELETE FROM unused_key WHERE limit_id IN (SELECT id FROM limits WHERE queue = ?1)",
        "DELETE FROM limits WHERE queue = ?1",
        "DELETE FROM unique_key WHERE queue = ?1",
        "DELETE FROM lane WHERE queue = ?1",
        "DELETE FROM queue WHERE id = ?1",
    ] {
        tx.prepare(sql)?.execute([id])?;
    }
    tx.forget_queue(id);
    Ok(())
}
