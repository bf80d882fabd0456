//! Gives failed and cancelled tasks another life, and waiting ones their turn now.

use ostler_core::{Replaying, TaskId, Wait, replay};
use ostler_store::calls::{Replay, ReplayAnswer, StepsOnReplay};

use crate::fault::Sql;
use crate::row::{BY_SLOT, FoundTask, Mishaps, Phase, find};
use crate::tx::Tx;
use ostler_sql::codec::{EndLimits, extras_text};
use ostler_sql::dependents;
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::task::set_state;

pub(crate) async fn run(tx: &mut Tx, tasks: &[TaskId], how: &Replay) -> Sql<Vec<ReplayAnswer>> {
    let slots = tx.hold(tasks).await?;
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        let found = match slots.get(task) {
            Some(slot) => find(&tx.conn, BY_SLOT, &[slot]).await?,
            None => None,
        };
        answers.push(match found {
            Some(found) => one(tx, &found, how).await?,
            None => ReplayAnswer::NotFound,
        });
    }
    Ok(answers)
}

async fn one(tx: &mut Tx, found: &FoundTask, how: &Replay) -> Sql<ReplayAnswer> {
    let now = tx.now;
    tx.locked(&found.task.queue)?;
    let answer = match replay(&found.task.state) {
        Replaying::Refused(state) => return Ok(ReplayAnswer::Refused(state)),
        Replaying::Hasten => ReplayAnswer::Hastened,
        Replaying::Requeue => {
            let limit = limit_keys::limit_of(tx, found.limit).await?;
            let rank = limit_keys::rank(tx, &found.task.queue, limit, now, found.task.priority).await?;
            let task = &found.task;
            dependents::revived(tx, found).await?;
            tx.tally(found.lane).replay(task.state.name());
            let (suspect, awaited) = (task.suspect, found.awaited);
            let trouble = Mishaps { suspect, awaited, ..Mishaps::default() };
            let extras =
                extras_text(&task.overrides, task.folder.as_deref(), EndLimits::default(), task.cost);
            tx.conn
                .exec(
                    "UPDATE ostler.task SET failures = 0, trouble = $2, cancel_at = NULL, late_at = NULL, extras = $3, rank = $4
                     WHERE id = $1",
                    &[&found.slot, &trouble.code(), &extras, &rank.0],
                )
                .await?;
            ReplayAnswer::Requeued
        }
    };
    if let Some(payload) = &how.payload {
        tx.conn.exec("UPDATE ostler.task SET payload = $2 WHERE id = $1", &[&found.slot, payload]).await?;
    }
    if how.steps == StepsOnReplay::Drop {
        tx.conn.exec("DELETE FROM ostler.step WHERE task = $1", &[&found.slot]).await?;
    }
    let rules = tx.key_rules(&found.task.queue)?;
    let state = gates::arrived(tx, &rules, found.limit, now, Wait::Replayed).await?;
    set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
    gates::settle_arrival(tx, &rules, found.limit, &state).await?;
    Ok(answer)
}
