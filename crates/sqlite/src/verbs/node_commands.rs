//! Orders to nodes.

use ostler_core::SessionId;
use ostler_store::calls::Fenced;
use ostler_store::node_commands::{CommandAnswer, NodeCommand, NumberedCommand, Reply};
use ostler_store::{Check, MAX_ORDERS};
use rusqlite::{Connection, OptionalExtension, params};

use crate::row::Uid;
use crate::tx::{Sql, Tx};
use ostler_sql::codec::{answer_from, answer_text, order_from, order_text};

pub(crate) fn order(tx: &mut Tx<'_>, session: SessionId, order: &NodeCommand) -> Sql<CommandAnswer> {
    let open: Option<i64> = tx
        .prepare("SELECT id FROM session WHERE uid = ?1 AND ended_at IS NULL")?
        .query_row([Uid::of(session.0)], |row| row.get(0))
        .optional()?;
    let Some(session) = open else { return Ok(CommandAnswer::NoSuchNode) };
    // The last one is never removed while the session lives, so that no number comes twice.
    let last: i64 = tx
        .prepare("SELECT coalesce(max(number), 0) FROM orders WHERE session = ?1")?
        .query_row([session], |row| row.get(0))?;
    let number = last + 1;
    tx.prepare("INSERT INTO orders(session, number, said) VALUES(?1, ?2, ?3)")?.execute(params![
        session,
        number,
        order_text(order)
    ])?;
    let most = i64::try_from(MAX_ORDERS).unwrap_or(i64::MAX);
    tx.prepare("DELETE FROM orders WHERE session = ?1 AND number <= ?2")?
        .execute(params![session, number - most])?;
    tx.ring_news();
    Ok(CommandAnswer::Given { number: u64::try_from(number).unwrap_or(0) })
}

pub(crate) fn answer(tx: &mut Tx<'_>, session: SessionId, answer: &Reply) -> Sql<Fenced> {
    let Some(id) = tx.live_session(session, Check::ReportSession)? else { return Ok(Fenced::Lost) };
    tx.prepare("UPDATE orders SET answer = ?3 WHERE session = ?1 AND number = ?2")?.execute(params![
        id,
        i64::try_from(answer.number).unwrap_or(0),
        answer_text(answer)
    ])?;
    Ok(Fenced::Recorded)
}

/// What a session, by the number of its row, has answered, the oldest first.
pub(crate) fn answers(conn: &Connection, session: i64) -> Sql<Vec<Reply>> {
    let mut statement = conn.prepare_cached(
        "SELECT number, answer FROM orders WHERE session = ?1 AND answer IS NOT NULL ORDER BY number",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?));
    let said = statement.query_map([session], read)?.collect::<Sql<Vec<_>>>()?;
    Ok(said.into_iter().filter_map(|(number, text)| answer_from(number, &text)).collect())
}

/// The orders to a session, the oldest first. What a later version wrote is not for this one.
pub(crate) fn of(conn: &Connection, session: SessionId) -> Sql<Vec<NumberedCommand>> {
    let mut statement = conn.prepare_cached(
        "SELECT number, said FROM orders WHERE session = (SELECT id FROM session WHERE uid = ?1) ORDER BY number",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?));
    let said = statement.query_map([Uid::of(session.0)], read)?.collect::<Sql<Vec<_>>>()?;
    let known = |(number, text): (u64, String)| {
        order_from(&text).map(|order| NumberedCommand { number, command: order })
    };
    Ok(said.into_iter().filter_map(known).collect())
}
