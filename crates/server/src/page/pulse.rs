//! The pulse of the queues: how fast tasks end, and how long the oldest one waits. It is sampled only while a page asks, so it says since
//! when it counts; and what costs the store something is asked at most once in a few seconds, whatever the number of readers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ostler_core::{StateName, Timestamp};
use ostler_store::Store;
use ostler_store::views::{Filter, ListOrder, Survey};
use ostler_wire::system::FindingView;
use tokio::sync::Mutex;

use crate::server::Examiner;

/// The time between two samples.
const SPACING: Duration = Duration::from_secs(5);
/// Samples that are kept: five minutes.
const MAX_SAMPLES: usize = 60;
/// Queues whose oldest task is looked up.
const MAX_AGES: usize = 30;

#[derive(Clone, Debug)]
struct PulseSample {
    at: Timestamp,
    /// Tasks that ever ended, by queue.
    ended: BTreeMap<String, u64>,
}

#[derive(Default)]
struct PulseMemory {
    samples: VecDeque<PulseSample>,
    oldest: BTreeMap<String, Timestamp>,
    findings: Option<(Timestamp, Vec<FindingView>)>,
}

/// How fast one queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueuePulse {
    /// Tasks that ended in a minute; `None`: it has not been watched long enough.
    pub(super) per_minute: Option<f64>,
    /// When the oldest waiting task was enqueued.
    pub(super) oldest: Option<Timestamp>,
}

/// The pulse of a node's pages.
#[derive(Default)]
pub(crate) struct Pulse(Mutex<PulseMemory>);

impl Pulse {
    /// The pulse of all queues, and since when their rates are counted.
    pub(super) async fn feel(
        &self,
        store: &dyn Store,
        survey: &Survey,
        now: Timestamp,
    ) -> (BTreeMap<String, QueuePulse>, Option<Timestamp>) {
        let mut memory = self.0.lock().await;
        let mut ended: BTreeMap<String, u64> = BTreeMap::new();
        let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
        for lane in &survey.lanes {
            *ended.entry(lane.queue.clone()).or_default() += lane.counts.completed + lane.counts.failed;
            *waiting.entry(&lane.queue).or_default() += lane.counts.queued;
        }
        let is_due = memory.samples.back().is_none_or(|last| now.since(last.at) >= SPACING);
        if is_due {
            memory.oldest.clear();
            for queue in
                waiting.iter().filter(|(_, count)| **count > 0).map(|(queue, _)| *queue).take(MAX_AGES)
            {
                let filter = Filter {
                    state: Some(StateName::Queued),
                    queue: Some(queue.to_owned()),
                    order: ListOrder::OldestFirst,
                    ..Filter::default()
                };
                if let Ok(page) = store.list(filter, None, 1).await
                    && let Some(task) = page.tasks.first()
                {
                    memory.oldest.insert(queue.to_owned(), task.created_at);
                }
            }
            if memory.samples.len() >= MAX_SAMPLES {
                memory.samples.pop_front();
            }
            memory.samples.push_back(PulseSample { at: now, ended: ended.clone() });
        }
        let first = memory.samples.front().filter(|first| now.since(first.at) >= SPACING);
        let mut all = BTreeMap::new();
        for (queue, count) in &ended {
            let per_minute = first.map(|first| {
                let before = first.ended.get(queue).copied().unwrap_or(0);
                count.saturating_sub(before) as f64 * 60.0 / now.since(first.at).as_secs_f64()
            });
            let oldest = memory.oldest.get(queue).copied().filter(|_| waiting.get(queue.as_str()) > Some(&0));
            all.insert(queue.clone(), QueuePulse { per_minute, oldest });
        }
        (all, first.map(|first| first.at))
    }

    /// What is wrong.
    pub(super) async fn findings(&self, examiner: &dyn Examiner, now: Timestamp) -> Vec<FindingView> {
        let mut memory = self.0.lock().await;
        if let Some((at, known)) = &memory.findings
            && now.since(*at) < SPACING
        {
            return known.clone();
        }
        let found = examiner.examine().await;
        memory.findings = Some((now, found.clone()));
        found
    }

    /// After a change by hand, what is known is asked anew.
    pub(super) async fn forget(&self) {
        self.0.lock().await.findings = None;
    }
}
