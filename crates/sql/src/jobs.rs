//! Jobs: stored by id, each with a queue of its own.

use ostler_core::{Id, JobId, Timestamp};
use ostler_store::calls::Retention;
use ostler_store::jobs::{JobAnswer, JobChange, JobPut, JobRecord, NewJob, queue_of};
use ostler_store::views::Counts;

use crate::budgets;
use crate::params;
use crate::tx::{Tx, exists};
use crate::value::Row;

/// Stores a job, unless there is one with its id.
///
/// # Errors
/// When a statement fails.
pub async fn put<T: Tx>(tx: &mut T, job: &NewJob) -> Result<JobPut, T::Error> {
    let queue = queue_of(job.id);
    let made = tx
        .exec(
            "INSERT INTO ostler.job(id, name, queue, fingerprint, spec, items, made_at) VALUES($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT(id) DO NOTHING",
            params![job.id.0, job.name, queue, job.fingerprint, job.spec, job.items, tx.now().millis()],
        )
        .await?;
    if made == 0 {
        return Ok(JobPut::Existing);
    }
    tx.ring_control();
    Ok(JobPut::Created)
}

/// Cancels, reopens, enlarges or removes a job.
///
/// # Errors
/// When a statement fails.
pub async fn change<T: Tx>(tx: &mut T, job: JobId, change: JobChange) -> Result<JobAnswer, T::Error> {
    let changed = match change {
        JobChange::Cancel => {
            let sql = "UPDATE ostler.job SET cancelled_at = coalesce(cancelled_at, $2) WHERE id = $1";
            tx.exec(sql, params![job.0, tx.now().millis()]).await?
        }
        JobChange::Reopen => {
            tx.exec("UPDATE ostler.job SET cancelled_at = NULL WHERE id = $1", params![job.0]).await?
        }
        JobChange::Grow(items) => {
            let sql =
                "UPDATE ostler.job SET items = CASE WHEN items < $2 THEN $2 ELSE items END WHERE id = $1";
            tx.exec(sql, params![job.0, items]).await?
        }
        JobChange::Remove => return remove(tx, job).await,
    };
    if changed == 0 {
        return Ok(JobAnswer::NotFound);
    }
    tx.ring_control();
    Ok(JobAnswer::Done)
}

/// Removes a job that has no tasks, with its queue.
async fn remove<T: Tx>(tx: &mut T, job: JobId) -> Result<JobAnswer, T::Error> {
    if !exists(tx, "SELECT 1 FROM ostler.job WHERE id = $1", params![job.0]).await? {
        return Ok(JobAnswer::NotFound);
    }
    let queue = queue_of(job);
    if tx.has_tasks(&queue).await? {
        return Ok(JobAnswer::HasTasks);
    }
    drop_job(tx, job.0, &queue).await?;
    tx.ring_control();
    Ok(JobAnswer::Done)
}

/// Removes jobs that are older than the retention time and have no tasks, the oldest first, with their queues.
///
/// # Errors
/// When a statement fails.
pub async fn prune<T: Tx>(tx: &mut T, keep: &Retention) -> Result<(), T::Error> {
    let old = tx.old_jobs(keep).await?;
    for (_, queue) in &old {
        tx.exclusive(queue)?;
    }
    for (job, queue) in &old {
        drop_job(tx, *job, queue).await?;
    }
    Ok(())
}

async fn drop_job<T: Tx>(tx: &mut T, job: Id, queue: &str) -> Result<(), T::Error> {
    tx.exec("DELETE FROM ostler.job WHERE id = $1", params![job]).await?;
    budgets::forget(tx, queue).await?;
    tx.drop_queue(queue).await
}

/// A job from its row: id, name, fingerprint, spec, items, creation and cancellation time, reason of the pause.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn record<R: Row>(row: &R, counts: Counts, pruned: u64) -> Result<JobRecord, R::Error> {
    Ok(JobRecord {
        job: NewJob {
            id: JobId(row.get(0)?),
            name: row.get(1)?,
            fingerprint: row.get(2)?,
            spec: row.get(3)?,
            items: row.get(4)?,
        },
        made_at: Timestamp::from_millis(row.get(5)?),
        cancelled_at: row.get::<Option<i64>>(6)?.map(Timestamp::from_millis),
        paused: row.get(7)?,
        counts,
        pruned,
    })
}
