//! Jobs: the list, and the removal of a queue with its counts.

use std::time::Duration;

use ostler_core::{Id, JobId};
use ostler_store::jobs::{FORMER_JOBS, JobFilter, JobRecord, MAX_JOBS_PRUNED};
use ostler_store::views::Counts;
use rusqlite::{Connection, Row, params};

use crate::fault::readable;
use crate::row::Uid;
use crate::shared_tx::RowRef;
use crate::tx::{Sql, Tx};

/// Whether the job `j` has tasks that were not removed yet.
const HAS_TASKS: &str = "EXISTS(SELECT 1 FROM queue q JOIN lane l ON l.queue = q.id
    WHERE q.name = j.queue AND (l.queued + l.claimed + l.running
        + l.completed - l.pruned_completed + l.failed - l.pruned_failed + l.cancelled - l.pruned_cancelled) > 0)";

/// Whether a queue has tasks, queued or ended.
pub(crate) fn has_tasks(tx: &mut Tx<'_>, queue: &str) -> Sql<bool> {
    // The counts of this transaction decide whether it is empty.
    tx.flush_lanes()?;
    tx.prepare(&format!("SELECT {HAS_TASKS} FROM (SELECT ?1 AS queue) j"))?
        .query_row([queue], |row| row.get(0))
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
    ostler_sql::jobs::record(&RowRef(row), counts, pruned)
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

/// Jobs older than `age` whose queues have no tasks, the oldest first, with the names of their queues.
pub(crate) fn old(tx: &mut Tx<'_>, age: Duration) -> Sql<Vec<(Id, String)>> {
    // The counts of this transaction decide which queues are empty.
    tx.flush_lanes()?;
    let mut statement = tx.prepare(&format!(
        "SELECT j.id, j.queue FROM job j WHERE j.made_at < ?1 AND NOT {HAS_TASKS} ORDER BY j.made_at, j.id LIMIT ?2"
    ))?;
    let most = i64::try_from(MAX_JOBS_PRUNED).unwrap_or(i64::MAX);
    let read = |row: &Row<'_>| Ok((row.get::<_, Uid>(0)?.id(), row.get(1)?));
    statement.query_map(params![tx.now.before(age).millis(), most], read)?.collect()
}

/// Removes a queue that has no tasks. What it has counted goes on under another name.
pub(crate) fn drop_queue(tx: &mut Tx<'_>, name: &str) -> Sql<()> {
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
