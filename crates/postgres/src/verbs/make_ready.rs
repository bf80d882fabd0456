//! Makes tasks ready whose time has come, and ends those whose time is over.

use std::time::Duration;

use ostler_core::{Timestamp, too_late};
use ostler_store::calls::MadeReady;

use crate::conn::{Conn, get, most};
use crate::fault::{Sql, readable};
use crate::inbox::any_waits;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{BY_SLOT, Phase, find};
use crate::tx::{NOW, Tx};
use ostler_sql::dependents::{NEXT_FREED, come_forward, ended_in_queue, release_dependents};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::outbox::{OutboxInput, note};
use ostler_sql::task::set_state;

const NEXT_DUE: &str = "SELECT min(run_at) FROM ostler.task WHERE phase = 1 AND why <> 7";
const NEXT_LATE: &str = "SELECT min(late_at) FROM ostler.task WHERE late_at IS NOT NULL AND phase < 3";

/// How long a row that cannot be read after an edit by hand is left before it is read again.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);
/// How long what waits in the inbox for room is let lie before it is tried again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When there is something to do next. In the past: now. Who waits for what has ended is due at once, wherever a clock was set.
pub(crate) async fn next(conn: &Conn, now: Timestamp) -> Sql<Option<Timestamp>> {
    let first = async |sql: &str| get::<Option<i64>>(&conn.one(sql, &[]).await?, 0);
    let late = first(NEXT_LATE).await?.map(|end| end.saturating_add(1));
    let freed = first(NEXT_FREED).await?.map(|ended| ended.min(now.millis()));
    let moments = [first(NEXT_DUE).await?, late, freed, gates::next_due(first(gates::NEXT_DUE).await?)];
    Ok(moments.into_iter().flatten().min().map(Timestamp::from_millis))
}

/// What there is to do.
pub(crate) struct DueWork {
    pub(crate) now: Timestamp,
    /// When there is something to do next.
    pub(crate) next: Option<Timestamp>,
    /// The locks for what is to be done now; `None`: nothing is.
    pub(crate) locks: Option<Locks>,
    /// Whether the inbox has something in it that waits for room.
    pub(crate) waits: bool,
}

/// Looks whether there is anything to do.
pub(crate) async fn work(conn: &Conn, now: Option<i64>, batch: usize) -> Sql<DueWork> {
    let now = Timestamp::from_millis(get(&conn.one(NOW, &[&now]).await?, 0)?);
    let (next, waits) = (next(conn, now).await?, any_waits(conn).await?);
    let locks = match next {
        Some(next) if next <= now => Some(locks(conn, now, batch).await?),
        Some(_) | None => None,
    };
    Ok(DueWork { now, next, locks, waits })
}

/// Whose locks are needed, as far as can be seen from here.
async fn locks(conn: &Conn, now: Timestamp, batch: usize) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name, false FROM (
                (SELECT queue FROM ostler.task WHERE late_at < $1 AND phase < 3 ORDER BY late_at, id LIMIT $2)
                UNION ALL
                (SELECT queue FROM ostler.task WHERE phase = 1 AND why <> 7 AND run_at <= $1 ORDER BY run_at, id LIMIT $2)
             ) t JOIN ostler.queue q ON q.id = t.queue
             UNION
             SELECT DISTINCT q.name, true
             FROM (SELECT queue FROM ostler.limits WHERE shut_until <= $1 ORDER BY shut_until, key LIMIT $2) k
             JOIN ostler.queue q ON q.id = k.queue",
            &[&now.millis(), &most(batch)],
        )
        .await?;
    let mut locks = Locks::none();
    for row in &rows {
        let mode = if get(row, 1)? { Mode::Exclusive } else { Mode::Shared };
        locks.add(LockTarget::Queue(get(row, 0)?), mode);
    }
    Ok(locks)
}

pub(crate) async fn run(tx: &mut Tx, batch: usize) -> Sql<MadeReady> {
    let now = tx.now;
    let mut unreadable = 0;
    // Rows that another transaction has locked are moved by it, or read again the next time.
    let late = slots(
        tx,
        "SELECT id FROM ostler.task WHERE late_at < $1 AND phase < 3 ORDER BY late_at, id LIMIT $2
         FOR NO KEY UPDATE SKIP LOCKED",
        batch,
    )
    .await?;
    for slot in &late {
        let Some(Some(found)) = readable(find(&tx.conn, BY_SLOT, &[slot]).await)? else {
            unreadable += 1;
            continue;
        };
        let Some(state) = too_late(found.task.not_after, found.task.deadline, now) else { continue };
        let tell = tx.settings(&found.task.queue)?.outbox;
        set_state(tx, found.slot, found.lane, found.limit, Phase::of(&found.task.state), &state).await?;
        let rules = tx.key_rules(&found.task.queue)?;
        limit_keys::settle(tx, found.limit, &rules).await?;
        let attempt = found.task.runs;
        note(
            tx,
            tell,
            &OutboxInput { lane: found.lane, slot: found.slot, attempt, state: &state, outcome: None },
        )
        .await?;
        ended_in_queue(tx, &found).await?;
    }
    let seen_to = release_dependents(tx, batch - late.len()).await?;
    let due = slots(
        tx,
        "SELECT id FROM ostler.task WHERE phase = 1 AND why <> 7 AND run_at <= $1 ORDER BY run_at, id LIMIT $2
         FOR NO KEY UPDATE SKIP LOCKED",
        batch - late.len() - seen_to,
    )
    .await?;
    for slot in &due {
        let Some(Some(found)) = readable(find(&tx.conn, BY_SLOT, &[slot]).await)? else {
            unreadable += 1;
            continue;
        };
        tx.locked(&found.task.queue)?;
        come_forward(tx, &found).await?;
    }
    let keys = gates::settle_due(tx, batch - late.len() - seen_to - due.len()).await?;
    let mut next = next(&tx.conn, now).await?;
    if unreadable > 0 {
        // What cannot be understood stays where it is: asking again at once would bring the same.
        next = next.map(|next| next.max(now.after(UNREADABLE_PAUSE)));
    }
    Ok(MadeReady { due: due.len() + keys, expired: late.len(), freed: seen_to, next })
}

async fn slots(tx: &Tx, sql: &str, limit: usize) -> Sql<Vec<i64>> {
    let rows = tx.conn.rows(sql, &[&tx.now.millis(), &most(limit)]).await?;
    rows.iter().map(|row| get(row, 0)).collect()
}
