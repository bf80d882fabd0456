//! Jobs: kept by id, each with a queue of its own.

use std::collections::HashMap;

use ostler_core::{JobId, Timestamp};
use ostler_store::calls::Retention;
use ostler_store::jobs::{
    FORMER_JOBS, JobAnswer, JobChange, JobFilter, JobPut, JobRecord, MAX_JOBS_PRUNED, NewJob, queue_of,
};
use ostler_store::views::Counts;
use tokio_postgres::Row;

use crate::conn::{Conn, big, get, get_u64, most};
use crate::counts::{Counted, counted};
use crate::fault::{Abort, Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::Uid;
use crate::tx::Tx;

pub(crate) async fn put(tx: &mut Tx, job: &NewJob) -> Sql<JobPut> {
    let made = tx
        .conn
        .exec(
            "INSERT INTO ostler.job(id, name, queue, fingerprint, spec, items, made_at) VALUES($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT(id) DO NOTHING",
            &[
                &Uid::of(job.id.0),
                &job.name,
                &queue_of(job.id),
                &job.fingerprint,
                &job.spec,
                &big(job.items),
                &tx.now.millis(),
            ],
        )
        .await?;
    if made == 0 {
        return Ok(JobPut::Existing);
    }
    tx.ring_news();
    Ok(JobPut::Created)
}

pub(crate) async fn change(tx: &mut Tx, job: JobId, change: JobChange) -> Sql<JobAnswer> {
    let set = match change {
        JobChange::Cancel => "coalesce(cancelled_at, $2)",
        JobChange::Reopen => "nullif($2::bigint, $2)",
        JobChange::Remove => return remove(tx, job).await,
    };
    let changed = tx
        .conn
        .exec(
            &format!("UPDATE ostler.job SET cancelled_at = {set} WHERE id = $1"),
            &[&Uid::of(job.0), &tx.now.millis()],
        )
        .await?;
    if changed == 0 {
        return Ok(JobAnswer::NotFound);
    }
    tx.ring_news();
    Ok(JobAnswer::Done)
}

/// Whose locks are needed for a change.
pub(crate) fn change_locks(job: JobId, change: JobChange) -> Locks {
    match change {
        JobChange::Cancel | JobChange::Reopen => Locks::none(),
        JobChange::Remove => {
            Locks::none().and(LockTarget::Queue(queue_of(job)), Mode::Exclusive).queue(FORMER_JOBS)
        }
    }
}

/// Removes a job that has no tasks, with its queue.
async fn remove(tx: &mut Tx, job: JobId) -> Sql<JobAnswer> {
    let (id, name) = (Uid::of(job.0), queue_of(job));
    if tx.conn.row("SELECT 1 FROM ostler.job WHERE id = $1", &[&id]).await?.is_none() {
        return Ok(JobAnswer::NotFound);
    }
    if let Some(queue) = tx.queue(&name)?.map(|queue| queue.id) {
        let lanes = counted(&tx.conn, Some(queue)).await?;
        if lanes.values().any(|lane| lane.counts.submitted() > lane.pruned.iter().sum()) {
            return Ok(JobAnswer::HasTasks);
        }
    }
    tx.conn.exec("DELETE FROM ostler.job WHERE id = $1", &[&id]).await?;
    drop_queue(tx, &name).await?;
    tx.ring_news();
    Ok(JobAnswer::Done)
}

/// The jobs that match. One that cannot be understood is passed over.
pub(crate) async fn list(conn: &Conn, filter: &JobFilter, limit: usize) -> Sql<Vec<JobRecord>> {
    let uid = |job: Option<JobId>| job.map(|job| Uid::of(job.0));
    let rows = conn
        .rows(
            "SELECT j.id, j.name, j.fingerprint, j.spec, j.items, j.made_at, j.cancelled_at, q.paused,
                (SELECT array_agg(l.id) FROM ostler.lane l WHERE l.queue = q.id)
             FROM ostler.job j LEFT JOIN ostler.queue q ON q.name = j.queue
             WHERE ($1::uuid IS NULL OR j.id = $1) AND ($2::text IS NULL OR j.fingerprint = $2)
                AND ($3::uuid IS NULL OR j.id < $3)
             ORDER BY j.id DESC LIMIT $4",
            &[&uid(filter.id), &filter.fingerprint, &uid(filter.before), &most(limit)],
        )
        .await?;
    let lanes = counted(conn, None).await?;
    let mut all = Vec::with_capacity(rows.len());
    for row in &rows {
        all.extend(readable(record(row, &lanes))?);
    }
    Ok(all)
}

fn record(row: &Row, lanes: &HashMap<i64, Counted>) -> Sql<JobRecord> {
    let own: Option<Vec<i64>> = get(row, 8)?;
    let (mut counts, mut pruned) = (Counts::default(), 0);
    for lane in own.unwrap_or_default().iter().filter_map(|lane| lanes.get(lane)) {
        counts = counts.plus(lane.counts);
        pruned += lane.pruned.iter().sum::<u64>();
    }
    Ok(JobRecord {
        job: NewJob {
            id: JobId(get::<Uid>(row, 0)?.id()),
            name: get(row, 1)?,
            fingerprint: get(row, 2)?,
            spec: get(row, 3)?,
            items: get_u64(row, 4)?,
        },
        made_at: Timestamp::from_millis(get(row, 5)?),
        cancelled_at: get::<Option<i64>>(row, 6)?.map(Timestamp::from_millis),
        paused: get(row, 7)?,
        counts,
        pruned,
    })
}

/// Jobs that are older than what is kept and have no tasks, the oldest first, with the names of their queues.
async fn old(conn: &Conn, keep: &Retention, now: Timestamp) -> Sql<Vec<(Uid, String)>> {
    let age = keep.completed.max(keep.failed);
    let rows = conn
        .rows(
            "SELECT j.id, j.queue FROM ostler.job j WHERE j.made_at < $1 AND coalesce((
                SELECT sum(c.queued + c.claimed + c.running + c.completed - c.pruned_completed + c.failed - c.pruned_failed
                    + c.cancelled - c.pruned_cancelled)
                FROM ostler.queue q JOIN ostler.lane l ON l.queue = q.id CROSS JOIN LATERAL (
                    SELECT l.queued, l.claimed, l.running, l.completed, l.pruned_completed, l.failed, l.pruned_failed, l.cancelled,
                        l.pruned_cancelled
                    UNION ALL
                    SELECT d.queued, d.claimed, d.running, d.completed, d.pruned_completed, d.failed, d.pruned_failed, d.cancelled,
                        d.pruned_cancelled
                    FROM ostler.lane_delta d WHERE d.lane = l.id) c
                WHERE q.name = j.queue), 0) <= 0
             ORDER BY j.made_at, j.id LIMIT $2",
            &[&now.before(age).millis(), &most(MAX_JOBS_PRUNED)],
        )
        .await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
}

