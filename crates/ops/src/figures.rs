//! Figures of a store for metrics: what it holds, by queue and pool, with a bounded number of names. One node exports them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ostler_core::{BreakerState, Cost, Readiness, SessionId, State, StateName, Timestamp};
use ostler_store::costs::{CostBy, CostKey, CostQuery};
use ostler_store::jobs::{FORMER_JOBS, job_of};
use ostler_store::views::{Counts, Filter, ListOrder, Liveness, NodeRecord, Survey};
use ostler_store::{MAX_PAGE, Store, Totals};

use crate::error::OpsError;

/// Queues or pools with a name of their own. Further ones are added up as [`OTHER`].
pub const MAX_NAMES: usize = 200;
/// The name of what is added up beyond the bound.
pub const OTHER: &str = "(other)";
/// The name of all queues of jobs together.
pub const JOBS: &str = "(jobs)";
/// Waiting tasks, the oldest first, among which the oldest ready one is looked for.
const OLDEST: usize = 100;

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreFigures {
    /// By the name of the queue, at most [`MAX_NAMES`] and two.
    pub queues: BTreeMap<String, QueueFigures>,
    /// By the name of the pool and the state of the worker.
    pub workers: BTreeMap<(String, &'static str), u64>,
    /// Live nodes.
    pub nodes: u64,
    /// Breakers around calls that are not closed.
    pub call_breakers_open: u64,
    pub accounts_held: u64,
    /// How long the oldest ready task has been ready: zero if nothing waits, `None` if all of the oldest waiting tasks wait for
    /// something else.
    pub oldest_ready: Option<Duration>,
    /// The session of the node that exports these figures.
    pub exporter: Option<SessionId>,
}

/// What a store holds of one queue, or of several that share a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueFigures {
    pub tasks: Counts,
    pub totals: Totals,
    /// The most tasks that ever waited at once in any one of the queues.
    pub high_water: u64,
    /// Paused queues: of a name of its own, 0 or 1.
    pub paused: u64,
    /// Breakers of the queue and of its limit keys that are not closed.
    pub breakers_open: u64,
    /// What attempts spent on models today, in UTC.
    pub cost_today: Cost,
}

impl StoreFigures {
    /// Reads them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn take(store: &dyn Store) -> Result<Self, OpsError> {
        let now = store.now().await?;
        let survey = store.survey().await?;
        let mut figures = Self::of(&survey);
        let today =
            CostQuery { by: CostBy::Queue, since: Some(now), until: Some(now), queue: None, limit: MAX_PAGE };
        let names = FigureNames::of(&survey);
        for record in store.costs(today).await? {
            if let CostKey::Name(queue) = &record.key {
                let sum = figures.queue(names.of_queue(queue));
                sum.cost_today = sum.cost_today + record.sums.cost;
            }
        }
        let open = |state: BreakerState| state != BreakerState::Closed;
        figures.call_breakers_open = count(store.call_breakers().await?.iter().filter(|one| open(one.state)));
        let held = store.accounts().await?;
        figures.accounts_held = count(held.iter().filter(|record| record.account.held(now).is_some()));
        figures.oldest_ready = oldest_ready(store, now).await?;
        Ok(figures)
    }

    /// What a survey says.
    fn of(survey: &Survey) -> Self {
        let names = FigureNames::of(survey);
        let mut figures = Self {
            nodes: count(survey.nodes.iter().filter(|node| node.liveness == Liveness::Alive)),
            exporter: exporter(&survey.nodes),
            ..Self::default()
        };
        for lane in &survey.lanes {
            let sum = figures.queue(names.of_queue(&lane.queue));
            sum.tasks = sum.tasks.plus(lane.counts);
            sum.totals = sum.totals.plus(Totals::of(lane));
        }
        let open =
            |state: Option<BreakerState>| u64::from(state.is_some_and(|is| is != BreakerState::Closed));
        for record in &survey.queues {
            let sum = figures.queue(names.of_queue(&record.name));
            sum.high_water = sum.high_water.max(record.high_water);
            sum.paused += u64::from(record.settings.paused.is_some());
            sum.breakers_open += open(record.breaker);
        }
        for key in &survey.keys {
            figures.queue(names.of_queue(&key.queue)).breakers_open += open(key.breaker);
        }
        for record in &survey.workers {
            let pool = names.of_queue(&record.worker.pool).to_owned();
            *figures.workers.entry((pool, record.worker.state.name())).or_default() += 1;
        }
        figures
    }

    fn queue(&mut self, name: &str) -> &mut QueueFigures {
        self.queues.entry(name.to_owned()).or_default()
    }
}

