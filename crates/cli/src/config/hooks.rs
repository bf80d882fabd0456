//! `on_completed`, `on_failed` and `on_retry` of a pool: hooks for ends of attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_config::{FoundValue, PoolFinding, Section};
use ostler_core::EndKind;
use ostler_process::{CommandPolicy, Input};

use super::{PoolSettings, name};
use crate::hooks::{Hook, HookAct, WebAddress, key};

/// The default timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum timeout: a hook is not for long work.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// The default number of attempts.
const ATTEMPTS: u32 = 5;
/// The range of `attempts`.
const TRIES: RangeInclusive<u32> = 1..=10;
/// The maximum number of hooks of one pool for one kind of outcome.
const MAX_HOOKS: usize = 16;

/// Reads the hooks of a pool.
pub(super) fn read_all(section: &mut Section<'_>) -> Vec<Hook> {
    let all = EndKind::ALL.map(|on| section.find(key(on)).map(|found| read(on, &found)));
    all.into_iter().flatten().flatten().collect()
}

/// The hooks for one kind of outcome: one table, or a list of tables. A table may have one of each act.
fn read(on: EndKind, found: &FoundValue<'_>) -> Vec<Hook> {
    let tables = found.tables(&format!("{{ webhook = \"http://127.0.0.1:8080/{}\" }}", on.name()));
    let hooks: Vec<Hook> = tables.into_iter().flat_map(|section| one_table(on, section)).collect();
    if hooks.len() > MAX_HOOKS {
        found.refuse::<()>(format!("has {} hooks; the maximum is {MAX_HOOKS}", hooks.len()));
    }
    hooks
}

fn one_table(on: EndKind, mut section: Section<'_>) -> Vec<Hook> {
    let timeout = section.find("timeout").and_then(|found| {
        let timeout = found.duration()?;
        if timeout > LONGEST {
            return found.refuse("must be at most 5m; for longer work, enqueue a task instead");
        }
        Some(timeout)
    });
    let attempts = section.find("attempts").and_then(|found| found.count(TRIES)).unwrap_or(ATTEMPTS);
    let timeout = timeout.unwrap_or(TIMEOUT);
    let given = ["command", "webhook", "task"].map(|key| section.has(key)).contains(&true);
    if !given {
        section.fault("command", "is missing, and so are webhook and task; a hook needs one of these");
    }
    let acts = [
        section.find("command").and_then(|found| command(&found)),
        section.find("webhook").and_then(|found| webhook(&found)),
        task(&mut section),
    ];
    section.close(&[]);
    acts.into_iter().flatten().map(|act| Hook { on, act, timeout, attempts }).collect()
}

fn command(found: &FoundValue<'_>) -> Option<HookAct> {
    let argv = found.texts("[\"sh\", \"alert.sh\"]")?;
    let policy = CommandPolicy { input: Input::Payload, ..CommandPolicy::new(argv) };
    let wrong = policy.faults();
    for error in &wrong {
        found.refuse::<()>(format!("is invalid: {error}"));
    }
    wrong.is_empty().then_some(HookAct::Command(Box::new(policy)))
}

fn webhook(found: &FoundValue<'_>) -> Option<HookAct> {
    let address = WebAddress::parse(&found.text()?);
    address.map(HookAct::Webhook).map_err(|why| found.refuse::<()>(why)).ok()
}

fn task(section: &mut Section<'_>) -> Option<HookAct> {
    let mut task = section.section("task");
    let (queue, kind) = (task.find("queue"), task.find("kind"));
    if section.has("task") {
        for (key, missing) in [("queue", queue.is_none()), ("kind", kind.is_none())] {
            if missing {
                task.fault(key, "is missing; a task needs a queue and a kind");
            }
        }
    }
    let named = (queue.and_then(|found| name(&found)), kind.and_then(|found| name(&found)));
    task.close(&[]);
    let (Some(queue), Some(kind)) = named else { return None };
    Some(HookAct::Task { queue, kind })
}

/// Hooks that insert task data into program text.
pub(super) fn findings(pool: &str, hooks: &[Hook]) -> Vec<PoolFinding> {
    let injected = |hook: &Hook| match &hook.act {
        HookAct::Command(policy) => policy.injection(&format!("pool.{pool}.{}.command", key(hook.on))),
        HookAct::Webhook(_) | HookAct::Task { .. } => None,
    };
    hooks.iter().filter_map(injected).collect()
}

/// A pool whose ends return to it through the tasks of hooks, which might never stop.
pub(super) fn circle(pools: &[PoolSettings]) -> Option<&str> {
    let to = |pool: &PoolSettings| -> Vec<String> {
        let queue = |hook: &Hook| match &hook.act {
            HookAct::Task { queue, .. } => Some(queue.clone()),
            HookAct::Command(_) | HookAct::Webhook(_) => None,
        };
        pool.hooks.iter().filter_map(queue).collect()
    };
    let next: BTreeMap<&str, Vec<String>> = pools.iter().map(|pool| (pool.name.as_str(), to(pool))).collect();
    next.keys().copied().find(|pool| {
        let (mut seen, mut open) = (BTreeSet::new(), next[pool].clone());
        // Each queue is visited once.
        while let Some(queue) = open.pop() {
            if queue == *pool {
                return true;
            }
            if seen.insert(queue.clone()) {
                open.extend(next.get(queue.as_str()).cloned().unwrap_or_default());
            }
        }
        false
    })
}
