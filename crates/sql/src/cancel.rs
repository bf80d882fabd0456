//! Cancel: ends queued tasks, and asks the workers of leased ones to stop.

use ostler_core::{CancelReason, Cancelling, State, TaskId, cancel};
use ostler_store::calls::CancelAnswer;

use crate::dependents::ended_in_queue;
use crate::limit_keys;
use crate::params;
use crate::phase::Phase;
use crate::task::{FoundTask, set_state};
use crate::tx::{Tx, key_rules, locked};

pub async fn run<T: Tx>(tx: &mut T, tasks: &[TaskId]) -> Result<Vec<CancelAnswer>, T::Error> {
    let slots = tx.lock(tasks).await?;
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        let found = match slots.get(task) {
            Some(slot) => tx.read(*slot).await?,
            None => None,
        };
        answers.push(match found {
            Some(found) => stop(tx, &found, CancelReason::Requested).await?,
            None => CancelAnswer::NotFound,
        });
    }
    Ok(answers)
}

/// Cancels a task for this reason, or asks its worker to stop. Its row is locked.
pub async fn stop<T: Tx>(
    tx: &mut T,
    found: &FoundTask,
    reason: CancelReason,
) -> Result<CancelAnswer, T::Error> {
    let now = tx.now();
    match cancel(&found.task.state) {
        Cancelling::Now(_) => {
            locked(tx, &found.task.queue)?;
            let state = State::Cancelled { finished_at: now, reason };
            set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
            let rules = key_rules(tx, &found.task.queue).await?;
            limit_keys::settle(tx, found.limit, &rules).await?;
            ended_in_queue(tx, found).await?;
            Ok(CancelAnswer::Cancelled)
        }
        Cancelling::Mark => {
            tx.exec(
                "UPDATE ostler.task SET cancel_at = coalesce(cancel_at, $2) WHERE id = $1",
                params![found.slot, now.millis()],
            )
            .await?;
            tx.ring_control();
            Ok(CancelAnswer::Requested)
        }
        Cancelling::Ended(state) => Ok(CancelAnswer::Ended(state)),
    }
}
