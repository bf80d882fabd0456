//! `ostler workers`: lists the workers of all nodes, as last reported.

use ostler_store::{Clock as _, SystemClock};
use ostler_wire::system::WorkerView;

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let now = SystemClock.now();
    let views: Vec<WorkerView> = survey
        .workers
        .iter()
        .map(|record| WorkerView::new(&record.worker, record.session, record.last_seen, now))
        .collect();
    console.out.answer(&views, |looks| print::workers(&views, &survey, now, looks))?;
    Ok(Code::Done)
}
