//! `ostler stats`: counts of tasks and workers, and how long work took.

use ostler_store::{Stats, Store as _};
use ostler_wire::system;

use super::Console;
use crate::exit::Code;
use crate::place::Missing;
use crate::print;

pub(super) async fn run(console: &Console, queue: Option<String>) -> anyhow::Result<Code> {
    let store = console.place()?.open(Missing::Refuse)?;
    let survey = store.survey().await?;
    let stats = view(&Stats::of(&survey, queue.as_deref()));
    let mut queues = survey.queues;
    queues.retain(|record| queue.as_ref().is_none_or(|queue| *queue == record.name));
    console.out.answer(&stats, |looks| print::stats(&stats, &queues, looks))?;
    Ok(Code::Done)
}

fn view(stats: &Stats) -> system::Stats {
    let (tasks, workers) = (&stats.tasks, &stats.workers);
    let kinds = stats.kinds.iter().map(|(kind, runs)| {
        let figures = system::KindStats {
            count: runs.count,
            // A tenth of a millisecond is more than anybody asks of an average.
            avg_ms: (runs.avg_ms * 10.0).round() / 10.0,
            p50_ms: runs.p50_ms,
            p99_ms: runs.p99_ms,
        };
        (kind.clone(), figures)
    });
    system::Stats {
        tasks: system::TaskCounts {
            queued: tasks.queued,
            claimed: tasks.claimed,
            running: tasks.running,
            completed: tasks.completed,
            failed: tasks.failed,
            cancelled: tasks.cancelled,
        },
        submitted: stats.submitted(),
        queue_high_water: stats.queue_high_water,
        workers: system::WorkerCounts { total: workers.total, idle: workers.idle, busy: workers.busy },
        kinds: kinds.collect(),
    }
}
