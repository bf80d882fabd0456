//! Jobs: the locks that changes need, the list, and the removal of a queue with its counts.

use std::collections::HashMap;

use ostler_core::{Id, JobId, Timestamp};
use ostler_store::calls::Retention;
use ostler_store::jobs::{FORMER_JOBS, JobChange, JobFilter, JobRecord, MAX_JOBS_PRUNED, queue_of};
use ostler_store::views::Counts;
use tokio_postgres::Row;

use crate::conn::{Conn, big, get, most};
use crate::counts::{Counted, counted};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{RowRef, Uid};
use crate::tx::Tx;

/// Whose locks are needed for a change.
pub(crate) fn change_locks(job: JobId, change: JobChange) -> Locks {
    match change {
        JobChange::Cancel | JobChange::Reopen | JobChange::Grow(_) => Locks::none(),
        JobChange::Remove => {
            Locks::none().and(LockTarget::Queue(queue_of(job)), Mode::Exclusive).queue(FORMER_JOBS)
        }
    }
}

/// Whether a queue has tasks, queued or ended.
pub(crate) async fn has_tasks(tx: &mut Tx, queue: &str) -> Sql<bool> {
    let Some(id) = tx.queue(queue)?.map(|queue| queue.id) else { return Ok(false) };
    let lanes = counted(&tx.conn, Some(id)).await?;
    Ok(lanes.values().any(|lane| lane.counts.submitted() > lane.pruned.iter().sum()))
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
    ostler_sql::jobs::record(&RowRef(row), counts, pruned)
}

/// Jobs that are older than what is kept and have no tasks, the oldest first, with the names of their queues.
pub(crate) async fn old(conn: &Conn, keep: &Retention, now: Timestamp) -> Sql<Vec<(Id, String)>> {
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
    rows.iter().map(|row| Ok((get::<Uid>(row, 0)?.id(), get(row, 1)?))).collect()
}

/// Whose locks are needed to remove old jobs, as far as can be seen from here.
pub(crate) async fn prune_locks(conn: &Conn, keep: &Retention, now: Timestamp) -> Sql<Locks> {
    let mut locks = Locks::none();
    for (_, queue) in old(conn, keep, now).await? {
        locks = locks.and(LockTarget::Queue(queue), Mode::Exclusive).queue(FORMER_JOBS);
    }
    Ok(locks)
}

/// Removes a queue that has no tasks. What it has counted goes on under another name.
pub(crate) async fn drop_queue(tx: &mut Tx, name: &str) -> Sql<()> {
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
