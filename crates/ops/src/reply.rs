//! Replies of nodes: sends a node a command and waits for its answer.

use std::time::Duration;

use ostler_core::SessionId;
use ostler_store::Store;
use ostler_store::node_commands::{CommandAnswer, NodeAnswer, NodeCommand};
use tokio::time::Instant;

use crate::error::{OpsError, Unsuccessful};

/// How long a node may take to reply; it receives a command within a second.
pub const MAX_REPLY: Duration = Duration::from_secs(10);

/// The node's answer; `None` if the node has exited since.
pub(crate) async fn ask_node(
    store: &dyn Store,
    node: SessionId,
    command: NodeCommand,
) -> Result<Option<NodeAnswer>, OpsError> {
    let CommandAnswer::Given { number } = store.command(node, command).await? else { return Ok(None) };
    let until = Instant::now() + MAX_REPLY;
    let mut changes = store.changes();
    loop {
        let nodes = store.survey().await?.nodes;
        let Some(record) = nodes.into_iter().find(|record| record.session == node) else { return Ok(None) };
        if let Some(reply) = record.replies.into_iter().find(|reply| reply.number == number) {
            return Ok(Some(reply.answer));
        }
        if Instant::now() >= until {
            return Err(Unsuccessful::NoReply { node, waited: MAX_REPLY }.into());
        }
        changes.wait().await;
    }
}
