//! `ostler nodes`: lists running nodes with their pools.

use ostler_ops::overview::Overview;
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let overview = Overview::take(store.as_ref()).await?;
    let views = overview.nodes();
    console.out.answer(&views, |looks| print::nodes(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}
