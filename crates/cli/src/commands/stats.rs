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
    let listed = |name: &String| match &queue {
        Some(queue) => queue == name,
        None => jobs.lists(name),
    };
    let paused = overview.survey.queues.into_iter().filter(|record| listed(&record.name));
    let paused: Vec<(String, String)> =
        paused.filter_map(|record| Some((record.name, record.settings.paused?))).collect();
    console.out.answer(&stats, |looks| print::stats(&stats, &paused, SystemClock.now(), looks))?;
    Ok(Code::Done)
}
