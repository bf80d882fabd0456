//! Hooks for tasks that failed for good (`on_failed`): a command, a webhook, a task in another queue.
//!
//! Hooks are driven by the outbox of the store: they run after the commit, at least once even if the node is killed in between,
//! and concurrently with the pool, a few at a time. A failed hook is retried with backoff; after the last attempt, a warning is
//! recorded on the task. `command.rs`, `webhook.rs` and `task.rs` make one attempt each, with a notice from `notice.rs`.

mod command;
mod notice;
mod task;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{EndKind, RetryPolicy};
use ostler_process::supervisor::Supervisor;
use ostler_process::{CommandPolicy, PolicyError};
use ostler_runtime::EndListener;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::TaskDetail;
use ostler_store::{Bounds, Store};
use tokio::task::JoinSet;

use crate::exit::say;
use command::CommandHook;
use notice::HookNotice;
use task::TaskHook;
pub(crate) use webhook::WebAddress;
use webhook::Webhook;

/// The backoff between attempts: the first delay is a second, with jitter, so that a thousand hooks do not retry together.
const PAUSES: RetryPolicy = RetryPolicy {
    attempts: 1,
    backoff: ostler_core::Backoff::Exponential,
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
    jitter: ostler_core::Jitter::Half,
};
/// Extra time for an attempt to stop after its timeout.
const TO_STOP: Duration = Duration::from_secs(10);

/// A hook as configured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook {
    pub(crate) act: HookAct,
    /// The timeout of one attempt.
    pub(crate) timeout: Duration,
    /// The maximum number of attempts.
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookAct {
    /// Runs this command, with the dead letter on standard input.
    Command(Box<CommandPolicy>),
    /// Posts the dead letter to this address.
    Webhook(WebAddress),
    /// Enqueues a task with the dead letter as its payload.
    Task { queue: String, kind: String },
}

/// What hooks need to run.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) supervisor: Supervisor,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bounds: Bounds,
}

/// Why an attempt failed.
enum HookError {
    /// A retry may succeed.
    MayPass(String),
    /// A retry cannot succeed.
    Never(String),
}

pub(crate) struct Hooks(Vec<Arc<HookRunner>>);

/// A hook that is ready to run.
struct HookRunner {
    /// The name in messages.
    name: String,
    way: HookKind,
    timeout: Duration,
    attempts: u32,
}

enum HookKind {
    Command(Box<CommandHook>),
    Webhook(Webhook),
    Task(TaskHook),
}

impl Hooks {
    /// Prepares hooks; `None` if there are none.
    ///
    /// # Errors
    /// If a command cannot be run.
    pub(crate) fn arm(hooks: &[Hook], tools: &Tools) -> Result<Option<Self>, PolicyError> {
        let armed: Vec<Arc<HookRunner>> =
            hooks.iter().map(|hook| HookRunner::new(hook, tools).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok((!armed.is_empty()).then_some(Self(armed)))
    }
}

#[async_trait]
impl EndListener for Hooks {
    fn subscriber(&self) -> &str {
        "hooks"
    }

    fn wants(&self) -> OutboxFilter {
        OutboxFilter::NONE.with(EndKind::Failed)
    }

    fn patience(&self) -> Duration {
        self.0.iter().map(|hook| hook.patience()).max().unwrap_or_default()
    }

    async fn ended(&self, telling: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        let id = telling.task;
        let notice = Arc::new(HookNotice::new(&telling, &found));
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
        missed.iter().for_each(|sentence| say(&format!("dead letter {id}: {sentence}")));
        if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) }
    }
}

impl HookRunner {
    fn new(hook: &Hook, tools: &Tools) -> Result<Self, PolicyError> {
        let (timeout, attempts) = (hook.timeout, hook.attempts);
        let (name, way) = match &hook.act {
            HookAct::Command(policy) => {
                let program = policy.argv.first().cloned().unwrap_or_default();
                let command = CommandHook::new(tools.supervisor.clone(), policy.as_ref().clone())?;
                (format!("on_failed.command \"{program}\""), HookKind::Command(Box::new(command)))
            }
            HookAct::Webhook(address) => {
                let webhook = Webhook::new(address.clone(), timeout);
                (format!("on_failed.webhook {address}"), HookKind::Webhook(webhook))
            }
            HookAct::Task { queue, kind } => {
                let task = TaskHook::new(Arc::clone(&tools.store), tools.bounds, queue.clone(), kind.clone());
                (format!("on_failed.task in \"{queue}\""), HookKind::Task(task))
            }
        };
        Ok(Self { name, way, timeout, attempts })
    }

    /// The maximum duration of all attempts together.
    fn patience(&self) -> Duration {
        (self.timeout + TO_STOP + PAUSES.max) * self.attempts
    }

    /// Runs the hook until it succeeds or no attempt is left.
    async fn carry_out(&self, notice: &HookNotice) -> Result<(), String> {
        let mut tries = 0;
        loop {
            tries += 1;
            let tried = tokio::time::timeout(self.timeout + TO_STOP, self.try_once(notice)).await;
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

    async fn try_once(&self, notice: &HookNotice) -> Result<(), HookError> {
        match &self.way {
            HookKind::Command(command) => command.run(notice, self.timeout).await,
            HookKind::Webhook(webhook) => webhook.post(notice).await,
            HookKind::Task(task) => task.enqueue(notice).await,
        }
    }
}
