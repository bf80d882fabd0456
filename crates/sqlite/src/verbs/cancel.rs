//! Cancels tasks, or asks their workers to stop.

use ostler_core::{CancelReason, Cancelling, State, TaskId, cancel};
use ostler_sql::poll_now;
use ostler_sql::task::set_state;
use ostler_store::calls::CancelAnswer;
use rusqlite::params;

use crate::row::{FoundTask, Phase, Uid, find};
use crate::tx::{Sql, Tx};
use ostler_sql::dependents::ended_in_queue;
use ostler_sql::limit_keys;

pub(crate) fn run(tx: &mut Tx<'_>, tasks: &[TaskId]) -> Sql<Vec<CancelAnswer>> {
    tasks.iter().map(|task| one(tx, *task)).collect()
}

fn one(tx: &mut Tx<'_>, id: TaskId) -> Sql<CancelAnswer> {
    let Some(found) = find(tx.conn, "WHERE t.uid = ?1", [Uid::of(id.0)])? else {
        return Ok(CancelAnswer::NotFound);
    };
    stop(tx, &found, CancelReason::Requested)
}

/// Cancels a task for this reason, or asks its worker to stop.
pub(crate) fn stop(tx: &mut Tx<'_>, found: &FoundTask, reason: CancelReason) -> Sql<CancelAnswer> {
    let now = tx.now;
    match cancel(&found.task.state) {
        Cancelling::Now(_) => {
            let state = State::Cancelled { finished_at: now, reason };
            poll_now(set_state(
                tx,
                found.slot,
                found.lane,
                found.limit,
                Phase::of(&found.task.state),
                &state,
            ))?;
            let rules = tx.key_rules(&found.task.queue)?;
            poll_now(limit_keys::settle(tx, found.limit, &rules))?;
            poll_now(ended_in_queue(tx, found))?;
            Ok(CancelAnswer::Cancelled)
        }
        Cancelling::Mark => {
            tx.prepare("UPDATE task SET cancel_at = coalesce(cancel_at, ?2) WHERE id = ?1")?
                .execute(params![found.slot, now.millis()])?;
            tx.ring_news();
            Ok(CancelAnswer::Requested)
        }
        Cancelling::Ended(state) => Ok(CancelAnswer::Ended(state)),
    }
}
