//! Expire: takes tasks from dead nodes.

use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Check;
use ostler_store::calls::Expired;
use rusqlite::{Connection, OptionalExtension};

use crate::row::{Uid, ttl_from};
use crate::tx::{Sql, Tx};
use ostler_sql::poll_now;
use ostler_sql::sessions::Dead;

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
    let mut found = Vec::new();
    for DeadSession { session, departed } in dead {
        let open: Option<i64> = tx
            .prepare("SELECT id FROM session WHERE uid = ?1 AND ended_at IS NULL")?
            .query_row([Uid::of(session.0)], |row| row.get(0))
            .optional()?;
        // Another node may have been first, or the node itself recovered in the meantime.
        if let Some(number) = open
            && (tx.checks.pass(Check::ExpireDead, false)
                || tx.live_session(*session, Check::ExpireDead)?.is_none())
        {
            found.push(Dead { number, session: *session, departed: *departed });
        }
    }
    poll_now(ostler_sql::sessions::expire(tx, &found, batch))
}
