//! Orders to nodes.

use ostler_core::SessionId;
use ostler_store::calls::Fenced;
use ostler_store::node_commands::{CommandAnswer, NodeCommand, NumberedCommand, Reply};
use ostler_store::{Check, MAX_ORDERS};

use crate::conn::{Conn, big, get, get_u64, most};
use crate::fault::Sql;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::Uid;
use crate::tx::Tx;
use ostler_sql::codec::{answer_from, answer_text, order_from, order_text};

/// Whose locks are needed for what is written about a session: it does not end meanwhile, and nobody else writes about it.
pub(crate) fn locks(session: SessionId) -> Locks {
    Locks::none()
        .and(LockTarget::Session(session), Mode::Shared)
        .and(LockTarget::Transactor(session), Mode::Exclusive)
}

pub(crate) async fn order(tx: &mut Tx, session: SessionId, order: &NodeCommand) -> Sql<CommandAnswer> {
    let open = tx
        .conn
        .row("SELECT id FROM ostler.session WHERE uid = $1 AND ended_at IS NULL", &[&Uid::of(session.0)])
        .await?;
    let Some(row) = open else { return Ok(CommandAnswer::NoSuchNode) };
    let session: i64 = get(&row, 0)?;
    // The last one is never removed while the session lives, so that no number comes twice.
    let row = tx
        .conn
        .one("SELECT coalesce(max(number), 0) FROM ostler.orders WHERE session = $1", &[&session])
        .await?;
    let number = get::<i64>(&row, 0)? + 1;
    tx.conn
        .exec(
            "INSERT INTO ostler.orders(session, number, said) VALUES($1, $2, $3)",
            &[&session, &number, &order_text(order)],
        )
        .await?;
    tx.conn
        .exec(
            "DELETE FROM ostler.orders WHERE session = $1 AND number <= $2",
            &[&session, &(number - most(MAX_ORDERS))],
        )
        .await?;
    tx.ring_news();
    Ok(CommandAnswer::Given { number: u64::try_from(number).unwrap_or(0) })
}

pub(crate) async fn answer(tx: &mut Tx, session: SessionId, answer: &Reply) -> Sql<Fenced> {
    let Some(id) = tx.live_session(session, Check::ReportSession).await? else { return Ok(Fenced::Lost) };
    tx.conn
        .exec(
            "UPDATE ostler.orders SET answer = $3 WHERE session = $1 AND number = $2",
            &[&id, &big(answer.number), &answer_text(answer)],
        )
        .await?;
    Ok(Fenced::Recorded)
}

/// What a session, by the number of its row, has answered, the oldest first.
pub(crate) async fn answers(conn: &Conn, session: i64) -> Sql<Vec<Reply>> {
    let rows = conn
        .rows(
            "SELECT number, answer FROM ostler.orders WHERE session = $1 AND answer IS NOT NULL ORDER BY number",
            &[&session],
        )
        .await?;
    let mut answers = Vec::with_capacity(rows.len());
    for row in &rows {
        answers.extend(answer_from(get_u64(row, 0)?, &get::<String>(row, 1)?));
    }
    Ok(answers)
}

/// The orders to a session, the oldest first. What a later version wrote is not for this one.
pub(crate) async fn of(conn: &Conn, session: i64) -> Sql<Vec<NumberedCommand>> {
    let rows = conn
        .rows("SELECT number, said FROM ostler.orders WHERE session = $1 ORDER BY number", &[&session])
        .await?;
    let mut orders = Vec::with_capacity(rows.len());
    for row in &rows {
        let number = get_u64(row, 0)?;
        orders.extend(
            order_from(&get::<String>(row, 1)?).map(|order| NumberedCommand { number, command: order }),
        );
    }
    Ok(orders)
}
