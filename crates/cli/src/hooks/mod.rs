//! The hooks of a node for tasks that failed for good (`on_failed`): as configured, and as a listener of the node.
//!
//! `ostler-ops` runs them. `command.rs` is the one that needs the supervisor of the node.

mod command;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::EndKind;
use ostler_ops::hooks::{HookAttempt, HookRunner, HookSet, TaskHook, Webhook};
use ostler_process::supervisor::Supervisor;
use ostler_process::{CommandPolicy, PolicyError};
use ostler_runtime::EndListener;
use ostler_store::outbox::{OutboxEntry, OutboxFilter};
use ostler_store::views::TaskDetail;
use ostler_store::{Bounds, Store};

use crate::exit::say;
use command::CommandHook;
pub(crate) use ostler_ops::hooks::WebAddress;

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

pub(crate) struct Hooks(HookSet);

impl Hooks {
    /// Prepares hooks; `None` if there are none.
    ///
    /// # Errors
    /// If a command cannot be run.
    pub(crate) fn arm(hooks: &[Hook], tools: &Tools) -> Result<Option<Self>, PolicyError> {
        let armed = hooks.iter().map(|hook| runner(hook, tools)).collect::<Result<_, _>>()?;
        Ok(HookSet::new(armed).map(Self))
    }
}

fn runner(hook: &Hook, tools: &Tools) -> Result<HookRunner, PolicyError> {
    let (timeout, attempts) = (hook.timeout, hook.attempts);
    let (name, way): (String, Box<dyn HookAttempt>) = match &hook.act {
        HookAct::Command(policy) => {
            let program = policy.argv.first().cloned().unwrap_or_default();
            let command = CommandHook::new(tools.supervisor.clone(), policy.as_ref().clone())?;
            (format!("on_failed.command \"{program}\""), Box::new(command))
        }
        HookAct::Webhook(address) => {
            let webhook = Webhook::new(address.clone(), timeout);
            (format!("on_failed.webhook {address}"), Box::new(webhook))
        }
        HookAct::Task { queue, kind } => {
            let task = TaskHook::new(Arc::clone(&tools.store), tools.bounds, queue.clone(), kind.clone());
            (format!("on_failed.task in \"{queue}\""), Box::new(task))
        }
    };
    Ok(HookRunner { name, way, timeout, attempts })
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
        self.0.patience()
    }

    async fn ended(&self, entry: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        self.0.deliver(&entry, &found).await.map_err(|missed| {
            missed.iter().for_each(|sentence| say(&format!("dead letter {}: {sentence}", entry.task)));
            missed.join("; ")
        })
    }
}
