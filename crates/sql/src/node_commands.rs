//! Node commands, and the replies of nodes.

use ostler_core::SessionId;
use ostler_store::calls::Fenced;
use ostler_store::node_commands::{CommandAnswer, NodeCommand, Reply};
use ostler_store::{Check, MAX_NODE_COMMANDS};

use crate::codec::{command_text, reply_text};
use crate::params;
use crate::tx::{Tx, one};
use crate::value::Row;

pub async fn command<T: Tx>(
    tx: &mut T,
    session: SessionId,
    command: &NodeCommand,
) -> Result<CommandAnswer, T::Error> {
    let open =
        tx.row("SELECT id FROM ostler.session WHERE uid = $1 AND ended_at IS NULL", params![session]).await?;
    let Some(row) = open else { return Ok(CommandAnswer::NoSuchNode) };
    let session: i64 = row.get(0)?;
    // The last one is never removed while the session lives, so that no number comes twice.
    let row =
        one(tx, "SELECT coalesce(max(number), 0) FROM ostler.orders WHERE session = $1", params![session])
            .await?;
    let number = row.get::<i64>(0)? + 1;
    tx.exec(
        "INSERT INTO ostler.orders(session, number, said) VALUES($1, $2, $3)",
        params![session, number, command_text(command)],
    )
    .await?;
    let most = i64::try_from(MAX_NODE_COMMANDS).unwrap_or(i64::MAX);
    tx.exec("DELETE FROM ostler.orders WHERE session = $1 AND number <= $2", params![session, number - most])
        .await?;
    tx.ring_control();
    Ok(CommandAnswer::Given { number: u64::try_from(number).unwrap_or(0) })
}

pub async fn reply<T: Tx>(tx: &mut T, session: SessionId, answer: &Reply) -> Result<Fenced, T::Error> {
    let Some(id) = tx.live_session(session, Check::ReportSession).await? else { return Ok(Fenced::Lost) };
    tx.exec(
        "UPDATE ostler.orders SET answer = $3 WHERE session = $1 AND number = $2",
        params![id, answer.number, reply_text(answer)],
    )
    .await?;
    tx.changed();
    Ok(Fenced::Recorded)
}
