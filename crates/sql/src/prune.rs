//! Prune: removes finished tasks with all their rows, and rows that belong to no task.

use std::time::Duration;

use ostler_core::{TaskId, Timestamp};
use ostler_store::MAX_CASCADE;
use ostler_store::calls::{Pruned, Retention};

use crate::dependents::let_go;
use crate::phase::Phase;
use crate::tx::{Snapshot, Tx, locked};
use crate::value::Row;
use crate::{costs, gates, jobs, limit_keys, params};

/// Retention of ended sessions.
const SESSIONS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Removes these tasks, if they have ended.
///
/// # Errors
/// When a statement fails.
pub async fn tasks<T: Tx>(tx: &mut T, ids: &[TaskId]) -> Result<Pruned, T::Error> {
    let (mut removed, mut left) = (0, MAX_CASCADE);
    tx.lock(ids).await?;
    for id in ids {
        let sql = "SELECT t.id, q.name FROM ostler.task t JOIN ostler.lane l ON l.id = t.lane JOIN ostler.queue q ON q.id = l.queue
            WHERE t.uid = $1 AND t.phase > 4";
        if let Some(row) = tx.row(sql, params![id]).await? {
            locked(tx, &row.get::<String>(1)?)?;
            removed += usize::from(remove(tx, row.get(0)?, &mut left).await?);
        }
    }
    Ok(Pruned { tasks: removed, ..Pruned::default() })
}

/// Tasks of one final state to remove: those that finished before `cutoff`, and the oldest `excess` ones.
#[derive(Clone, Copy, Debug)]
pub struct Doomed {
    phase: Phase,
    cutoff: i64,
    excess: usize,
}

impl Doomed {
    /// By final state, in the order of `stored`: the stored tasks that have completed, failed and were cancelled.
    #[must_use]
    pub fn of(keep: &Retention, stored: [u64; 3], now: Timestamp) -> [Self; 3] {
        let [completed, failed, cancelled] =
            stored.map(|stored| usize::try_from(stored.saturating_sub(keep.most)).unwrap_or(usize::MAX));
        let cutoff = |age| now.before(age).millis();
        [
            Self { phase: Phase::Completed, cutoff: cutoff(keep.completed), excess: completed },
            Self { phase: Phase::Failed, cutoff: cutoff(keep.failed), excess: failed },
            Self { phase: Phase::Cancelled, cutoff: cutoff(keep.completed), excess: cancelled },
        ]
    }

    /// The tasks, with their queues; at most `limit`.
    ///
    /// # Errors
    /// When the statement fails.
    pub async fn find<S: Snapshot>(
        &self,
        snapshot: &S,
        limit: usize,
        lock: RowLock,
    ) -> Result<Vec<(i64, String)>, S::Error> {
        let sql = match lock {
            RowLock::None => OLDEST,
            RowLock::SkipLocked => OLDEST_LOCKED,
        };
        let rows = snapshot.rows(sql, params![self.phase, self.cutoff, limit]).await?;
        let mut found = Vec::new();
        for (place, row) in rows.iter().enumerate() {
            if !row.get::<bool>(1)? && place >= self.excess {
                break;
            }
            found.push((row.get(0)?, row.get(2)?));
        }
        Ok(found)
    }
}

/// Whether found rows are locked. Those that another transaction has locked are skipped: it replays or removes them.
#[derive(Clone, Copy, Debug)]
pub enum RowLock {
    None,
    SkipLocked,
}

macro_rules! oldest {
    ($lock:literal) => {
        concat!(
            "SELECT t.id, t.finished_at < $2,
                (SELECT q.name FROM ostler.lane l JOIN ostler.queue q ON q.id = l.queue WHERE l.id = t.lane)
             FROM ostler.task t /*by ended*/ WHERE t.phase = $1 AND t.phase > 4 ORDER BY t.finished_at, t.id LIMIT $3",
            $lock
        )
    };
}
const OLDEST: &str = oldest!("");
const OLDEST_LOCKED: &str = oldest!(" FOR NO KEY UPDATE OF t SKIP LOCKED");

