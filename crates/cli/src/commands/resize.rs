//! `ostler resize`: changes a pool's number of workers on all nodes, until they restart.

use ostler_ops::nodes::{self, ResizeRequest};
use ostler_wire::action::NodeCommandView;

use super::Console;
use crate::args::Resize;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, resize: Resize) -> anyhow::Result<Code> {
    let request = ResizeRequest { pool: resize.pool, min: resize.min, max: resize.max };
    request.check()?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let told = nodes::resize(store.as_ref(), &request).await?;
    console.out.answer(&told, |_| {
        let ResizeRequest { pool, min, max } = &request;
        let line = |one: &NodeCommandView| format!("{}: {pool} will have {min} to {max} workers\n", one.node);
        told.iter().map(line).collect()
    })?;
    Ok(Code::Done)
}
