//! The pulse of the queues: how fast tasks end and fail, and how long the oldest one waits. It is sampled only while a page asks, so it says
//! since when it counts; and what costs the store something is asked at most once in a few seconds, whatever the number of readers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ostler_core::{StateName, Timestamp};
use ostler_ops::overview::JobQueues;
use ostler_store::views::{Counts, Filter, ListOrder, Survey};
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::system::FindingView;
use tokio::sync::Mutex;

use crate::server::Examiner;

/// The time between two samples.
const SPACING: Duration = Duration::from_secs(5);
/// How far samples go back.
pub(super) const WINDOW: Duration = Duration::from_secs(300);
/// Samples that are kept.
const MAX_SAMPLES: usize = 60;
/// Tasks of a store in which the oldest waiting ones are looked up. They are listed in the order of arrival, behind all that have ended: in
/// a larger store that would take a walk through its history.
const MAX_WALKED: u64 = 20_000;
/// Pages of waiting tasks that are looked at for the oldest of each queue.
const MAX_PAGES: usize = 3;

#[derive(Clone, Debug)]
struct PulseSample {
    at: Timestamp,
    queues: BTreeMap<String, Counts>,
}

impl PulseSample {
    fn counts(&self, queue: &str) -> Counts {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    /// Tasks that completed or failed.
    fn ended(&self, queue: &str) -> u64 {
        let counts = self.counts(queue);
        counts.completed + counts.failed
    }
}

#[derive(Default)]
struct PulseMemory {
    samples: VecDeque<PulseSample>,
    oldest: BTreeMap<String, Timestamp>,
    findings: Option<(Timestamp, Vec<FindingView>)>,
}

/// How long the oldest task of a queue has waited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OldestWait {
    /// Since it was enqueued.
    Since(Timestamp),
    /// Since about this time, if tasks are taken in the order in which they came: that many had come by then.
    About(Timestamp),
    /// Since before the first sample.
    Before(Timestamp),
}

/// How fast one queue is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueuePulse {
    /// Tasks that ended in a minute; `None`: it has not been watched long enough.
    pub(super) per_minute: Option<f64>,
    /// Tasks that failed for good since the first sample.
    pub(super) failed: u64,
    /// `None`: no task waits.
    pub(super) oldest: Option<OldestWait>,
    /// Tasks that ended in a minute, up to each sample.
    pub(super) rates: Vec<(Timestamp, f64)>,
}

/// The pulse of a node's pages.
#[derive(Default)]
pub(crate) struct Pulse(Mutex<PulseMemory>);