/// Removes what is older, or more, than is kept.
///
/// # Errors
/// When a statement fails.
pub async fn retention<T: Tx>(tx: &mut T, keep: &Retention) -> Result<Pruned, T::Error> {
    let (mut left, mut removed, mut cascade) = (keep.batch, 0, MAX_CASCADE);
    for doomed in Doomed::of(keep, tx.stored().await?, tx.now()) {
        let found = doomed.find(tx, left, RowLock::SkipLocked).await?;
        left -= found.len();
        for (slot, queue) in found {
            locked(tx, &queue)?;
            removed += usize::from(remove(tx, slot, &mut cascade).await?);
        }
    }
    gates::sweep(tx, keep.batch).await?;
    jobs::prune(tx, keep).await?;
    costs::prune(tx).await?;
    let before = tx.now().before(SESSIONS).millis();
    tx.exec("DELETE FROM ostler.session WHERE swept AND ended_at < $1", params![before]).await?;
    Ok(Pruned { tasks: removed, orphans: 0, more: left == 0 && removed > 0 })
}

/// Removes a task, unless too many tasks still wait for it: then the next call continues.
async fn remove<T: Tx>(tx: &mut T, slot: i64, cascade: &mut usize) -> Result<bool, T::Error> {
    if !let_go(tx, slot, cascade).await? {
        return Ok(false);
    }
    let sql = "DELETE FROM ostler.task WHERE id = $1 RETURNING lane, phase, limit_id";
    let Some(row) = tx.row(sql, params![slot]).await? else { return Ok(false) };
    for sql in [
        "DELETE FROM ostler.attempt WHERE task = $1",
        "DELETE FROM ostler.step WHERE task = $1",
        "DELETE FROM ostler.event WHERE task = $1",
        "DELETE FROM ostler.chunk WHERE task = $1",
        "DELETE FROM ostler.conversation WHERE task = $1",
        "DELETE FROM ostler.outbox WHERE task = $1",
        "DELETE FROM ostler.unique_key WHERE task = $1",
    ] {
        tx.exec(sql, params![slot]).await?;
    }
    if let Some(limit) = row.get::<Option<i64>>(2)? {
        limit_keys::leave(tx, limit).await?;
    }
    tx.count_pruned(row.get(0)?, row.get::<Phase>(1)?.state());
    Ok(true)
}

/// Removes rows older than `older` that belong to no task. No verb leaves any, because a task is removed with all its rows
/// in one transaction; only edits by hand can. Reads every row: for use on request, not periodically.
///
/// # Errors
/// When a statement fails.
pub async fn orphans<T: Tx>(tx: &mut T, older: Duration, batch: usize) -> Result<Pruned, T::Error> {
    let cutoff = tx.now().before(older).millis();
    let mut removed = 0;
    for sql in [
        "DELETE FROM ostler.step WHERE (task, name) IN (SELECT o.task, o.name FROM ostler.step o
            WHERE o.saved_at < $1 AND NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $2)",
        "DELETE FROM ostler.attempt WHERE (task, number) IN (SELECT o.task, o.number FROM ostler.attempt o
            WHERE o.started_at < $1 AND NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $2)",
        "DELETE FROM ostler.event WHERE (task, number) IN (SELECT o.task, o.number FROM ostler.event o
            WHERE o.at < $1 AND NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $2)",
    ] {
        let gone = tx.exec(sql, params![cutoff, batch - removed]).await?;
        removed += usize::try_from(gone).unwrap_or(usize::MAX);
    }
    // These have no time of their own.
    for sql in [
        "DELETE FROM ostler.chunk WHERE (task, owner, part) IN (SELECT o.task, o.owner, o.part FROM ostler.chunk o
            WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $1)",
        "DELETE FROM ostler.conversation WHERE (task, token) IN (SELECT o.task, o.token FROM ostler.conversation o
            WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $1)",
    ] {
        let gone = tx.exec(sql, params![batch - removed]).await?;
        removed += usize::try_from(gone).unwrap_or(usize::MAX);
    }
    // What was reserved for them is free again.
    let gone = tx
        .exec(
            "DELETE FROM ostler.reservation WHERE (task, token, charged) IN (SELECT o.task, o.token, o.charged FROM ostler.reservation o
                WHERE NOT EXISTS (SELECT 1 FROM ostler.task WHERE id = o.task) LIMIT $1)",
            params![batch - removed],
        )
        .await?;
    if gone > 0 {
        tx.exec(
            "UPDATE ostler.spending AS s SET reserved = (SELECT CAST(coalesce(sum(rest), 0) AS bigint) FROM ostler.reservation WHERE charged = s.queue),
                in_flight = (SELECT count(*) FROM ostler.reservation WHERE charged = s.queue)",
            params![],
        )
        .await?;
    }
    removed += usize::try_from(gone).unwrap_or(usize::MAX);
    Ok(Pruned { tasks: 0, orphans: removed, more: removed == batch })
}
