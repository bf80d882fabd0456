//! Gives failed and cancelled tasks another life, and waiting ones their turn now.

use ostler_core::{Replaying, TaskId, Wait, replay};
use ostler_sql::poll_now;
use ostler_sql::task::set_state;
use ostler_store::calls::{Replay, ReplayAnswer, StepsOnReplay};
use rusqlite::params;

use crate::row::{Mishaps, Phase, Uid, find};
use crate::tx::{Sql, Tx};
use ostler_sql::codec::{EndLimits, extras_text};
use ostler_sql::dependents;
use ostler_sql::gates;
use ostler_sql::limit_keys;

pub(crate) fn run(tx: &mut Tx<'_>, tasks: &[TaskId], how: &Replay) -> Sql<Vec<ReplayAnswer>> {
    tasks.iter().map(|task| one(tx, *task, how)).collect()
}

fn one(tx: &mut Tx<'_>, id: TaskId, how: &Replay) -> Sql<ReplayAnswer> {
    let Some(found) = find(tx.conn, "WHERE t.uid = ?1", [Uid::of(id.0)])? else {
        return Ok(ReplayAnswer::NotFound);
    };
    let now = tx.now;
    let answer = match replay(&found.task.state) {
        Replaying::Refused(state) => return Ok(ReplayAnswer::Refused(state)),
        Replaying::Hasten => ReplayAnswer::Hastened,
        Replaying::Requeue => {
            let limit = poll_now(limit_keys::limit_of(tx, found.limit))?;
            let rank = poll_now(limit_keys::rank(tx, &found.task.queue, limit, now, found.task.priority))?;
            let task = &found.task;
            poll_now(dependents::revived(tx, &found))?;
            tx.tally(found.lane).replay(task.state.name());
            let (suspect, awaited) = (task.suspect, found.awaited);
            let trouble = Mishaps { suspect, awaited, ..Mishaps::default() };
            tx.prepare(
                "UPDATE task SET failures = 0, trouble = ?2, cancel_at = NULL, late_at = NULL, extras = ?3, rank = ?4
                 WHERE id = ?1",
            )?
            .execute(params![
                found.slot,
                trouble.code(),
                extras_text(&task.overrides, task.folder.as_deref(), EndLimits::default(), task.cost),
                rank.0
            ])?;
            ReplayAnswer::Requeued
        }
    };
    if let Some(payload) = &how.payload {
        tx.prepare("UPDATE task SET payload = ?2 WHERE id = ?1")?.execute(params![found.slot, payload])?;
    }
    if how.steps == StepsOnReplay::Drop {
        tx.prepare("DELETE FROM step WHERE task = ?1")?.execute([found.slot])?;
    }
    let rules = tx.key_rules(&found.task.queue)?;
    let state = poll_now(gates::arrived(tx, &rules, found.limit, now, Wait::Replayed))?;
    poll_now(set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state))?;
    poll_now(gates::settle_arrival(tx, &rules, found.limit, &state))?;
    Ok(answer)
}
