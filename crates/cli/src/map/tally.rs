//! Counts how items end, before anybody else hears of it: once enough have ended, not one more begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ostler_core::{ErrorClass, Outcome};
use ostler_exec::{Control, Ended, Executor, Served, Work};
use ostler_process::Command;
use ostler_store::views::Counts;
use tokio::sync::watch;

use super::halt::{Halt, How};

/// How many have ended, and whether that is enough.
pub(crate) struct Tally {
    halt: Option<Halt>,
    items: u64,
    attempts: u32,
    completed: AtomicU64,
    failed: AtomicU64,
    reached: watch::Sender<Option<How>>,
}

impl Tally {
    /// Nothing has ended yet but what was completed `before`.
    pub(crate) fn new(halt: Option<Halt>, items: u64, attempts: u32, before: u64) -> Arc<Self> {
        let (completed, failed) = (AtomicU64::new(before), AtomicU64::new(0));
        Arc::new(Self { halt, items, attempts, completed, failed, reached: watch::Sender::new(None) })
    }

    /// Waits until enough have ended.
    pub(crate) async fn enough(&self) -> How {
        let mut reached = self.reached.subscribe();
        match reached.wait_for(Option::is_some).await.map(|how| *how) {
            Ok(Some(how)) => how,
            // The sender lives as long as this does.
            Ok(None) | Err(_) => std::future::pending().await,
        }
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

/// Runs commands until enough have ended.
pub(crate) struct Counted {
    pub(crate) command: Command,
    pub(crate) tally: Arc<Tally>,
}

#[async_trait]
impl Executor for Counted {
    fn served(&self) -> Served {
        self.command.served()
    }

    async fn run(&self, work: Work, control: Control) -> Ended {
        if self.tally.reached.borrow().is_some() {
            // The node is about to be drained, and then it goes back.
            control.cancel.cancelled().await;
            return Ended::handed_back();
        }
        let attempt = work.attempt;
        let ended = self.command.run(work, control).await;
        self.tally.count(&ended.outcome, attempt);
        ended
    }
}
