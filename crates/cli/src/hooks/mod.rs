//! What is done when a task of a pool has failed for good: a command, a webhook, a task in another queue.
//!
//! Hooks hang on the tellings of the store: they run after the commit, at least once, also when the node is killed in between,
//! and beside the pool, a few at a time. One that fails is tried again with pauses; when no try is left, a warning on the task
//! says so. `command.rs`, `webhook.rs` and `task.rs` do one try each. `notice.rs` is what they are given.

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

/// How the pauses between tries grow: the first is a second, spread, so that a thousand do not come back together.
const PAUSES: RetryPolicy = RetryPolicy {
    attempts: 1,
    backoff: ostler_core::Backoff::Exponential,
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
    jitter: ostler_core::Jitter::Half,
};
/// What a try may take beyond its timeout: to end what does not stop by itself.
const TO_STOP: Duration = Duration::from_secs(10);

/// A hook, as the config says it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook {
    /// What is done.
    pub(crate) act: HookAct,
    /// How long one try may take.
    pub(crate) timeout: Duration,
    /// How often it is tried.
    pub(crate) attempts: u32,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookAct {
    /// Runs this, with the dead letter on its standard input.
    Command(Box<CommandPolicy>),
    /// Posts the dead letter there.
    Webhook(WebAddress),
    /// Enqueues a task with the dead letter as its payload.
    Task {
        /// Where.
        queue: String,
        /// Of which kind.
        kind: String,
    },
}

/// What hooks work with.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) supervisor: Supervisor,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bounds: Bounds,
}

/// Why a try failed.
enum HookError {
    /// Another try may do.
    MayPass(String),
    /// None will.
    Never(String),
}

/// The hooks of one pool.
pub(crate) struct Hooks(Vec<Arc<HookRunner>>);

/// A hook that can be tried.
struct HookRunner {
    /// What people know it by.
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
    /// Hooks that can be tried; `None` when there are none.
    ///
    /// # Errors
    /// When a command cannot be run.
    pub(crate) fn arm(hooks: &[Hook], tools: &Tools) -> Result<Option<Self>, PolicyError> {
        let armed: Vec<Arc<HookRunner>> =
            hooks.iter().map(|hook| HookRunner::new(hook, tools).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok((!armed.is_empty()).then_some(Self(armed)))
    }
}

#[async_trait]
impl EndListener for Hooks {
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
        missed.iter().for_each(|sentence| say(&format!("the dead letter {id}: {sentence}")));
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

    /// How long all tries may take together.
    fn patience(&self) -> Duration {
        (self.timeout + TO_STOP + PAUSES.max) * self.attempts
    }

    /// Tries until it works, or no try is left.
    async fn carry_out(&self, notice: &HookNotice) -> Result<(), String> {
        let mut tries = 0;
        loop {
            tries += 1;
            let tried = tokio::time::timeout(self.timeout + TO_STOP, self.try_once(notice)).await;
            let missed = tried.unwrap_or_else(|_| Err(HookError::MayPass("it does not end".to_owned())));
            match missed {
                Ok(()) => return Ok(()),
                Err(HookError::MayPass(_)) if tries < self.attempts => {
                    tokio::time::sleep(PAUSES.delay(tries, notice.sequence)).await;
                }
                Err(HookError::MayPass(why) | HookError::Never(why)) => {
                    let times = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
                    return Err(format!("{} was tried {times} and failed: {why}", self.name));
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
