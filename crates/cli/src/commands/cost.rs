//! `ostler cost`: what was spent on models.

use ostler_ops::cost::{self, CostRequest};

use super::Console;
use crate::args::CostArgs;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, args: &CostArgs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let now = store.now().await?;
    let request = CostRequest {
        by: args.by,
        since: args.since.map(|since| since.at(now)),
        until: args.until.map(|until| until.at(now)),
        queue: args.queue.clone(),
    };
    let report = cost::report(store.as_ref(), &request).await?;
    console.out.answer(&report, |looks| print::costs(&report, args.by, looks))?;
    Ok(Code::Done)
}
