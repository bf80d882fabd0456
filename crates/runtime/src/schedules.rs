//! Fires schedules: whatever is due gets its run, once over all nodes. Every node does this, also while it drains; of all who fire
//! the same moment, the store takes one.
//!
//! The moment that is fired is compared in the transaction that enqueues the run. So a call whose answer was lost is not made
//! again: whoever looks next sees that the schedule has gone on. The run's id is new each time. An id made of the name and the moment
//! would say no more, and would keep out the run of a schedule that was removed and put again.
//!
//! The clock of the store decides, not that of the node: on a server, one node whose clock is wrong would move the schedules of
//! all.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Due, Missed, Overlap, TaskId, Timestamp, due};
use ostler_store::schedules::{Activity, Fired, Firing, Schedule, ScheduleRecord, TaskTemplate};
use ostler_store::{Store, Wakeups};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::lifecycle::NodeState;
use crate::node::Ids;
use crate::schedule_spec::ScheduleSpec;

/// Schedules that are fired in one turn, one moment of each. Who comes together is committed together.
const MAX_AT_ONCE: usize = 100;
/// The longest pause between two looks: a ring may be lost, and clocks are set.
const LONGEST: Duration = Duration::from_secs(5);
/// The shortest one, however much is due.
const SHORTEST: Duration = Duration::from_millis(5);
/// The pause when something is due and could not be fired: the store is away, or was asked by somebody else first.
const AGAIN: Duration = Duration::from_millis(250);

/// A schedule as somebody wants it: its times are known to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSchedule {
    /// Its name; there is one of each.
    pub name: String,
    /// When it runs.
    pub times: ScheduleSpec,
    /// What happens when a run is due and the one before is not over.
    pub overlap: Overlap,
    /// What happens with runs whose moment passed while nobody looked.
    pub missed: Missed,
    /// What a run is.
    pub task: TaskTemplate,
}

impl PlannedSchedule {
    /// The schedule, put at this moment.
    #[must_use]
    pub fn schedule(&self, now: Timestamp) -> Schedule {
        let Self { name, times, overlap, missed, task } = self.clone();
        Schedule { name, spec: times.to_string(), overlap, missed, task, next_at: times.first(now) }
    }
}

/// Fires for one session of the node.
pub(crate) struct Scheduler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ids: Ids,
    pub(crate) state: watch::Receiver<NodeState>,
}

/// What a turn led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchedulerRound {
    /// Nothing is due for this long; `None`: nothing is to come.
    For(Option<Duration>),
    /// Something was fired, by this node or another: there may be more.
    Went,
    /// Something is due, and nobody fired it.
    Stuck,
}

impl Scheduler {
    /// Goes on until the node has ended, also while it drains.
    pub(crate) async fn serve(mut self) {
        let mut news = self.store.control();
        loop {
            if matches!(*self.state.borrow_and_update(), NodeState::Ended | NodeState::Fenced) {
                return;
            }
            news.arm();
            let pause = match self.turn().await {
                SchedulerRound::For(time) => time.unwrap_or(LONGEST),
                SchedulerRound::Went => SHORTEST,
                SchedulerRound::Stuck => AGAIN,
            };
            tokio::select! {
                () = tokio::time::sleep(pause.clamp(SHORTEST, LONGEST)) => {}
                () = rung(&mut news) => {}
                changed = self.state.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Fires one moment of each schedule that is due.
    async fn turn(&self) -> SchedulerRound {
        let Ok(records) = self.store.schedules().await else { return SchedulerRound::Stuck };
        if records.is_empty() {
            return SchedulerRound::For(None);
        }
        let Ok(now) = self.store.now().await else { return SchedulerRound::Stuck };
        let waiting = |record: &ScheduleRecord| match record.activity {
            Activity::Active => record.schedule.next_at,
            Activity::Paused => None,
        };
        let next = records.iter().filter_map(waiting).filter(|next| *next > now).min();
        let is_due = |record: &&ScheduleRecord| waiting(record).is_some_and(|next| next <= now);
        let mut firings: Vec<Firing> =
            records.iter().filter(is_due).filter_map(|record| self.firing(record, now)).collect();
        if firings.is_empty() {
            return SchedulerRound::For(next.map(|next| next.since(now)));
        }
        // Those that wait the longest come first, so that none is left behind by the others.
        firings.sort_by_key(|firing| firing.expected);
        firings.truncate(MAX_AT_ONCE);
        self.fire(firings).await
    }

    /// What is to be said to the store; `None`: its times cannot be read, which another version may have written. The doctor
    /// tells of it.
    fn firing(&self, record: &ScheduleRecord, now: Timestamp) -> Option<Firing> {
        let schedule = &record.schedule;
        let expected = schedule.next_at?;
        let times = ScheduleSpec::parse(&schedule.spec).ok()?;
        let Due { run, next } = due(schedule.missed, expected, now, |after| times.next(expected, after));
        let task = run.map(|_| schedule.task.task(TaskId((self.ids)())));
        Some(Firing { schedule: schedule.name.clone(), expected, next, task })
    }

    async fn fire(&self, firings: Vec<Firing>) -> SchedulerRound {
        let mut fired = JoinSet::new();
        for firing in firings {
            let store = Arc::clone(&self.store);
            fired.spawn(async move { store.fire(firing).await });
        }
        let mut turn = SchedulerRound::Stuck;
        while let Some(answer) = fired.join_next().await {
            match answer {
                Ok(Ok(Fired::Enqueued(_) | Fired::Replaced { .. } | Fired::Skipped(_))) => {
                    turn = SchedulerRound::Went
                }
                // Somebody else was first, or the store is away: the next look tells.
                Ok(Ok(Fired::NotDue) | Err(_)) | Err(_) => {}
            }
        }
        turn
    }
}

/// Waits for news, and then for more of it that comes at the same time.
async fn rung(news: &mut Wakeups) {
    news.wait().await;
    tokio::time::sleep(SHORTEST).await;
}
