//! The end of a node's session: its tasks are handed back, or taken from a node that died.

use ostler_core::{Outcome, SessionId};
use ostler_store::calls::{Expired, Fenced};
use ostler_store::views::WorkerEnd;

use crate::end_attempt::{Yields, end_attempt};
use crate::tx::{Snapshot, Tx, readable};
use crate::value::Row;
use crate::{gone_workers, outbox, params};

/// Ends a session at its own request.
///
/// # Errors
/// When a statement fails.
pub async fn leave<T: Tx>(tx: &mut T, session: SessionId) -> Result<Fenced, T::Error> {
    let sql = "SELECT id FROM ostler.session WHERE uid = $1 AND ended_at IS NULL";
    let Some(row) = tx.row(sql, params![session]).await? else { return Ok(Fenced::Lost) };
    hand_back_all(tx, row.get(0)?).await?;
    Ok(Fenced::Recorded)
}

/// Hands back all tasks that a session holds, and ends it. Returns how many it held.
///
/// # Errors
/// When a statement fails.
pub async fn hand_back_all<T: Tx>(tx: &mut T, session: i64) -> Result<usize, T::Error> {
    let sql = "SELECT id FROM ostler.task /*by leased*/ WHERE session = $1 AND phase IN (3, 4) ORDER BY id FOR NO KEY UPDATE";
    let held = tx.rows(sql, params![session]).await?;
    end_all(tx, &held, &Outcome::HandedBack).await?;
    end(tx, session, WorkerEnd::Closed).await?;
    Ok(held.len())
}

/// Ends a session and removes its node commands; its workers are gone, and its outbox entries stay for other nodes.
///
/// # Errors
/// When a statement fails.
async fn end<T: Tx>(tx: &mut T, session: i64, how: WorkerEnd) -> Result<(), T::Error> {
    let sql = "UPDATE ostler.session SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL";
    tx.exec(sql, params![session, tx.now().millis()]).await?;
    gone_workers::ended(tx, session, how).await?;
    tx.exec("DELETE FROM ostler.orders WHERE session = $1", params![session]).await?;
    outbox::free(tx, session).await
}

/// A session that was found dead, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Dead {
    pub number: i64,
    pub session: SessionId,
    /// Its node had recorded that it was shutting down on purpose.
    pub departed: bool,
}

/// Ends dead sessions, and takes a batch of tasks from all that have ended.
///
/// # Errors
/// When a statement fails.
pub async fn expire<T: Tx>(tx: &mut T, dead: &[Dead], batch: usize) -> Result<Expired, T::Error> {
    let mut handed_back = 0;
    for dead in dead {
        if dead.departed {
            handed_back += hand_back_all(tx, dead.number).await?;
        } else {
            end(tx, dead.number, WorkerEnd::NodeDied).await?;
        }
    }
    let orphans = tx
        .rows(
            "SELECT id FROM ostler.task /*by leased*/ WHERE phase IN (3, 4)
                AND session IN (SELECT id FROM ostler.session WHERE ended_at IS NOT NULL AND NOT swept)
             ORDER BY id LIMIT $1 FOR NO KEY UPDATE",
            params![batch.saturating_add(1)],
        )
        .await?;
    let taken = &orphans[..orphans.len().min(batch)];
    end_all(tx, taken, &Outcome::NodeDied).await?;
    // Sessions without tasks are not examined again.
    tx.exec(
        "UPDATE ostler.session AS s SET swept = true WHERE s.ended_at IS NOT NULL AND NOT s.swept
            AND NOT EXISTS(SELECT 1 FROM ostler.task t WHERE t.session = s.id AND t.phase IN (3, 4))",
        params![],
    )
    .await?;
    let (sessions, tasks) = (dead.iter().map(|dead| dead.session).collect(), handed_back + taken.len());
    Ok(Expired { sessions, tasks, more: orphans.len() > batch })
}

/// Ends the attempts of these tasks. One that cannot be read is passed over.
async fn end_all<T: Tx>(
    tx: &mut T,
    tasks: &[<T as Snapshot>::Row],
    outcome: &Outcome,
) -> Result<(), T::Error> {
    for row in tasks {
        let taken = tx.take(row.get(0)?).await;
        let Some(Some(found)) = readable::<T, _>(taken)? else { continue };
        end_attempt(tx, &found, outcome, None, Yields::default()).await?;
    }
    Ok(())
}
