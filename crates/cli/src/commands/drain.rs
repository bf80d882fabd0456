//! `ostler drain`: asks a node to finish its running tasks and exit. `ostler resume --node` takes that back.

use ostler_ops::nodes;
use ostler_wire::action::{NodeCommandView, NodeResumption, ResumedNodeView};

use super::Console;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    draining(console, &nodes::drain(store.as_ref(), name).await?)
}

pub(super) fn draining(console: &Console, view: &NodeCommandView) -> anyhow::Result<Code> {
    console.out.answer(view, |_| {
        format!(
            "{0} is draining: it will finish its running tasks and exit; until then, to take that back: ostler resume --node {0}\n",
            view.node
        )
    })?;
    Ok(Code::Done)
}

pub(super) async fn resume(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    resumed(console, &nodes::resume(store.as_ref(), name).await?)
}

pub(super) fn resumed(console: &Console, view: &ResumedNodeView) -> anyhow::Result<Code> {
    let how = match view.result {
        NodeResumption::Resumed => "is no longer draining: it claims tasks again",
        NodeResumption::NotDraining => "was not draining",
    };
    console.out.answer(view, |_| format!("{} {how}\n", view.node))?;
    Ok(Code::Done)
}
