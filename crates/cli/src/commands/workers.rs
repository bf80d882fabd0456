//! `ostler workers`: lists the workers of all nodes, as last reported, or those that are gone.

use ostler_ops::overview::{Overview, gone_workers};
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::args::WorkersArgs;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, which: WorkersArgs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    if which.gone {
        let views = gone_workers(store.as_ref()).await?;
        console.out.answer(&views, |looks| print::gone_workers(&views, looks))?;
        return Ok(Code::Done);
    }
    let (overview, now) = (Overview::take(store.as_ref()).await?, SystemClock.now());
    let views = overview.workers(now);
    console.out.answer(&views, |looks| print::workers(&views, &overview.nodes(), now, looks))?;
    Ok(Code::Done)
}
