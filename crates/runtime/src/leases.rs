//! Held leases: every task that this node has claimed, with its stop signals. Also tracks open claims and unwritten
//! reports: the store may have leases for these that are not held here.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::{TaskId, WorkerId};
use ostler_store::{Lease, LeaseRef};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

use crate::telemetry::AttemptTag;

/// Why an attempt is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// A user requested it.
    Cancelled,
    /// The node hands its work back.
    HandBack,
    /// The lease is lost: the attempt must not be reported any more.
    Lost,
}

struct HeldLease {
    lease: LeaseRef,
    stop: Option<StopReason>,
    signals: StopSignals,
    /// Set while the attempt runs.
    entrusted: Option<RunningAttempt>,
}

/// A running attempt and the right to report it: the first to reclaim this reports the outcome.
pub(crate) struct RunningAttempt {
    pub(crate) lease: Lease,
    pub(crate) worker: WorkerId,
    pub(crate) began: Instant,
    /// When its executor must have answered; `None` if beyond what the clock can represent.
    pub(crate) due: Option<Instant>,
    pub(crate) timeout: Duration,
    /// Whether its start is on disk.
    pub(crate) durable: bool,
    pub(crate) suspect: bool,
    /// Kept by a task that several nodes have died of: no other such task runs until this is dropped.
    pub(crate) _alone: Option<OwnedMutexGuard<()>>,
    pub(crate) tag: AttemptTag,
}

/// The signals that ask an attempt to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopSignals {
    /// Stop within the grace period.
    pub(crate) cancel: CancellationToken,
    /// Stop immediately: the attempt must not be reported any more.
    pub(crate) lost: CancellationToken,
}

