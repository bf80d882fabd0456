//! Node commands: the locks that they need, and the queries.

use ostler_core::SessionId;
use ostler_sql::codec::{command_from, reply_from};
use ostler_store::node_commands::{NumberedCommand, Reply};

use crate::conn::{Conn, get, get_u64};
use crate::fault::Sql;
use crate::locks::{LockTarget, Locks, Mode};

/// The locks for writes about a session: it does not end in the meantime, and no other transaction writes about it.
pub(crate) fn locks(session: SessionId) -> Locks {
    Locks::none()
        .and(LockTarget::Session(session), Mode::Shared)
        .and(LockTarget::Transactor(session), Mode::Exclusive)
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
        answers.extend(reply_from(get_u64(row, 0)?, &get::<String>(row, 1)?));
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
            command_from(&get::<String>(row, 1)?).map(|order| NumberedCommand { number, command: order }),
        );
    }
    Ok(orders)
}
