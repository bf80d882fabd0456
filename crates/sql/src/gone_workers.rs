//! Workers that are gone: their last records, the newest of which are kept.

use ostler_core::{Timestamp, Worker, WorkerId, WorkerState};
use ostler_store::MAX_GONE_WORKERS;
use ostler_store::views::{GoneWorker, WorkerEnd};

use crate::params;
use crate::phase::{from_ordinal, ordinal};
use crate::tx::{Snapshot, Tx};
use crate::value::Row;

/// Records workers that their node has closed.
///
/// # Errors
/// When a statement fails.
pub async fn closed<T: Tx>(tx: &T, session: i64, workers: &[Worker]) -> Result<(), T::Error> {
    if workers.is_empty() {
        return Ok(());
    }
    for worker in workers {
        tx.exec(
            "INSERT INTO ostler.gone_worker(session, node, id, pool, pid, state, memory_bytes, started_at, done, failed, how, gone_at,
                name)
             SELECT uid, name, $2, $3, CAST($4 AS bigint), $5, CAST($6 AS bigint), $7, $8, $9, $10, $11, $12
             FROM ostler.session WHERE id = $1",
            params![
                session,
                worker.id,
                worker.pool,
                worker.pid,
                ordinal(&WorkerState::ALL, &worker.state),
                worker.memory_bytes,
                worker.started_at.millis(),
                worker.done,
                worker.failed,
                ordinal(&WorkerEnd::ALL, &WorkerEnd::Closed),
                tx.now().millis(),
                worker.name,
            ],
        )
        .await?;
    }
    forget(tx).await
}

/// Records the workers of a session that ends, as they were last reported, and removes them.
///
/// # Errors
/// When a statement fails.
pub async fn ended<T: Tx>(tx: &T, session: i64, how: WorkerEnd) -> Result<(), T::Error> {
    let added = tx
        .exec(
            "INSERT INTO ostler.gone_worker(session, node, id, pool, pid, state, memory_bytes, started_at, done, failed, how, gone_at,
                name)
             SELECT s.uid, s.name, w.id, w.pool, w.pid, w.state, w.memory_bytes, w.started_at, w.done, w.failed, $2, $3, w.name
             FROM ostler.worker w JOIN ostler.session s ON s.id = w.session WHERE w.session = $1 ORDER BY w.place",
            params![session, ordinal(&WorkerEnd::ALL, &how), tx.now().millis()],
        )
        .await?;
    tx.exec("DELETE FROM ostler.worker WHERE session = $1", params![session]).await?;
    if added > 0 { forget(tx).await } else { Ok(()) }
}

/// Forgets the oldest above the bound.
async fn forget<T: Tx>(tx: &T) -> Result<(), T::Error> {
    tx.exec(
        "DELETE FROM ostler.gone_worker
         WHERE number < (SELECT number FROM ostler.gone_worker ORDER BY number DESC LIMIT 1 OFFSET $1)",
        params![MAX_GONE_WORKERS - 1],
    )
    .await?;
    Ok(())
}

/// The newest ones first.
///
/// # Errors
/// When a statement fails.
pub async fn list<S: Snapshot>(snapshot: &S, limit: usize) -> Result<Vec<GoneWorker>, S::Error> {
    let rows = snapshot
        .rows(
            "SELECT session, node, id, pool, pid, state, memory_bytes, started_at, done, failed, how, gone_at, name
             FROM ostler.gone_worker ORDER BY number DESC LIMIT $1",
            params![limit],
        )
        .await?;
    rows.iter().map(gone).collect()
}

fn gone<R: Row>(row: &R) -> Result<GoneWorker, R::Error> {
    let number = |at: usize| row.get::<i64>(at);
    let unsigned = |at: usize| {
        row.get::<Option<i64>>(at).map(|number| number.and_then(|number| u64::try_from(number).ok()))
    };
    let worker = Worker {
        id: WorkerId(row.get(2)?),
        name: row.get(12)?,
        pool: row.get(3)?,
        pid: row.get::<Option<i64>>(4)?.and_then(|pid| u32::try_from(pid).ok()),
        state: from_ordinal(&WorkerState::ALL, number(5)?).map_err(R::unreadable)?,
        memory_bytes: unsigned(6)?,
        started_at: Timestamp::from_millis(number(7)?),
        done: unsigned(8)?.unwrap_or_default(),
        failed: unsigned(9)?.unwrap_or_default(),
        task: None,
    };
    Ok(GoneWorker {
        session: ostler_core::SessionId(row.get(0)?),
        node: row.get(1)?,
        worker,
        end: from_ordinal(&WorkerEnd::ALL, number(10)?).map_err(R::unreadable)?,
        gone_at: Timestamp::from_millis(number(11)?),
    })
}
