//! Prune by retention: the locks that it needs, and the commit marks that go with it.

use ostler_core::Timestamp;
use ostler_sql::prune::{Doomed, RowLock};
use ostler_store::calls::{Pruned, Retention};

use super::jobs;
use crate::commit_mark;
use crate::conn::{Conn, get, most};
use crate::fault::Sql;
use crate::locks::{LockTarget, Locks, Mode};
use crate::tx::{NOW, Tx};

/// The locks needed for limit keys without tasks, which are swept with every batch.
async fn sweep_locks(conn: &Conn, batch: usize) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name FROM (SELECT limit_id FROM ostler.unused_key ORDER BY id LIMIT $1) u
             JOIN ostler.limits l ON l.id = u.limit_id JOIN ostler.queue q ON q.id = l.queue",
            &[&most(batch)],
        )
        .await?;
    let mut locks = Locks::none();
    for row in &rows {
        locks.add(LockTarget::Queue(get(row, 0)?), Mode::Exclusive);
    }
    Ok(locks)
}

/// The stored tasks that have completed, failed and were cancelled.
pub(crate) async fn stored(conn: &Conn) -> Sql<[u64; 3]> {
    // A fold becomes visible as a whole: no count is read twice.
    let row = conn
        .one(
            "SELECT coalesce(sum(completed - pruned_completed), 0)::bigint, coalesce(sum(failed - pruned_failed), 0)::bigint,
                coalesce(sum(cancelled - pruned_cancelled), 0)::bigint
             FROM (SELECT completed, pruned_completed, failed, pruned_failed, cancelled, pruned_cancelled FROM ostler.lane
                UNION ALL
                SELECT completed, pruned_completed, failed, pruned_failed, cancelled, pruned_cancelled FROM ostler.lane_delta) l",
            &[],
        )
        .await?;
    let count = |at| -> Sql<u64> { Ok(u64::try_from(get::<i64>(&row, at)?).unwrap_or(0)) };
    Ok([count(0)?, count(1)?, count(2)?])
}

/// The locks needed for a batch, as far as can be seen from here.
pub(crate) async fn locks(conn: &Conn, keep: &Retention, now: Option<i64>) -> Sql<Locks> {
    let now = Timestamp::from_millis(get(&conn.one(NOW, &[&now]).await?, 0)?);
    let mut locks = sweep_locks(conn, keep.batch).await?.with(jobs::prune_locks(conn, keep, now).await?);
    let mut left = keep.batch;
    for doomed in Doomed::of(keep, stored(conn).await?, now) {
        let found = doomed.find(conn, left, RowLock::None).await?;
        left -= found.len();
        for (_, queue) in found {
            locks = locks.queue(&queue);
        }
    }
    Ok(locks)
}

pub(crate) async fn retention(tx: &mut Tx, keep: &Retention) -> Sql<Pruned> {
    let pruned = ostler_sql::prune::retention(tx, keep).await?;
    commit_mark::sweep(&tx.conn, tx.now.millis(), most(keep.batch)).await?;
    Ok(pruned)
}
