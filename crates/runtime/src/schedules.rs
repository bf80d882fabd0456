//! Fires schedules: each due run is enqueued once across all nodes. Every node does this, including during a drain; of all
//! nodes that fire the same run, the store accepts one.
//!
//! The expected time is compared in the transaction that enqueues the run. So a call whose response was lost is not
//! repeated: the next query shows that the schedule has advanced. The id of each run is new: one derived from name and
//! time would add nothing, and would suppress the run of a schedule that was removed and put again.
//!
//! The clock of the store decides, not that of the node: with a shared server, one node with a wrong clock would shift the
//! schedules of all.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Due, TaskId, Timestamp, due};
use ostler_schedule::ScheduleSpec;
use ostler_store::schedules::{Activity, Fired, Firing, ScheduleRecord};
use ostler_store::{Store, Wakeups};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::lifecycle::NodeState;
use crate::node::Ids;

/// Maximum schedules fired in one round, one run of each. Concurrent calls share a commit.
const MAX_AT_ONCE: usize = 100;
/// The longest pause between two rounds: a signal may be lost, and clocks are set.
const LONGEST: Duration = Duration::from_secs(5);
/// The shortest pause, however much is due.
const SHORTEST: Duration = Duration::from_millis(5);
/// The pause when a due run could not be fired: the store is unavailable, or another node was first.
const AGAIN: Duration = Duration::from_millis(250);

/// Fires schedules for one session of the node.
pub(crate) struct Scheduler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ids: Ids,
    pub(crate) state: watch::Receiver<NodeState>,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchedulerRound {
    /// Nothing is due for this long; `None` if nothing is to come.
    For(Option<Duration>),
    /// A run was fired; there may be more.
    Went,
    /// A due run was not fired.
    Stuck,
}

impl Scheduler {
    /// Runs until the node is fenced or has ended, including during a drain.
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

    /// Fires one run of each schedule that is due.
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
        // Longest overdue first, so that no schedule starves.
        firings.sort_by_key(|firing| firing.expected);
        firings.truncate(MAX_AT_ONCE);
        self.fire(firings).await
    }

    /// The call for a due run; `None` if the spec is unreadable, since another version may have written it. `ostler doctor`
    /// reports it.
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
                    turn = SchedulerRound::Went;
                }
                // Another node was first, or the store is unavailable: the next round shows.
                Ok(Ok(Fired::NotDue) | Err(_)) | Err(_) => {}
            }
        }
        turn
    }
}

/// Waits for a control signal, then briefly for others that arrive at the same time.
async fn rung(news: &mut Wakeups) {
    news.wait().await;
    tokio::time::sleep(SHORTEST).await;
}
