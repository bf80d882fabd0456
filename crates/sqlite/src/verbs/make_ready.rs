//! Makes tasks ready whose time has come, and ends those whose time is over.

use std::time::Duration;

use ostler_core::{Timestamp, too_late};
use ostler_sql::poll_now;
use ostler_sql::task::set_state;
use ostler_store::calls::MadeReady;
use rusqlite::{Connection, params};

use crate::fault::readable;
use crate::row::{Phase, find};
use crate::shared_tx::text;
use crate::tx::{Sql, Tx};
use ostler_sql::dependents::{NEXT_FREED, come_forward, ended_in_queue, release_dependents};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::outbox::{OutboxInput, note};

const NEXT_DUE: &str = "SELECT min(run_at) FROM task INDEXED BY due WHERE phase = 1 AND why <> 7";
const NEXT_LATE: &str =
    "SELECT min(late_at) FROM task INDEXED BY late WHERE late_at IS NOT NULL AND phase < 3";

/// How long a row that cannot be read after an edit by hand is left before it is read again.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// When there is something to do next. In the past: now. Who waits for what has ended is due at once, wherever a clock was set.
pub(crate) fn next(conn: &Connection, now: Timestamp) -> Sql<Option<Timestamp>> {
    let first = |sql: &str| conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, Option<i64>>(0));
    let late = first(NEXT_LATE)?.map(|end| end.saturating_add(1));
    let freed = first(text(NEXT_FREED))?.map(|ended| ended.min(now.millis()));
    let moments = [first(NEXT_DUE)?, late, freed, gates::next_due(first(text(gates::NEXT_DUE))?)];
    Ok(moments.into_iter().flatten().min().map(Timestamp::from_millis))
}

pub(crate) fn run(tx: &mut Tx<'_>, batch: usize) -> Sql<MadeReady> {
    let now = tx.now;
    let mut unreadable = 0;
    let late = slots(
        tx,
        "SELECT id FROM task INDEXED BY late WHERE late_at < ?1 AND phase < 3 ORDER BY late_at, id LIMIT ?2",
        batch,
    )?;
    for slot in &late {
        let Some(Some(found)) = readable(find(tx.conn, "WHERE t.id = ?1", [slot]))? else {
            unreadable += 1;
            continue;
        };
        let Some(state) = too_late(found.task.not_after, found.task.deadline, now) else { continue };
        poll_now(set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state))?;
        let rules = tx.key_rules(&found.task.queue)?;
        poll_now(limit_keys::settle(tx, found.limit, &rules))?;
        let (attempt, tell) = (found.task.runs, tx.queue_or_new(&found.task.queue)?.settings.outbox);
        let end = OutboxInput { lane: found.lane, slot: found.slot, attempt, state: &state, outcome: None };
        poll_now(note(tx, tell, &end))?;
        poll_now(ended_in_queue(tx, &found))?;
    }
    let seen_to = poll_now(release_dependents(tx, batch - late.len()))?;
    let due = slots(
        tx,
        "SELECT id FROM task INDEXED BY due WHERE phase = 1 AND why <> 7 AND run_at <= ?1 ORDER BY run_at, id LIMIT ?2",
        batch - late.len() - seen_to,
    )?;
    for slot in &due {
        let Some(Some(found)) = readable(find(tx.conn, "WHERE t.id = ?1", [slot]))? else {
            unreadable += 1;
            continue;
        };
        poll_now(come_forward(tx, &found))?;
    }
    let keys = poll_now(gates::settle_due(tx, batch - late.len() - seen_to - due.len()))?;
    let mut next = next(tx.conn, now)?;
    if unreadable > 0 {
        // What cannot be understood stays where it is: asking again at once would bring the same.
        next = next.map(|next| next.max(now.after(UNREADABLE_PAUSE)));
    }
    Ok(MadeReady { due: due.len() + keys, expired: late.len(), freed: seen_to, next })
}

fn slots(tx: &Tx<'_>, sql: &str, limit: usize) -> Sql<Vec<i64>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = tx.prepare(sql)?;
    statement.query_map(params![tx.now.millis(), limit], |row| row.get(0))?.collect()
}
