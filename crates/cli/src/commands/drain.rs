//! `ostler drain`: asks a node to finish its running tasks and exit.

use ostler_ops::nodes;

use super::Console;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, name: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let view = nodes::drain(store.as_ref(), name).await?;
    console.out.answer(&view, |_| {
        format!("{} is draining: it will finish its running tasks and exit\n", view.node)
    })?;
    Ok(Code::Done)
}
