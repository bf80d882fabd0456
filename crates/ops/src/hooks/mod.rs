//! Hooks for ends of attempts (`on_completed`, `on_failed`, `on_retry`): a webhook, a task in another queue, or what the caller brings.
//!
//! Hooks are driven by the outbox of the store: they run after the commit, at least once even if the node is killed in between,
//! and concurrently with the pool, a few at a time. A failed hook is retried with backoff; after the last attempt, a warning is
//! recorded on the task. `webhook.rs` and `task.rs` make one attempt each, with a notice from `notice.rs`.

mod notice;
mod task;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{Backoff, Jitter, RetryPolicy};
use ostler_store::Store;
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::TaskDetail;
use tokio::task::JoinSet;

use crate::tasks;
pub use notice::HookNotice;
pub use task::TaskHook;
pub use webhook::{WebAddress, Webhook};

/// The backoff between attempts: the first delay is a second, with jitter, so that a thousand hooks do not retry together.
const PAUSES: RetryPolicy = RetryPolicy {
    attempts: 1,
    backoff: Backoff::Exponential,
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
    jitter: Jitter::Half,
};
/// Extra time for an attempt to stop after its timeout.
const TO_STOP: Duration = Duration::from_secs(10);

/// One attempt to notify.
#[async_trait]
pub trait HookAttempt: Send + Sync {
    async fn run(&self, notice: &HookNotice, timeout: Duration) -> Result<(), HookError>;
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookError {
    /// A retry may succeed.
    MayPass(String),
    /// A retry cannot succeed.
    Never(String),
}

/// A hook that is ready to run.
pub struct HookRunner {
    /// The name in messages.
    pub name: String,
    pub way: Box<dyn HookAttempt>,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// The maximum number of attempts.
    pub attempts: u32,
}

/// The hooks of one pool for one kind of outcome.
pub struct HookSet(Vec<Arc<HookRunner>>);

impl HookSet {
    /// `None` if there are none.
    #[must_use]
    pub fn new(hooks: Vec<HookRunner>) -> Option<Self> {
        (!hooks.is_empty()).then(|| Self(hooks.into_iter().map(Arc::new).collect()))
    }

    /// The maximum duration of all attempts together.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.0.iter().map(|hook| hook.patience()).max().unwrap_or_default()
    }

    /// Runs all hooks for the end of an attempt, at the same time.
    ///
    /// # Errors
    /// A sentence for each hook that did not succeed.
    pub async fn deliver(
        &self,
        store: &dyn Store,
        entry: &OutboxEntry,
        found: &TaskDetail,
    ) -> Result<(), Vec<String>> {
        // Hooks run though the files cannot be read now.
        let remains = tasks::remains(store, found).await.unwrap_or_default();
        let notice = Arc::new(HookNotice::new(entry, found, remains));
        let mut trying = JoinSet::new();
        for hook in &self.0 {
            let (hook, notice) = (Arc::clone(hook), Arc::clone(&notice));
            trying.spawn(async move { hook.carry_out(&notice).await });
        }
        let mut missed = Vec::new();
        while let Some(tried) = trying.join_next().await {
            missed.extend(tried.unwrap_or_else(|_| Err("a hook panicked".to_owned())).err());
        }
        missed.sort();
        if missed.is_empty() { Ok(()) } else { Err(missed) }
    }
}

impl HookRunner {
    /// The maximum duration of all attempts together.
    fn patience(&self) -> Duration {
        (self.timeout + TO_STOP + PAUSES.max) * self.attempts
    }

    /// Runs the hook until it succeeds or no attempt is left.
    async fn carry_out(&self, notice: &HookNotice) -> Result<(), String> {
        let mut tries = 0;
        loop {
            tries += 1;
            let attempt = self.way.run(notice, self.timeout);
            let tried = tokio::time::timeout(self.timeout + TO_STOP, attempt).await;
            let missed = tried.unwrap_or_else(|_| Err(HookError::MayPass("it does not finish".to_owned())));
            match missed {
                Ok(()) => return Ok(()),
                Err(HookError::MayPass(_)) if tries < self.attempts => {
                    tokio::time::sleep(PAUSES.delay(tries, notice.sequence)).await;
                }
                Err(HookError::MayPass(why) | HookError::Never(why)) => {
                    let times = if tries == 1 { "1 attempt".to_owned() } else { format!("{tries} attempts") };
                    return Err(format!("{} failed after {times}: {why}", self.name));
                }
            }
        }
    }
}
