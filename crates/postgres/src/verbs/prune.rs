//! Prune: removes finished tasks with all their rows.

use ostler_core::{StateName, TaskId, Timestamp};
use ostler_store::MAX_CASCADE;
use ostler_store::calls::{Pruned, Retention};

use super::jobs;
use crate::commit_mark;
use crate::conn::{Conn, get, most};
use crate::fault::Sql;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{Phase, Uid};
use crate::tx::{NOW, Tx};
use ostler_sql::dependents::let_go;
use ostler_sql::gates;
use ostler_sql::limit_keys;

/// Retention of ended sessions.
const SESSION_DAYS_MS: i64 = 7 * 24 * 60 * 60 * 1000;

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

pub(crate) async fn tasks(tx: &mut Tx, ids: &[TaskId]) -> Sql<Pruned> {
    let (mut removed, mut left) = (0, MAX_CASCADE);
    tx.hold(ids).await?;
    for id in ids {
        let row = tx
            .conn
            .row(
                "SELECT t.id, q.name FROM ostler.task t JOIN ostler.queue q ON q.id = t.queue WHERE t.uid = $1 AND t.phase > 4",
                &[&Uid::of(id.0)],
            )
            .await?;
        if let Some(row) = row {
            tx.locked(&get::<String>(&row, 1)?)?;
            removed += usize::from(remove(tx, get(&row, 0)?, &mut left).await?);
        }
    }
    Ok(Pruned { tasks: removed, more: false })
}

/// Tasks of one final state to remove: those finished before `cutoff`, and the oldest `excess` ones.
struct Sort {
    phase: Phase,
    cutoff: i64,
    excess: usize,
}

/// The tasks to remove, by final state.
async fn sorts(conn: &Conn, keep: &Retention, now: Timestamp) -> Sql<[Sort; 3]> {
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
    let excess = |at| -> Sql<usize> {
        let stored = u64::try_from(get::<i64>(&row, at)?).unwrap_or(0);
        Ok(usize::try_from(stored.saturating_sub(keep.most)).unwrap_or(usize::MAX))
    };
    let cutoff = |age| now.before(age).millis();
    Ok([
        Sort { phase: Phase::Completed, cutoff: cutoff(keep.completed), excess: excess(0)? },
        Sort { phase: Phase::Failed, cutoff: cutoff(keep.failed), excess: excess(1)? },
        Sort { phase: Phase::Cancelled, cutoff: cutoff(keep.completed), excess: excess(2)? },
    ])
}

/// The tasks of one final state that have to be removed, with their queues.
async fn old(conn: &Conn, sort: &Sort, left: usize, held: &str) -> Sql<Vec<(i64, String)>> {
    let sql = format!(
        "SELECT t.id, t.finished_at < $2, (SELECT q.name FROM ostler.queue q WHERE q.id = t.queue) FROM ostler.task t
         WHERE t.phase = $1 AND t.phase > 4 ORDER BY t.finished_at, t.id LIMIT $3{held}"
    );
    let rows = conn.rows(&sql, &[&sort.phase.code(), &sort.cutoff, &most(left)]).await?;
    let mut go = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        if !get::<bool>(row, 1)? && place >= sort.excess {
            break;
        }
        go.push((get(row, 0)?, get(row, 2)?));
    }
    Ok(go)
}

/// The locks needed for a batch, as far as can be seen from here.
pub(crate) async fn locks(conn: &Conn, keep: &Retention, now: Option<i64>) -> Sql<Locks> {
    let now = Timestamp::from_millis(get(&conn.one(NOW, &[&now]).await?, 0)?);
    let mut locks = sweep_locks(conn, keep.batch).await?.with(jobs::prune_locks(conn, keep, now).await?);
    let mut left = keep.batch;
    for sort in sorts(conn, keep, now).await? {
        let go = old(conn, &sort, left, "").await?;
        left -= go.len();
        for (_, queue) in go {
            locks = locks.queue(&queue);
        }
    }
    Ok(locks)
}

pub(crate) async fn by_age_and_count(tx: &mut Tx, keep: &Retention) -> Sql<Pruned> {
    let (mut left, mut removed, mut cascade) = (keep.batch, 0, MAX_CASCADE);
    for sort in sorts(&tx.conn, keep, tx.now).await? {
        // Skip tasks locked by other transactions: those replay or remove them.
        let go = old(&tx.conn, &sort, left, " FOR NO KEY UPDATE OF t SKIP LOCKED").await?;
        left -= go.len();
        for (slot, queue) in go {
            tx.locked(&queue)?;
            removed += usize::from(remove(tx, slot, &mut cascade).await?);
        }
    }
    gates::sweep(tx, keep.batch).await?;
    ostler_sql::jobs::prune(tx, keep).await?;
    tx.conn
        .exec(
            "DELETE FROM ostler.session WHERE swept AND ended_at < $1",
            &[&tx.now.millis().saturating_sub(SESSION_DAYS_MS)],
        )
        .await?;
    commit_mark::sweep(&tx.conn, tx.now.millis(), most(keep.batch)).await?;
    Ok(Pruned { tasks: removed, more: left == 0 && removed > 0 })
}

/// Removes a task, unless too many tasks still wait for it: then the next call continues.
async fn remove(tx: &mut Tx, slot: i64, cascade: &mut usize) -> Sql<bool> {
    if !let_go(tx, slot, cascade).await? {
        return Ok(false);
    }
    let row = tx
        .conn
        .row("DELETE FROM ostler.task WHERE id = $1 RETURNING lane, phase, limit_id", &[&slot])
        .await?;
    let Some(row) = row else { return Ok(false) };
    let (lane, phase): (i64, Phase) = (get(&row, 0)?, Phase::from_code(get(&row, 1)?)?);
    for table in ["attempt", "step", "event", "telling", "unique_key"] {
        tx.conn.exec(&format!("DELETE FROM ostler.{table} WHERE task = $1"), &[&slot]).await?;
    }
    if let Some(limit) = get::<Option<i64>>(&row, 2)? {
        limit_keys::leave(tx, limit).await?;
    }
    let state: StateName = phase.state();
    tx.count_pruned(lane, state);
    Ok(true)
}
