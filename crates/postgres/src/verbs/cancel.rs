//! Cancels tasks, or asks their workers to stop.

use ostler_core::{CancelReason, Cancelling, State, TaskId, cancel};
use ostler_store::calls::CancelAnswer;

use crate::conn::{Conn, get};
use crate::fault::Sql;
use crate::locks::Locks;
use crate::row::{BY_SLOT, FoundTask, Phase, Uid, find};
use crate::tx::Tx;
use ostler_sql::dependents::ended_in_queue;
use ostler_sql::limit_keys;
use ostler_sql::task::set_state;

/// Whose locks are needed: those of the queues of the tasks.
pub(crate) async fn locks(conn: &Conn, tasks: &[TaskId]) -> Sql<Locks> {
    let uids: Vec<Uid> = tasks.iter().map(|task| Uid::of(task.0)).collect();
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name FROM ostler.task t JOIN ostler.queue q ON q.id = t.queue WHERE t.uid = ANY($1)",
            &[&uids],
        )
        .await?;
    rows.iter().try_fold(Locks::none(), |locks, row| Ok(locks.queue(&get::<String>(row, 0)?)))
}

pub(crate) async fn run(tx: &mut Tx, tasks: &[TaskId]) -> Sql<Vec<CancelAnswer>> {
    let slots = tx.hold(tasks).await?;
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        let found = match slots.get(task) {
            Some(slot) => find(&tx.conn, BY_SLOT, &[slot]).await?,
            None => None,
        };
        answers.push(match found {
            Some(found) => stop(tx, &found, CancelReason::Requested).await?,
            None => CancelAnswer::NotFound,
        });
    }
    Ok(answers)
}

/// Cancels a task for this reason, or asks its worker to stop. Its row is held.
pub(crate) async fn stop(tx: &mut Tx, found: &FoundTask, reason: CancelReason) -> Sql<CancelAnswer> {
    let now = tx.now;
    match cancel(&found.task.state) {
        Cancelling::Now(_) => {
            tx.locked(&found.task.queue)?;
            let state = State::Cancelled { finished_at: now, reason };
            set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
            let rules = tx.key_rules(&found.task.queue)?;
            limit_keys::settle(tx, found.limit, &rules).await?;
            ended_in_queue(tx, found).await?;
            Ok(CancelAnswer::Cancelled)
        }
        Cancelling::Mark => {
            tx.conn
                .exec(
                    "UPDATE ostler.task SET cancel_at = coalesce(cancel_at, $2) WHERE id = $1",
                    &[&found.slot, &now.millis()],
                )
                .await?;
            tx.ring_news();
            Ok(CancelAnswer::Requested)
        }
        Cancelling::Ended(state) => Ok(CancelAnswer::Ended(state)),
    }
}
