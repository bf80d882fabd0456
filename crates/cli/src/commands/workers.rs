//! `ostler workers`: lists the workers of all nodes, as last reported.

use ostler_ops::snapshot::Snapshot;
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let (snapshot, now) = (Snapshot::take(store.as_ref()).await?, SystemClock.now());
    let views = snapshot.workers(now);
    console.out.answer(&views, |looks| print::workers(&views, &snapshot.survey, now, looks))?;
    Ok(Code::Done)
}
