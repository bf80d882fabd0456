//! Queries of node commands and replies.

use ostler_core::SessionId;
use ostler_sql::codec::{command_from, reply_from};
use ostler_store::node_commands::{NumberedCommand, Reply};
use rusqlite::Connection;

use crate::row::Uid;
use crate::tx::Sql;

/// What a session, by the number of its row, has answered, the oldest first.
pub(crate) fn answers(conn: &Connection, session: i64) -> Sql<Vec<Reply>> {
    let mut statement = conn.prepare_cached(
        "SELECT number, answer FROM orders WHERE session = ?1 AND answer IS NOT NULL ORDER BY number",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?));
    let said = statement.query_map([session], read)?.collect::<Sql<Vec<_>>>()?;
    Ok(said.into_iter().filter_map(|(number, text)| reply_from(number, &text)).collect())
}

/// The orders to a session, the oldest first. What a later version wrote is not for this one.
pub(crate) fn of(conn: &Connection, session: SessionId) -> Sql<Vec<NumberedCommand>> {
    let mut statement = conn.prepare_cached(
        "SELECT number, said FROM orders WHERE session = (SELECT id FROM session WHERE uid = ?1) ORDER BY number",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?));
    let said = statement.query_map([Uid::of(session.0)], read)?.collect::<Sql<Vec<_>>>()?;
    let known = |(number, text): (u64, String)| {
        command_from(&text).map(|order| NumberedCommand { number, command: order })
    };
    Ok(said.into_iter().filter_map(known).collect())
}