impl RunningAttempt {
    fn is_late(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

impl HeldLease {
    /// The first reason is kept, except that a lost lease overrides the others.
    fn stop(&mut self, why: StopReason) {
        self.stop = match (self.stop, why) {
            (Some(_), StopReason::Lost) | (None, _) => Some(why),
            (Some(first), StopReason::Cancelled | StopReason::HandBack) => Some(first),
        };
        if why == StopReason::Lost {
            self.signals.lost.cancel();
        }
        self.signals.cancel.cancel();
    }
}

/// The registry of held leases. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct HeldLeases(Arc<Registry>);

#[derive(Default)]
struct Registry {
    holdings: Mutex<HashMap<TaskId, HeldLease>>,
    /// Leases whose report is under way. Lock order: after `holdings`.
    reporting: Mutex<HashSet<LeaseRef>>,
    claims: Mutex<Counted>,
    /// Incremented when leases are asked to stop: those waiting for a worker have no attempt that would notice.
    stops: watch::Sender<u64>,
}

/// Claims by number.
#[derive(Default)]
struct Counted {
    begun: u64,
    open: BTreeSet<u64>,
}

/// How many claims have begun, and the oldest unanswered one.
pub(crate) struct Claims {
    pub(crate) begun: u64,
    pub(crate) oldest_open: Option<u64>,
}

/// A claim under way, until this is dropped.
pub(crate) struct Claiming {
    held: HeldLeases,
    number: u64,
}

impl Drop for Claiming {
    fn drop(&mut self) {
        self.held.counted().open.remove(&self.number);
    }
}

impl HeldLeases {
    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reporting(&self) -> MutexGuard<'_, HashSet<LeaseRef>> {
        self.0.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a claim. The claimed leases must be [taken](Self::take) before this is dropped.
    pub(crate) fn claiming(&self) -> Claiming {
        let mut counted = self.counted();
        let number = counted.begun;
        counted.begun += 1;
        counted.open.insert(number);
        Claiming { held: self.clone(), number }
    }

    pub(crate) fn claims(&self) -> Claims {
        let counted = self.counted();
        Claims { begun: counted.begun, oldest_open: counted.open.first().copied() }
    }

    /// Those of these leases that are neither held nor being reported.
    pub(crate) fn unknown(&self, leases: &[LeaseRef]) -> Vec<LeaseRef> {
        let (held, reporting) = (self.lock(), self.reporting());
        let is_held = |lease: &LeaseRef| held.get(&lease.task).is_some_and(|holding| holding.lease == *lease);
        leases.iter().filter(|lease| !is_held(lease) && !reporting.contains(lease)).copied().collect()
    }

    /// Marks a lease that was not held as being reported.
    pub(crate) fn report(&self, lease: LeaseRef) {
        self.reporting().insert(lease);
    }

    /// The reports of these leases are written, or never will be.
    pub(crate) fn reported(&self, leases: &[LeaseRef]) {
        let mut reporting = self.reporting();
        for lease in leases {
            reporting.remove(lease);
        }
    }

    /// Marks an ended lease as being reported, unless it is lost.
    fn ends(&self, holding: &HeldLease) {
        if holding.stop != Some(StopReason::Lost) {
            self.reporting().insert(holding.lease);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, HeldLease>> {
        self.0.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers leases as held and returns their stop signals.
    pub(crate) fn take(&self, leases: impl Iterator<Item = LeaseRef>) -> Vec<StopSignals> {
        let mut held = self.lock();
        let take = |lease: LeaseRef| {
            let signals = StopSignals::default();
            held.insert(
                lease.task,
                HeldLease { lease, stop: None, signals: signals.clone(), entrusted: None },
            );
            signals
        };
        leases.map(take).collect()
    }

    /// Releases a lease that is to be reported. Returns why it was asked to stop, if it was.
    pub(crate) fn let_go(&self, lease: LeaseRef) -> Option<StopReason> {
        let mut held = self.lock();
        held.get(&lease.task).filter(|holding| holding.lease == lease)?;
        let holding = held.remove(&lease.task)?;
        self.ends(&holding);
        holding.stop
    }

    /// Registers a running attempt. It is returned if the lease is not held any more: the work must not begin.
    pub(crate) fn entrust(&self, run: RunningAttempt) -> Option<RunningAttempt> {
        let lease = run.lease.as_ref();
        let mut held = self.lock();
        let Some(holding) = held.get_mut(&lease.task).filter(|holding| holding.lease == lease) else {
            return Some(run);
        };
        holding.entrusted = Some(run);
        None
    }

    /// Whether an attempt of this task runs. If it has not begun, the task is forgotten, so that the next renewals hand it back, and is
    /// not begun any more.
    pub(crate) fn runs_or_forget(&self, task: TaskId) -> bool {
        let mut held = self.lock();
        if held.get(&task).is_some_and(|holding| holding.entrusted.is_some()) {
            return true;
        }
        if let Some(mut holding) = held.remove(&task) {
            holding.stop(StopReason::Lost);
        }
        false
    }

    /// Takes back an attempt that has ended, to be reported. `None`: it has already been reported.
    pub(crate) fn reclaim(&self, lease: LeaseRef) -> Option<(RunningAttempt, Option<StopReason>)> {
        let mut held = self.lock();
        held.get(&lease.task).filter(|holding| holding.lease == lease)?;
        let mut holding = held.remove(&lease.task)?;
        let entrusted = holding.entrusted.take()?;
        self.ends(&holding);
        Some((entrusted, holding.stop))
    }

    /// The workers whose attempts are overdue.
    pub(crate) fn late(&self, now: Instant) -> Vec<WorkerId> {
        let held = self.lock();
        let runs = held.values().filter_map(|holding| holding.entrusted.as_ref());
        runs.filter(|run| run.is_late(now)).map(|run| run.worker).collect()
    }

    /// Takes back the overdue attempts of these workers, to be reported.
    pub(crate) fn overdue(
        &self,
        now: Instant,
        is_theirs: impl Fn(WorkerId) -> bool,
    ) -> Vec<(RunningAttempt, Option<StopReason>)> {
        let mut held = self.lock();
        let is_late = |run: &RunningAttempt| run.is_late(now) && is_theirs(run.worker);
        let late = held.extract_if(|_, holding| holding.entrusted.as_ref().is_some_and(is_late));
        late.inspect(|(_, holding)| self.ends(holding))
            .filter_map(|(_, holding)| Some((holding.entrusted?, holding.stop)))
            .collect()
    }

    /// All held leases, for a renewal.
    pub(crate) fn leases(&self) -> Vec<LeaseRef> {
        self.lock().values().map(|holding| holding.lease).collect()
    }

    /// Asks these tasks to stop if they are still held under the lease that was renewed: a task may have ended and been
    /// claimed again in the meantime.
    pub(crate) fn stop(&self, tasks: &[TaskId], asked: &[LeaseRef], why: StopReason) {
        if tasks.is_empty() {
            return;
        }
        let asked: HashMap<TaskId, LeaseRef> = asked.iter().map(|lease| (lease.task, *lease)).collect();
        let mut held = self.lock();
        for task in tasks {
            if let Some(holding) = held.get_mut(task).filter(|held| asked.get(task) == Some(&held.lease)) {
                holding.stop(why);
            }
        }
        drop(held);
        self.ring();
    }

    /// Asks all attempts to stop.
    pub(crate) fn stop_all(&self, why: StopReason) {
        self.lock().values_mut().for_each(|holding| holding.stop(why));
        self.ring();
    }

    /// Asks the attempts of these tasks to stop, under whatever lease they are held.
    pub(crate) fn stop_tasks(&self, tasks: &[TaskId], why: StopReason) {
        let mut held = self.lock();
        for task in tasks {
            if let Some(holding) = held.get_mut(task) {
                holding.stop(why);
            }
        }
        drop(held);
        self.ring();
    }

    /// Ends all attempts immediately, without a grace period, to be handed back.
    pub(crate) fn end_all(&self) {
        for holding in self.lock().values_mut() {
            holding.stop(StopReason::HandBack);
            holding.signals.lost.cancel();
        }
        self.ring();
    }

    /// Forgets all leases: they ended with their session.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn ring(&self) {
        self.0.stops.send_modify(|stops| *stops = stops.wrapping_add(1));
    }

    /// Changes whenever leases are asked to stop.
    pub(crate) fn stops(&self) -> watch::Receiver<u64> {
        self.0.stops.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::Id;

    use super::*;

    fn lease(token: u64) -> LeaseRef {
        LeaseRef { task: TaskId(Id::from_bits(1)), token, row: 1 }
    }

    fn take(held: &HeldLeases, token: u64) -> StopSignals {
        held.take(std::iter::once(lease(token))).remove(0)
    }

    #[test]
    fn a_loss_ends_at_once_and_overrules_what_was_asked_before() {
        let held = HeldLeases::default();
        let signals = take(&held, 1);
        held.stop(&[lease(1).task], &held.leases(), StopReason::Cancelled);
        assert!(signals.cancel.is_cancelled() && !signals.lost.is_cancelled(), "a cancel leaves the grace");
        held.stop_all(StopReason::Lost);
        assert!(signals.lost.is_cancelled());
        held.stop_all(StopReason::HandBack);
        assert_eq!(held.let_go(lease(1)), Some(StopReason::Lost));
    }

    #[test]
    fn a_task_that_has_not_begun_when_its_runtime_is_left_is_told_to_stop_and_may_be_handed_back() {
        let held = HeldLeases::default();
        let signals = take(&held, 1);
        assert!(!held.runs_or_forget(lease(1).task));
        assert!(signals.cancel.is_cancelled());
        assert_eq!(held.unknown(&[lease(1)]), [lease(1)]);
        assert_eq!(held.let_go(lease(1)), None, "its worker has nothing to report");
    }

    #[test]
    fn an_answer_about_an_earlier_lease_does_not_stop_a_task_that_came_back() {
        let held = HeldLeases::default();
        take(&held, 1);
        let asked = held.leases();
        held.let_go(lease(1));
        let signals = take(&held, 2);
        held.stop(&[lease(1).task], &asked, StopReason::Lost);
        assert!(!signals.cancel.is_cancelled());
        assert_eq!(held.let_go(lease(2)), None);
    }
}
