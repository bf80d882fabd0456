//! `ostler drain`: asks a node to finish its running tasks and exit.

use ostler_core::SessionId;
use ostler_store::node_commands::{CommandAnswer, NodeCommand};
use ostler_store::views::NodeRecord;
use ostler_wire::action;

use super::Console;
use crate::exit::{Code, refused};
use crate::print::visible;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let node = find(&store.survey().await?.nodes, name)?;
    match store.command(node, NodeCommand::Drain).await? {
        CommandAnswer::Given { .. } => {
            let view = action::NodeCommandView { node: node.to_string(), command: "drain" };
            console.out.answer(&view, |_| {
                format!("{node} is draining: it will finish its running tasks and exit\n")
            })?;
            Ok(Code::Done)
        }
        CommandAnswer::NoSuchNode => Err(no_such_node(name)),
    }
}

fn find(nodes: &[NodeRecord], name: &str) -> anyhow::Result<SessionId> {
    let id: Option<SessionId> = name.parse().ok();
    let found: Vec<SessionId> = nodes
        .iter()
        .filter(|node| Some(node.session) == id || node.name == name)
        .map(|node| node.session)
        .collect();
    match found.as_slice() {
        [node] => Ok(*node),
        [] => Err(no_such_node(name)),
        several => {
            let ids: Vec<String> = several.iter().map(SessionId::to_string).collect();
            let sentence =
                format!("{} nodes are named \"{}\"; use an id: {}", ids.len(), visible(name), ids.join(", "));
            Err(refused(Code::BadInput, sentence))
        }
    }
}

fn no_such_node(name: &str) -> anyhow::Error {
    refused(Code::NotFound, format!("no node \"{}\" is running; see: ostler nodes", visible(name)))
}
