//! Takes tasks from nodes that are dead.

use ostler_core::{Outcome, SessionId};
use ostler_store::calls::Expired;
use ostler_store::{Check, Checks};

use super::finish::{end_attempt, queues_of};
use super::nodes::{end, leased};
use crate::conn::{Conn, get, most};
use crate::fault::{Sql, readable};
use crate::locks::{Locks, Mode, What};
use crate::row::Uid;
use crate::tx::{NOW, Tx};

/// Sessions that one call ends at most; the next call goes on.
const MAX_SESSIONS: usize = 1_000;

/// What there is to do: sessions that are overdue, and whether ended ones still have tasks.
pub(crate) struct Work {
    pub(crate) dead: Vec<SessionId>,
    pub(crate) unswept: bool,
    pub(crate) locks: Locks,
}

/// Looks whether there is anything to do.
pub(crate) async fn work(conn: &Conn, checks: Checks, now: Option<i64>, bite: usize) -> Sql<Work> {
    let now: i64 = get(&conn.one(NOW, &[&now]).await?, 0)?;
    let whoever = checks.pass(Check::ExpireDead, false);
    let rows = conn
        .rows(
            "SELECT uid, id FROM ostler.session WHERE ended_at IS NULL AND ($2 OR expires_at < $1) ORDER BY id LIMIT $3",
            &[&now, &whoever, &most(MAX_SESSIONS)],
        )
        .await?;
    let mut locks = Locks::none();
    let (mut dead, mut numbers) = (Vec::new(), Vec::new());
    for row in &rows {
        let session = SessionId(get::<Uid>(row, 0)?.id());
        locks.add(What::Session(session), Mode::Alone);
        dead.push(session);
        numbers.push(get::<i64>(row, 1)?);
    }
    let unswept = unswept(conn).await?;
    numbers.extend(&unswept);
    if !numbers.is_empty() {
        let rows = conn
            .rows(
                "SELECT id FROM ostler.task WHERE session = ANY($1) AND phase IN (3, 4) ORDER BY id LIMIT $2",
                &[&numbers, &most(bite)],
            )
            .await?;
        let slots = rows.iter().map(|row| get(row, 0)).collect::<Sql<Vec<i64>>>()?;
        if !slots.is_empty() {
            locks = locks.with(queues_of(conn, &slots).await?);
        }
    }
    Ok(Work { dead, unswept: !unswept.is_empty(), locks })
}

async fn unswept(conn: &Conn) -> Sql<Vec<i64>> {
    let rows = conn
        .rows("SELECT id FROM ostler.session WHERE ended_at IS NOT NULL AND NOT swept ORDER BY id", &[])
        .await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

pub(crate) async fn run(tx: &mut Tx, dead: &[SessionId], bite: usize) -> Sql<Expired> {
    let mut ended = Vec::new();
    let whoever = tx.checks.pass(Check::ExpireDead, false);
    for session in dead {
        // Another node may have been first, or the node itself renewed in the meantime.
        let row = tx
            .conn
            .row(
                "SELECT id FROM ostler.session WHERE uid = $1 AND ended_at IS NULL AND ($3 OR expires_at < $2) FOR UPDATE",
                &[&Uid::of(session.0), &tx.now.millis(), &whoever],
            )
            .await?;
        if let Some(row) = row {
            end(tx, get(&row, 0)?).await?;
            ended.push(*session);
        }
    }
    let enough = most(bite).saturating_add(1);
    let unswept = unswept(&tx.conn).await?;
    let orphans = leased(tx, &unswept, enough).await?;
    for slot in orphans.iter().take(bite) {
        let Some(Some(found)) = readable(tx.take(*slot).await)? else { continue };
        end_attempt(tx, &found, &Outcome::NodeDied, None, None).await?;
    }
    // Who holds nothing any more is not looked at again.
    tx.conn
        .exec(
            "UPDATE ostler.session s SET swept = true WHERE s.id = ANY($1) AND NOT s.swept
                AND NOT EXISTS(SELECT 1 FROM ostler.task t WHERE t.session = s.id AND t.phase IN (3, 4))",
            &[&unswept],
        )
        .await?;
    Ok(Expired { sessions: ended, tasks: orphans.len().min(bite), more: orphans.len() > bite })
}
