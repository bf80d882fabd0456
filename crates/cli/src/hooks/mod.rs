//! The hooks of a node for ends of attempts (`on_completed`, `on_failed`, `on_retry`): as configured, and as listeners of the node.
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

use crate::exit::warn;
use command::CommandHook;
pub(crate) use ostler_ops::hooks::WebAddress;

/// A hook as configured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook {
    /// The outcome that it is for.
    pub(crate) on: EndKind,
    pub(crate) act: HookAct,
    /// The timeout of one attempt.
    pub(crate) timeout: Duration,
    /// The maximum number of attempts.
    pub(crate) attempts: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HookAct {
    /// Runs this command, with the notice on standard input.
    Command(Box<CommandPolicy>),
    /// Posts the notice to this address.
    Webhook(WebAddress),
    /// Enqueues a task with the notice as its payload.
    Task { queue: String, kind: String },
}

/// What hooks need to run.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) supervisor: Supervisor,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bounds: Bounds,
}

/// The hooks of a pool for one kind of outcome. Each kind is a subscriber of its own, so that slow hooks of one do not delay another.
pub(crate) struct Hooks {
    on: EndKind,
    set: HookSet,
    store: Arc<dyn Store>,
}

/// The key of the config.
pub(crate) const fn key(on: EndKind) -> &'static str {
    match on {
        EndKind::Completed => "on_completed",
        EndKind::Failed => "on_failed",
        EndKind::Retry => "on_retry",
    }
}

impl Hooks {
    /// Prepares the hooks of a pool.
    ///
    /// # Errors
    /// If a command cannot be run.
    pub(crate) fn arm(hooks: &[Hook], tools: &Tools) -> Result<Vec<Self>, PolicyError> {
        let mut all = Vec::new();
        for on in EndKind::ALL {
            let wanted = hooks.iter().filter(|hook| hook.on == on);
            let armed = wanted.map(|hook| runner(hook, tools)).collect::<Result<_, _>>()?;
            let store = Arc::clone(&tools.store);
            all.extend(HookSet::new(armed).map(|set| Self { on, set, store }));
        }
        Ok(all)
    }
}

fn runner(hook: &Hook, tools: &Tools) -> Result<HookRunner, PolicyError> {
    let (timeout, attempts, key) = (hook.timeout, hook.attempts, key(hook.on));
    let (name, way): (String, Box<dyn HookAttempt>) = match &hook.act {
        HookAct::Command(policy) => {
            let program = policy.argv.first().cloned().unwrap_or_default();
            let command = CommandHook::new(tools.supervisor.clone(), policy.as_ref().clone())?;
            (format!("{key}.command \"{program}\""), Box::new(command))
        }
        HookAct::Webhook(address) => {
            let webhook = Webhook::new(address.clone(), timeout);
            (format!("{key}.webhook {address}"), Box::new(webhook))
        }
        HookAct::Task { queue, kind } => {
            let task = TaskHook::new(Arc::clone(&tools.store), tools.bounds, queue.clone(), kind.clone());
            (format!("{key}.task in \"{queue}\""), Box::new(task))
        }
    };
    Ok(HookRunner { name, way, timeout, attempts })
}

#[async_trait]
impl EndListener for Hooks {
    fn subscriber(&self) -> &str {
        match self.on {
            EndKind::Completed => "hooks on_completed",
            // Entries of this name are in stores since before there were others.
            EndKind::Failed => "hooks",
            EndKind::Retry => "hooks on_retry",
        }
    }

    fn wants(&self) -> OutboxFilter {
        OutboxFilter::NONE.with(self.on)
    }

    fn patience(&self) -> Duration {
        self.set.patience()
    }

    async fn ended(&self, entry: OutboxEntry, found: TaskDetail) -> Result<(), String> {
        self.set.deliver(self.store.as_ref(), &entry, &found).await.map_err(|missed| {
            let what = if self.on == EndKind::Failed { "dead letter" } else { "task" };
            missed.iter().for_each(|sentence| warn(&format!("{what} {}: {sentence}", entry.task)));
            missed.join("; ")
        })
    }
}
