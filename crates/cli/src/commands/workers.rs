//! `ostler workers`: lists the workers of all nodes, as last reported.

use ostler_ops::overview::Overview;
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let (overview, now) = (Overview::take(store.as_ref()).await?, SystemClock.now());
    let views = overview.workers(now);
    console.out.answer(&views, |looks| print::workers(&views, &overview.survey, now, looks))?;
    Ok(Code::Done)
}
