//! `ostler resize`: changes a pool's number of workers on all nodes, until they restart.

use ostler_ops::nodes::{self, ResizeRequest};
use ostler_wire::action::NodeCommandView;

use super::Console;
use crate::args::Resize;
use crate::exit::{Code, refused};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, resize: Resize) -> anyhow::Result<Code> {
    let request = request(resize)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    told(console, &request, &nodes::resize(store.as_ref(), &request).await?)
}

/// The sizes that the options ask for.
pub(super) fn request(resize: Resize) -> anyhow::Result<ResizeRequest> {
    if resize.max.is_none() && resize.min == 0 {
        let sentence = "MAX must be at least 1; \"ostler pause QUEUE\" starts nothing of a queue";
        return Err(refused(Code::BadInput, sentence));
    }
    let request = ResizeRequest { pool: resize.pool, min: resize.min, max: resize.max.unwrap_or(resize.min) };
    request.check()?;
    Ok(request)
}

pub(super) fn told(
    console: &Console,
    request: &ResizeRequest,
    told: &[NodeCommandView],
) -> anyhow::Result<Code> {
    console.out.answer(&told, |_| {
        let ResizeRequest { pool, min, max } = request;
        let line = |one: &NodeCommandView| {
            let size = if min == max { max.to_string() } else { format!("{min} to {max}") };
            format!("{}: {pool} will have {size} workers\n", one.node)
        };
        told.iter().map(line).collect()
    })?;
    Ok(Code::Done)
}
