//! `ostler resize`: changes a pool's number of workers on all nodes, until they restart.

use ostler_ops::nodes::{self, ResizeRequest};
use ostler_wire::action::NodeCommandView;

use super::Console;
use crate::args::Resize;
use crate::exit::{Code, refused};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, resize: Resize) -> anyhow::Result<Code> {
    if resize.max.is_none() && resize.min == 0 {
        let sentence = "MAX must be at least 1; \"ostler pause QUEUE\" starts nothing of a queue";
        return Err(refused(Code::BadInput, sentence));
    }
    let request = ResizeRequest { pool: resize.pool, min: resize.min, max: resize.max.unwrap_or(resize.min) };
    request.check()?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let told = nodes::resize(store.as_ref(), &request).await?;
    console.out.answer(&told, |_| {
        let ResizeRequest { pool, min, max } = &request;
        let line = |one: &NodeCommandView| {
            let size = if min == max { max.to_string() } else { format!("{min} to {max}") };
            format!("{}: {pool} will have {size} workers\n", one.node)
        };
        told.iter().map(line).collect()
    })?;
    Ok(Code::Done)
}
