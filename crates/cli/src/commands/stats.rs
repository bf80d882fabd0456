//! `ostler stats`: counts of tasks and workers, and how long work took.

use ostler_store::{Clock as _, KindStats, Stats, SystemClock};
use ostler_wire::limits::ThrottleView;
use ostler_wire::system;

use super::{Console, queue};
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, queue: Option<String>) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let survey = store.survey().await?;
    let held = queue::held(&survey, queue.as_deref());
    let stats = view(&Stats::of(&survey, queue.as_deref()), held);
    let mut queues = survey.queues;
    queues.retain(|record| queue.as_ref().is_none_or(|queue| *queue == record.name));
    console.out.answer(&stats, |looks| print::stats(&stats, &queues, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

fn view(stats: &Stats, held: Vec<ThrottleView>) -> system::StatsView {
    let (tasks, totals, workers) = (&stats.tasks, &stats.totals, &stats.workers);
    let kinds = stats.kinds.iter().map(|(kind, runs)| (kind.clone(), durations(runs)));
    system::StatsView {
        tasks: system::TaskCounts {
            queued: tasks.queued,
            claimed: tasks.claimed,
            running: tasks.running,
            completed: tasks.completed,
            failed: tasks.failed,
            cancelled: tasks.cancelled,
        },
        submitted: stats.submitted(),
        totals: system::TotalsView {
            submitted: totals.submitted,
            completed: totals.completed,
            failed: totals.failed,
            cancelled: totals.cancelled,
            attempts: totals.attempts,
            retried: totals.retried,
            replayed: totals.replayed,
        },
        queue_high_water: stats.queue_high_water,
        workers: system::WorkerCountsView { total: workers.total, idle: workers.idle, busy: workers.busy },
        all_kinds: durations(&stats.all_kinds),
        kinds: kinds.collect(),
        held,
    }
}

fn durations(runs: &KindStats) -> system::KindStatsView {
    system::KindStatsView {
        count: runs.count,
        // A tenth of a millisecond is precise enough for an average.
        avg_ms: (runs.avg_ms * 10.0).round() / 10.0,
        p50_ms: runs.p50_ms,
        p99_ms: runs.p99_ms,
    }
}