impl Pulse {
    /// The pulse of all queues but those of jobs, and since when their rates are counted.
    pub(super) async fn feel(
        &self,
        store: &dyn Store,
        survey: &Survey,
        now: Timestamp,
    ) -> (BTreeMap<String, QueuePulse>, Option<Timestamp>) {
        let mut memory = self.0.lock().await;
        let sample = PulseSample { at: now, queues: counts(survey) };
        let is_due = memory.samples.back().is_none_or(|last| now.since(last.at) >= SPACING);
        if is_due {
            memory.oldest = oldest(store, survey, &sample).await;
            memory.samples.push_back(sample.clone());
            let first = now.before(WINDOW);
            memory.samples.retain(|kept| kept.at >= first);
            while memory.samples.len() > MAX_SAMPLES {
                memory.samples.pop_front();
            }
        }
        let PulseMemory { samples, oldest, .. } = &*memory;
        let pulse = |queue: &String| (queue.clone(), pulse(samples, oldest.get(queue), &sample, queue));
        let since = samples.front().map(|first| first.at).filter(|at| now.since(*at) >= SPACING);
        (sample.queues.keys().map(pulse).collect(), since)
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

fn counts(survey: &Survey) -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for lane in survey.lanes.iter().filter(|lane| JobQueues::Hidden.lists(&lane.queue)) {
        let sum = all.entry(lane.queue.clone()).or_default();
        *sum = sum.plus(lane.counts);
    }
    all
}

/// When the oldest waiting task of each queue came, where that is found by a short walk.
async fn oldest(store: &dyn Store, survey: &Survey, sample: &PulseSample) -> BTreeMap<String, Timestamp> {
    let mut found = BTreeMap::new();
    let waiting = sample.queues.values().filter(|counts| counts.queued > 0).count();
    let walked: u64 = survey.lanes.iter().map(|lane| lane.counts.submitted()).sum();
    if waiting == 0 || walked > MAX_WALKED {
        return found;
    }
    let filter =
        Filter { state: Some(StateName::Queued), order: ListOrder::OldestFirst, ..Filter::default() };
    let mut next = None;
    for _ in 0..MAX_PAGES {
        // Without an answer of the store, the flow of the queue tells about its age.
        let Ok(page) = store.list(filter.clone(), next, MAX_PAGE).await else { return found };
        for task in page.tasks {
            found.entry(task.queue).or_insert(task.created_at);
        }
        next = page.next;
        if next.is_none() || found.len() >= waiting {
            break;
        }
    }
    found
}

fn pulse(
    samples: &VecDeque<PulseSample>,
    oldest: Option<&Timestamp>,
    now: &PulseSample,
    queue: &str,
) -> QueuePulse {
    let counts = now.counts(queue);
    let rate = |from: &PulseSample, to: &PulseSample| {
        let ended = to.ended(queue).saturating_sub(from.ended(queue));
        ended as f64 * 60.0 / to.at.since(from.at).as_secs_f64()
    };
    let first = samples.front().filter(|first| now.at.since(first.at) >= SPACING);
    let pairs = samples.iter().zip(samples.iter().skip(1));
    QueuePulse {
        per_minute: first.map(|first| rate(first, now)),
        failed: first.map_or(0, |first| counts.failed.saturating_sub(first.counts(queue).failed)),
        oldest: (counts.queued > 0).then(|| match oldest {
            Some(at) => OldestWait::Since(*at),
            None => by_flow(samples, counts.submitted() - counts.queued, now.at, queue),
        }),
        rates: pairs.map(|(from, to)| (to.at, rate(from, to))).collect(),
    }
}

/// The task at the head came when as many had come as have left by now.
fn by_flow(samples: &VecDeque<PulseSample>, left: u64, now: Timestamp, queue: &str) -> OldestWait {
    match samples.iter().rfind(|sample| sample.counts(queue).submitted() <= left) {
        Some(sample) => OldestWait::About(sample.at),
        None => OldestWait::Before(samples.front().map_or(now, |first| first.at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a queue, five seconds apart: tasks that had come, and those that wait.
    fn samples(all: &[(u64, u64)]) -> VecDeque<PulseSample> {
        let sample = |(place, (submitted, queued)): (usize, &(u64, u64))| PulseSample {
            at: Timestamp::from_millis(place as i64 * 5_000),
            queues: BTreeMap::from([(
                "q".to_owned(),
                Counts { queued: *queued, completed: submitted - queued, ..Counts::default() },
            )]),
        };
        all.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn the_age_of_a_long_queue_follows_from_what_came_and_what_left() {
        let at = |ms| Timestamp::from_millis(ms);
        let age = |all: &[(u64, u64)]| {
            let samples = samples(all);
            pulse(&samples, None, samples.back().expect("one"), "q").oldest
        };
        // 30 have left: the one at the head is the 31st, which came after the second sample.
        assert_eq!(age(&[(10, 10), (30, 25), (60, 40), (80, 50)]), Some(OldestWait::About(at(5_000))));
        // 5 have left, and 10 had come before the first sample.
        assert_eq!(age(&[(10, 10), (30, 25)]), Some(OldestWait::Before(at(0))));
        assert_eq!(age(&[(10, 10), (30, 0)]), None, "nothing waits");
    }

    #[test]
    fn rates_are_counted_between_samples_and_since_the_first() {
        let samples = samples(&[(0, 0), (10, 0), (40, 0)]);
        let found = pulse(&samples, None, &samples[2], "q");
        assert_eq!(found.per_minute, Some(240.0));
        assert_eq!(
            found.rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>(),
            [120.0, 360.0],
            "ten in five seconds, then thirty"
        );
    }
}
