//! `ostler stats`: counts of tasks and workers, and how long work took.

use ostler_ops::overview::{JobQueues, Overview};
use ostler_store::{Clock as _, SystemClock};

use super::Console;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, queue: Option<String>, jobs: JobQueues) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let overview = Overview::take(store.as_ref()).await?;
    let stats = overview.stats(queue.as_deref());
    let mut queues = overview.survey.queues;
    queues.retain(|record| match &queue {
        Some(queue) => *queue == record.name,
        None => jobs.lists(&record.name),
    });
    console.out.answer(&stats, |looks| print::stats(&stats, &queues, SystemClock.now(), looks))?;
    Ok(Code::Done)
}