/// Whose locks are needed to remove old jobs, as far as can be seen from here.
pub(crate) async fn prune_locks(conn: &Conn, keep: &Retention, now: Timestamp) -> Sql<Locks> {
    let mut locks = Locks::none();
    for (_, queue) in old(conn, keep, now).await? {
        locks = locks.and(LockTarget::Queue(queue), Mode::Exclusive).queue(FORMER_JOBS);
    }
    Ok(locks)
}

/// Removes jobs that are older than what is kept and have no tasks, the oldest first, with their queues.
pub(crate) async fn prune(tx: &mut Tx, keep: &Retention) -> Sql<()> {
    // What this transaction has counted so far decides who is empty.
    tx.flush_lanes().await?;
    let old = old(&tx.conn, keep, tx.now).await?;
    let mut needs = Locks::none();
    for (_, queue) in &old {
        if tx.alone(queue).is_err() {
            needs = needs.and(LockTarget::Queue(queue.clone()), Mode::Exclusive).queue(FORMER_JOBS);
        }
    }
    if !needs.is_empty() {
        return Err(Abort::Needs(needs));
    }
    for (job, queue) in &old {
        tx.conn.exec("DELETE FROM ostler.job WHERE id = $1", &[job]).await?;
        drop_queue(tx, queue).await?;
    }
    Ok(())
}

/// Removes a queue that has no tasks. What it has counted goes on under another name.
async fn drop_queue(tx: &mut Tx, name: &str) -> Sql<()> {
    let Some(queue) = tx.queue(name)? else { return Ok(()) };
    let (id, lanes) = (queue.id, queue.lanes.clone());
    let sums = counted(&tx.conn, Some(id)).await?;
    for (lane, kind) in lanes {
        let former = tx.lane(FORMER_JOBS, &kind).await?;
        let Some(gone) = sums.get(&lane) else { continue };
        let [completed, failed, cancelled] = gone.pruned.map(big);
        tx.conn
            .exec(
                "UPDATE ostler.lane SET completed = completed + $2, failed = failed + $3, cancelled = cancelled + $4,
                    pruned_completed = pruned_completed + $5, pruned_failed = pruned_failed + $6,
                    pruned_cancelled = pruned_cancelled + $7, high_water = greatest(high_water, $8),
                    attempts = attempts + $9, retried = retried + $10, replayed_failed = replayed_failed + $11,
                    replayed_cancelled = replayed_cancelled + $12
                 WHERE id = $1",
                &[
                    &former,
                    &big(gone.counts.completed),
                    &big(gone.counts.failed),
                    &big(gone.counts.cancelled),
                    &completed,
                    &failed,
                    &cancelled,
                    &big(gone.high_water),
                    &big(gone.tally.attempts),
                    &big(gone.tally.retried),
                    &big(gone.tally.replayed_failed),
                    &big(gone.tally.replayed_cancelled),
                ],
            )
            .await?;
        tx.conn.exec("DELETE FROM ostler.lane_delta WHERE lane = $1", &[&lane]).await?;
    }
    for sql in [
        "DELETE FROM ostler.unused_key WHERE limit_id IN (SELECT id FROM ostler.limits WHERE queue = $1)",
        "DELETE FROM ostler.limits WHERE queue = $1",
        "DELETE FROM ostler.unique_key WHERE queue = $1",
        "DELETE FROM ostler.lane WHERE queue = $1",
        "DELETE FROM ostler.queue WHERE id = $1",
    ] {
        tx.conn.exec(sql, &[&id]).await?;
    }
    tx.forget_queue(name);
    Ok(())
}
