//! Counts finished items before their outcome is reported: once a halt condition is met, no further item starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, Outcome, Overrides, WorkerId};
use ostler_exec::{AttemptResult, Control, Executor, Served, Vitals, Work, WorkerOpening};
use ostler_store::views::Counts;
use tokio::sync::watch;

use super::halt::{Halt, HaltMode};

/// The counts, and whether the halt condition is met.
pub(crate) struct Tally {
    halt: Option<Halt>,
    items: u64,
    attempts: u32,
    completed: AtomicU64,
    failed: AtomicU64,
    reached: watch::Sender<Option<HaltMode>>,
    /// True once the node claims no more tasks: tasks returned from then on stay in the queue.
    draining: watch::Sender<bool>,
}

impl Tally {
    /// A tally with only the items completed `before`.
    pub(crate) fn new(halt: Option<Halt>, items: u64, attempts: u32, before: u64) -> Arc<Self> {
        let (completed, failed) = (AtomicU64::new(before), AtomicU64::new(0));
        let (reached, draining) = (watch::Sender::new(None), watch::Sender::new(false));
        Arc::new(Self { halt, items, attempts, completed, failed, reached, draining })
    }

    /// Waits until the halt condition is met.
    pub(crate) async fn enough(&self) -> HaltMode {
        let mut reached = self.reached.subscribe();
        match reached.wait_for(Option::is_some).await.map(|how| *how) {
            Ok(Some(how)) => how,
            // The sender lives as long as `self`.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// The node claims no more tasks: items held at the halt return to the queue.
    pub(crate) fn drains(&self) {
        self.draining.send_replace(true);
    }

    /// Whether one more item may start. If the halt condition is met, this returns only when the item can be returned to the queue:
    /// before the node drains, it would claim the item again at once. A node that lets the others finish (`soon`) cancels nothing, so
    /// its drain is what counts.
    async fn admit(&self, cancelled: impl Future<Output = ()>) -> ItemAdmission {
        if self.reached.borrow().is_none() {
            return ItemAdmission::Begin;
        }
        let mut draining = self.draining.subscribe();
        tokio::select! {
            () = cancelled => {}
            // The sender lives as long as `self`.
            _ = draining.wait_for(|draining| *draining) => {}
        }
        ItemAdmission::HandBack
    }

    fn count(&self, outcome: &Outcome, attempt: u32) {
        match outcome {
            Outcome::Success => self.completed.fetch_add(1, Ordering::Relaxed),
            Outcome::Failed(failure)
                if failure.class == ErrorClass::Permanent || attempt >= self.attempts =>
            {
                self.failed.fetch_add(1, Ordering::Relaxed)
            }
            Outcome::Failed(_) | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled => return,
        };
        let counts = Counts {
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            ..Counts::default()
        };
        if let Some(how) = self.halt.and_then(|halt| halt.reached(&counts, self.items)) {
            self.reached.send_if_modified(|reached| reached.replace(how).is_none());
        }
    }
}

/// Whether an item may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemAdmission {
    Begin,
    HandBack,
}

/// Runs items until the halt condition is met.
pub(crate) struct CountedItems {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) tally: Arc<Tally>,
}

#[async_trait]
impl Executor for CountedItems {
    fn served(&self) -> Served {
        self.executor.served()
    }

    fn capacity(&self) -> Option<usize> {
        self.executor.capacity()
    }

    fn per_worker(&self) -> usize {
        self.executor.per_worker()
    }

    fn slots(&self, worker: WorkerId) -> usize {
        self.executor.slots(worker)
    }

    fn kind_options(&self) -> BTreeMap<String, Overrides> {
        self.executor.kind_options()
    }

    async fn open(&self, worker: WorkerId) -> WorkerOpening {
        self.executor.open(worker).await
    }

    async fn close(&self, worker: WorkerId) {
        self.executor.close(worker).await;
    }

    async fn ended(&self, worker: WorkerId) -> Failure {
        self.executor.ended(worker).await
    }

    fn abandon(&self, worker: WorkerId) {
        self.executor.abandon(worker);
    }

    fn vitals(&self, worker: WorkerId) -> Vitals {
        self.executor.vitals(worker)
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        match self.tally.admit(control.cancel.cancelled()).await {
            ItemAdmission::Begin => {}
            ItemAdmission::HandBack => return AttemptResult::handed_back(),
        }
        let attempt = work.attempt;
        let ended = self.executor.run(work, control).await;
        self.tally.count(&ended.outcome, attempt);
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn is_pending(future: impl Future) -> bool {
        let mut future = pin!(future);
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn an_item_that_comes_after_the_halt_goes_back_when_the_node_drains_though_no_caller_cancels_it() {
        let tally = Tally::new(Some(Halt::parse("soon,success=2").expect("a condition")), 60, 1, 0);
        for _ in 0..2 {
            assert_eq!(tally.admit(pending()).await, ItemAdmission::Begin);
            tally.count(&Outcome::Success, 1);
        }
        assert_eq!(tally.enough().await, HaltMode::Soon);
        assert!(is_pending(tally.admit(pending())).await, "it would be claimed again");
        tally.drains();
        assert_eq!(tally.admit(pending()).await, ItemAdmission::HandBack);
    }

    #[tokio::test]
    async fn an_item_that_comes_after_the_halt_goes_back_when_it_is_cancelled() {
        let tally = Tally::new(Some(Halt::parse("now,success=1").expect("a condition")), 60, 1, 0);
        tally.count(&Outcome::Success, 1);
        assert!(is_pending(tally.admit(pending())).await);
        assert_eq!(tally.admit(ready(())).await, ItemAdmission::HandBack);
    }
}
