//! Replay: queues failed and cancelled tasks again, and makes waiting ones due now.

use ostler_core::{Replaying, TaskId, Wait, former_payload_event, replay, replay_event};
use ostler_store::MAX_EVENT_BYTES;
use ostler_store::calls::{Replay, ReplayAnswer, StepsOnReplay};

use crate::codec::{EndLimits, Extras};
use crate::dependents;
use crate::events::append_one;
use crate::gates;
use crate::limit_keys;
use crate::params;
use crate::phase::{Mishaps, Phase};
use crate::task::{FoundTask, set_state};
use crate::tx::{Tx, key_rules, locked};
use crate::unique;

pub async fn run<T: Tx>(tx: &mut T, tasks: &[TaskId], how: &Replay) -> Result<Vec<ReplayAnswer>, T::Error> {
    let slots = tx.lock(tasks).await?;
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        let found = match slots.get(task) {
            Some(slot) => tx.read(*slot).await?,
            None => None,
        };
        answers.push(match found {
            Some(found) => one(tx, &found, how).await?,
            None => ReplayAnswer::NotFound,
        });
    }
    Ok(answers)
}

async fn one<T: Tx>(tx: &mut T, found: &FoundTask, how: &Replay) -> Result<ReplayAnswer, T::Error> {
    let now = tx.now();
    locked(tx, &found.task.queue)?;
    let scratch_token = match how.steps {
        StepsOnReplay::Keep => found.scratch_token,
        StepsOnReplay::Drop => found.task.token,
    };
    let answer = match replay(&found.task.state) {
        Replaying::Refused(state) => return Ok(ReplayAnswer::Refused(state)),
        Replaying::Hasten => {
            if scratch_token != found.scratch_token {
                let extras = Extras { scratch_token, ..Extras::of(found) }.text();
                tx.exec("UPDATE ostler.task SET extras = $2 WHERE id = $1", params![found.slot, extras])
                    .await?;
            }
            ReplayAnswer::Hastened
        }
        Replaying::Requeue => {
            if let Some(holder) = unique::take_back(tx, found).await? {
                return Ok(ReplayAnswer::KeyTaken { holder });
            }
            let limit = limit_keys::limit_of(tx, found.limit).await?;
            let rank = limit_keys::rank(tx, &found.task.queue, limit, now, found.task.priority).await?;
            let task = &found.task;
            dependents::revived(tx, found).await?;
            tx.tally(found.lane).replay(task.state.name());
            let (suspect, awaited) = (task.suspect, found.awaited);
            let trouble = Mishaps { suspect, awaited, ..Mishaps::default() };
            let extras = Extras { ends: EndLimits::default(), scratch_token, ..Extras::of(found) }.text();
            tx.exec(
                    "UPDATE ostler.task SET failures = 0, trouble = $2, cancel_at = NULL, late_at = NULL, extras = $3, rank = $4
                     WHERE id = $1",
                    params![found.slot, trouble.code(), extras, rank.0],
                )
                .await?;
            ReplayAnswer::Requeued
        }
    };
    if let Some(payload) = &how.payload {
        tx.exec("UPDATE ostler.task SET payload = $2 WHERE id = $1", params![found.slot, payload]).await?;
        if let Some(event) = former_payload_event(&found.task.payload, payload, MAX_EVENT_BYTES) {
            append_one(tx, found.slot, &event).await?;
        }
    }
    if how.steps == StepsOnReplay::Drop {
        tx.exec("DELETE FROM ostler.step WHERE task = $1", params![found.slot]).await?;
    }
    let rules = key_rules(tx, &found.task.queue).await?;
    let state = gates::arrived(tx, &rules, found.limit, now, Wait::Replayed).await?;
    set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
    append_one(tx, found.slot, &replay_event()).await?;
    gates::settle_arrival(tx, &rules, found.limit, &state).await?;
    Ok(answer)
}