/// The node that exports what the store holds: of the live nodes that serve metrics, the one with the lowest session. Ids of sessions
/// begin with their time, so that it is the one that has been up longest, and a node that joins changes nothing.
fn exporter(nodes: &[NodeRecord]) -> Option<SessionId> {
    let serving = nodes.iter().filter(|node| node.liveness == Liveness::Alive && node.serves_metrics());
    serving.map(|node| node.session).min()
}

/// How long the oldest ready task has been ready.
async fn oldest_ready(store: &dyn Store, now: Timestamp) -> Result<Option<Duration>, OpsError> {
    let filter =
        Filter { state: Some(StateName::Queued), order: ListOrder::OldestFirst, ..Filter::default() };
    let page = store.list(filter, None, OLDEST).await?;
    if page.tasks.is_empty() && page.next.is_none() {
        return Ok(Some(Duration::ZERO));
    }
    let ready = page.tasks.iter().filter_map(|task| match task.state {
        State::Queued { readiness: Readiness::Ready, run_at, .. } => Some(run_at.max(task.created_at)),
        State::Queued { readiness: Readiness::Waiting | Readiness::Parked, .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    });
    Ok(ready.min().map(|since| now.since(since)))
}

fn count<T>(all: impl Iterator<Item = T>) -> u64 {
    all.count() as u64
}

/// The names under which figures are added up: a bounded set, and no ids.
#[derive(Clone, Debug, Default)]
pub struct FigureNames {
    own: BTreeSet<String>,
}

impl FigureNames {
    /// Names for these queues and pools. The first ones in the order of names have their own.
    #[must_use]
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut own = BTreeSet::new();
        for name in names.into_iter().filter(|name| !is_of_job(name) && *name != OTHER) {
            own.insert(name.to_owned());
            if own.len() > MAX_NAMES {
                own.pop_last();
            }
        }
        Self { own }
    }

    fn of(survey: &Survey) -> Self {
        let lanes = survey.lanes.iter().map(|lane| lane.queue.as_str());
        let queues = survey.queues.iter().map(|queue| queue.name.as_str());
        let pools = survey.workers.iter().map(|record| record.worker.pool.as_str());
        Self::new(lanes.chain(queues).chain(pools))
    }

    /// The name of a queue or pool.
    #[must_use]
    pub fn of_queue<'n>(&self, queue: &'n str) -> &'n str {
        if is_of_job(queue) {
            JOBS
        } else if self.own.contains(queue) {
            queue
        } else {
            OTHER
        }
    }
}

fn is_of_job(queue: &str) -> bool {
    queue == FORMER_JOBS || queue == JOBS || job_of(queue).is_some()
}

#[cfg(test)]
mod tests {
    use ostler_core::{Id, JobId};
    use ostler_store::jobs::queue_of;

    use super::*;

    #[test]
    fn names_are_bounded_and_jobs_share_one() {
        let many: Vec<String> = (0..MAX_NAMES + 50).map(|number| format!("queue-{number:04}")).collect();
        let job = queue_of(JobId(Id::from_bits(7)));
        let names = FigureNames::new(many.iter().map(String::as_str).chain([job.as_str()]));
        let used: BTreeSet<&str> = many.iter().map(|name| names.of_queue(name)).collect();
        assert_eq!(used.len(), MAX_NAMES + 1, "and the one of the rest");
        assert_eq!((names.of_queue(&many[0]), names.of_queue(&many[MAX_NAMES])), (many[0].as_str(), OTHER));
        assert_eq!((names.of_queue(&job), names.of_queue(FORMER_JOBS)), (JOBS, JOBS));
    }

    fn node(number: u128, liveness: Liveness, settings: &str) -> NodeRecord {
        NodeRecord {
            session: SessionId(Id::from_bits(number)),
            name: "node".to_owned(),
            host: None,
            pid: 1,
            version: "0.1.0".to_owned(),
            ttl: Duration::from_secs(60),
            settings: settings.to_owned(),
            joined_at: Timestamp::from_millis(0),
            liveness,
            replies: Vec::new(),
        }
    }

    #[test]
    fn of_the_live_nodes_that_serve_metrics_the_first_one_exports() {
        const SERVES: &str = r#"{"":{"metrics":"served"},"mail":{"limit":"9"}}"#;
        let nodes = [
            node(1, Liveness::Alive, r#"{"mail":{"limit":"9"}}"#),
            node(2, Liveness::Overdue, SERVES),
            node(4, Liveness::Alive, SERVES),
            node(3, Liveness::Alive, SERVES),
            node(0, Liveness::Alive, ""),
        ];
        assert_eq!(exporter(&nodes), Some(SessionId(Id::from_bits(3))));
        assert_eq!(exporter(&nodes[..2]), None);
    }
}
