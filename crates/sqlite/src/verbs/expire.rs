//! Expire: takes tasks from dead nodes.

use std::time::Duration;

use ostler_core::{Outcome, SessionId};
use ostler_store::Check;
use ostler_store::calls::Expired;
use rusqlite::{Connection, OptionalExtension, params};

use super::sessions::{end, hand_back_all, leased};
use crate::fault::readable;
use crate::row::{Uid, find, ttl_from};
use crate::tx::{Sql, Tx};
use ostler_sql::end_attempt::end_attempt;
use ostler_sql::poll_now;

/// Open sessions with their TTL, and whether ended ones still have tasks.
pub(crate) struct Suspects {
    pub(crate) open: Vec<(SessionId, Duration)>,
    pub(crate) unswept: bool,
}

pub(crate) fn suspects(conn: &Connection) -> Sql<Suspects> {
    let mut statement =
        conn.prepare_cached("SELECT uid, ttl_ms FROM session WHERE ended_at IS NULL ORDER BY id")?;
    let open = statement
        .query_map([], |row| Ok((SessionId(row.get::<_, Uid>(0)?.id()), ttl_from(row, 1)?)))?
        .collect::<Sql<_>>()?;
    let unswept =
        conn.prepare_cached("SELECT 1 FROM session WHERE ended_at IS NOT NULL AND swept = 0")?.exists([])?;
    Ok(Suspects { open, unswept })
}

/// A session that is dead or overdue.
pub(crate) struct DeadSession {
    pub(crate) session: SessionId,
    /// The node had recorded that it is shutting down on purpose.
    pub(crate) departed: bool,
}

pub(crate) fn run(tx: &mut Tx<'_>, dead: &[DeadSession], batch: usize) -> Sql<Expired> {
    let (mut ended, mut handed_back) = (Vec::new(), 0);
    for DeadSession { session, departed } in dead {
        let open: Option<i64> = tx
            .prepare("SELECT id FROM session WHERE uid = ?1 AND ended_at IS NULL")?
            .query_row([Uid::of(session.0)], |row| row.get(0))
            .optional()?;
        // Another node may have been first, or the node itself recovered in the meantime.
        if let Some(id) = open
            && (tx.checks.pass(Check::ExpireDead, false)
                || tx.live_session(*session, Check::ExpireDead)?.is_none())
        {
            if *departed {
                handed_back += hand_back_all(tx, id)?;
            } else {
                end(tx, id)?;
            }
            ended.push(*session);
        }
    }
    let unswept: Vec<i64> = {
        let mut statement = tx.prepare("SELECT id FROM session WHERE ended_at IS NOT NULL AND swept = 0")?;
        statement.query_map([], |row| row.get(0))?.collect::<Sql<_>>()?
    };
    let enough = i64::try_from(batch).unwrap_or(i64::MAX).saturating_add(1);
    let mut orphans = Vec::new();
    for session in &unswept {
        let found = leased(tx, *session, enough)?;
        if found.is_empty() {
            tx.prepare("UPDATE session SET swept = 1 WHERE id = ?1")?.execute(params![session])?;
        }
        orphans.extend(found);
    }
    orphans.sort_unstable();
    for slot in orphans.iter().take(batch) {
        let Some(Some(found)) = readable(find(tx.conn, *slot))? else { continue };
        poll_now(end_attempt(tx, &found, &Outcome::NodeDied, None, None))?;
    }
    let tasks = handed_back + orphans.len().min(batch);
    Ok(Expired { sessions: ended, tasks, more: orphans.len() > batch })
}
