//! Bounds (limits) of the contract, and the validation of a caller's input against them.

use std::time::Duration;

use ostler_core::{
    EventBody, Failure, KeyHold, MAX_NESTING, OnConflict, Outcome, Overrides, Worker, cut, is_too_deep,
};

use crate::budgets::check_budget;
use crate::calls::{Claim, Kinds, NewSession, NewStep, NewTask, QueueChange, Report};
use crate::error::Error;
use crate::gates::{check_breaker, check_cost, check_rates};
use crate::jobs::{MAX_SPEC_BYTES, NewJob};
use crate::node_commands::{NodeAnswer, NodeCommand, RecycleAnswer, Reply};
use crate::outbox::{Ack, MAX_SUBSCRIBERS, Subscription};
use crate::schedules::{Firing, Schedule};
use crate::unique::Unique;
use crate::views::QueueSettings;

/// Tasks, leases or ids in one call.
pub const MAX_BATCH: usize = 10_000;
/// Tasks in one claim.
pub const MAX_CLAIM: usize = 1_000;
/// Rows that one call of `expire`, `make_ready` or `prune` processes.
pub const MAX_MAINTENANCE_BATCH: usize = 10_000;
/// Records of workers that are gone.
pub const MAX_GONE_WORKERS: usize = 1_000;
/// Ids that a search for the end of an id looks at, the highest first.
pub const MAX_ID_SCAN: usize = 200_000;
/// Tasks on one page of a list, and events or outbox entries in one read.
pub const MAX_PAGE: usize = 1_000;
/// Bytes in the name of a queue, a kind, a pool or a step.
pub const MAX_NAME_BYTES: usize = 128;
/// Bytes that a node adds to the name of its workers.
const NUMBER_BYTES: usize = 16;
/// Bytes in a unique key or a limit key.
pub const MAX_KEY_BYTES: usize = 512;
/// Bytes of a failure's message; longer ones are truncated and marked.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024;
/// Bytes of a failure's details; longer ones are truncated and marked.
pub const MAX_DETAILS_BYTES: usize = 64 * 1024;
/// Bytes of a node's settings.
pub const MAX_SETTINGS_BYTES: usize = 256 * 1024;
/// Kinds named in one claim, and kinds of a queue with a policy of their own.
pub const MAX_KINDS: usize = 1_000;
/// Events in one call.
pub const MAX_EVENTS: usize = 1_000;
/// Bytes of the text of one event.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// Bytes of the texts of all events of one call, and of one read, unless a single one is longer.
pub const MAX_READ_BYTES: usize = 4 << 20;
/// Steps of one task.
pub const MAX_STEPS: usize = 1_000;
/// Worker records of one node.
pub const MAX_WORKERS: usize = 10_000;
/// Node commands kept per session; above it the oldest is dropped.
pub const MAX_NODE_COMMANDS: usize = 64;
/// Leases that a renewal reports because the node did not name them.
pub const MAX_UNNAMED: usize = 100;
/// Dependencies of one task.
pub const MAX_AFTER: usize = 1_000;
/// Dependencies of all tasks of one call together.
pub const MAX_AFTER_IN_CALL: usize = 100_000;
/// Dependents that a verb processes when it ends a task; `make_ready` processes the rest.
pub const MAX_CASCADE: usize = 1_000;
/// Schedules in a store.
pub const MAX_SCHEDULES: usize = 1_000;
/// Bytes of the payload of a schedule's task: all schedules are listed at once.
pub const MAX_TEMPLATE_BYTES: usize = 64 * 1024;
/// Runs per lane whose durations are kept.
pub const RECENT_RUNS: usize = 100;

/// The bounds that an operator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of a payload.
    pub payload_bytes: usize,
    /// Bytes of an output.
    pub output_bytes: usize,
    /// Bytes of a step's value.
    pub step_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { payload_bytes: 1 << 20, output_bytes: 16 << 20, step_bytes: 1 << 20 }
    }
}

impl Bounds {
    /// Rejects a batch with an invalid task.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the field and the valid range.
    pub fn check_tasks(&self, tasks: &[NewTask]) -> Result<(), Error> {
        check_len("tasks", tasks.len(), MAX_BATCH)?;
        let after = tasks.iter().map(|task| task.after.len()).sum();
        check_len("tasks to wait for", after, MAX_AFTER_IN_CALL)?;
        for task in tasks {
            check_len("tasks to wait for by one", task.after.len(), MAX_AFTER)?;
            if task.after.contains(&task.id) {
                return Err(Error::invalid(format!("the task {} cannot wait for itself", task.id)));
            }
            check_replacement(task.unique.as_ref(), task.after.len())?;
            check_name("queue", &task.queue)?;
            check_name("kind", &task.kind)?;
            self.check_payload(Some(&task.payload))?;
            let unique_key = task.unique.as_ref().map(|unique| &unique.key);
            for (field, key) in [("unique key", unique_key), ("limit key", task.limit_key.as_ref())] {
                if let Some(key) = key {
                    key_text(field, key)?;
                }
            }
            if task.unique.as_ref().is_some_and(|unique| unique.hold == Some(KeyHold::For(Duration::ZERO))) {
                return Err(Error::invalid("the time of a unique key must be longer than zero"));
            }
            if let Some(folder) = &task.folder {
                check_text("folder", folder, MAX_MESSAGE_BYTES)?;
            }
            check_overrides(&task.overrides)?;
            task.cost.map_or(Ok(()), check_cost)?;
        }
        Ok(())
    }

    /// Rejects a payload that is too large or nested too deeply.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_payload(&self, payload: Option<&str>) -> Result<(), Error> {
        payload.map_or(Ok(()), |payload| json("payload", payload, self.payload_bytes))
    }

    /// Rejects a batch with an invalid report.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_reports(&self, reports: &[Report]) -> Result<(), Error> {
        check_len("reports", reports.len(), MAX_BATCH)?;
        for report in reports {
            if let Some(output) = &report.output {
                self.check_output(output)?;
            }
        }
        Ok(())
    }

    /// Rejects an output that is too large or nested too deeply. Callers check before they report: an attempt whose report is rejected
    /// never finishes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_output(&self, output: &str) -> Result<(), Error> {
        json("output", output, self.output_bytes)
    }

    /// Rejects an invalid step.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_step(&self, step: &NewStep) -> Result<(), Error> {
        check_name("step", &step.name)?;
        json("step value", &step.value, self.step_bytes)
    }

    /// Rejects invalid events.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_events(&self, events: &[EventBody]) -> Result<(), Error> {
        check_len("events", events.len(), MAX_EVENTS)?;
        for event in events {
            event.text().map_or(Ok(()), |long| check_text("event", long, MAX_EVENT_BYTES))?;
            event.labels().try_for_each(|label| check_text("name in an event", label, MAX_MESSAGE_BYTES))?;
        }
        let bytes = events.iter().filter_map(|event| event.text()).map(str::len);
        if events.len() > 1 && bytes.sum::<usize>() > MAX_EVENT_BYTES {
            return Err(Error::invalid(format!(
                "the events of one call have at most {MAX_EVENT_BYTES} bytes of text"
            )));
        }
        Ok(())
    }

    /// Rejects a batch with an invalid outbox acknowledgement.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_deliveries(&self, deliveries: &[Ack]) -> Result<(), Error> {
        check_len("deliveries", deliveries.len(), MAX_BATCH)?;
        let warnings = deliveries.iter().filter_map(|delivery| delivery.warning.as_deref());
        warnings.into_iter().try_for_each(|warning| check_text("warning", warning, MAX_MESSAGE_BYTES))
    }

    /// Rejects an invalid firing of a schedule.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_firing(&self, firing: &Firing) -> Result<(), Error> {
        if firing.next.is_some_and(|next| next <= firing.expected) {
            return Err(Error::invalid("next must be after the moment that is fired"));
        }
        let Some(task) = &firing.task else { return Ok(()) };
        if task.unique.is_some() || !task.after.is_empty() {
            return Err(Error::invalid(
                "the run of a schedule has no unique key and waits for no task: its schedule sees to that",
            ));
        }
        self.check_tasks(std::slice::from_ref(task))
    }

    /// Rejects an invalid queue name or an invalid change of its settings.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_changes(&self, queue: &str, changes: &[QueueChange]) -> Result<(), Error> {
        check_name("queue", queue)?;
        check_len("changes", changes.len(), MAX_BATCH)?;
        for change in changes {
            match change {
                QueueChange::Pause(reason) => check_text("reason", reason, MAX_MESSAGE_BYTES)?,
                QueueChange::Limit(Some(0)) => {
                    return Err(Error::invalid(
                        "queue limit must be at least 1; to take nothing in, pause the queue",
                    ));
                }
                QueueChange::Concurrency(Some(0)) | QueueChange::KeyConcurrency(Some(0)) => {
                    return Err(Error::invalid(
                        "concurrency must be at least 1; to run nothing, pause the queue",
                    ));
                }
                QueueChange::Overrides(overrides) => check_overrides(overrides)?,
                QueueChange::KindOverrides(kind, overrides) => {
                    check_name("kind", kind)?;
                    check_overrides(overrides)?;
                }
                QueueChange::Subscribe(Subscription { name, .. })
                | QueueChange::AlsoSubscribe(Subscription { name, .. })
                | QueueChange::Unsubscribe(name) => check_name("subscriber", name)?,
                QueueChange::Rate(rates) | QueueChange::KeyRate(rates) => check_rates(rates)?,
                QueueChange::Breaker(Some(breaker)) => check_breaker(breaker)?,
                QueueChange::Budget(Some(budget)) => check_budget(budget)?,
                QueueChange::ServedBy(Some(pool)) => check_name("pool", pool)?,
                QueueChange::OpenKeyBreaker { key, .. }
                | QueueChange::ResetKeyBreaker(key)
                | QueueChange::EndKeyHold(key) => key_text("limit key", key)?,
                QueueChange::Account(Some(account)) => check_name("account", account)?,
                QueueChange::Resume
                | QueueChange::Account(None)
                | QueueChange::Limit(_)
                | QueueChange::Concurrency(_)
                | QueueChange::KeyConcurrency(_)
                | QueueChange::KeyPath(_)
                | QueueChange::CostPath(_)
                | QueueChange::KeyHold(_)
                | QueueChange::Priority(_)
                | QueueChange::SetBy(_)
                | QueueChange::Breaker(None)
                | QueueChange::Budget(None)
                | QueueChange::ServedBy(None)
                | QueueChange::OpenBreaker(_)
                | QueueChange::ResetBreaker
                | QueueChange::EndHold => {}
            }
        }
        Ok(())
    }
}

/// Rejects a task that may replace another one and has dependencies. A replaced task keeps its own dependencies, so that no task
/// comes to depend on itself: those of the new task would be ignored.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_replacement(unique: Option<&Unique>, after: usize) -> Result<(), Error> {
    let replaces = unique.is_some_and(|unique| unique.on_conflict == OnConflict::Replace);
    if replaces && after > 0 {
        return Err(Error::invalid(
            "a task that replaces the one that has its key (replace) cannot wait for others (after): the one that is there keeps \
             what it waits for; cancel that one, or leave out one of the two",
        ));
    }
    Ok(())
}

/// Rejects queue settings that have grown too large.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_settings(settings: &QueueSettings) -> Result<(), Error> {
    check_len("subscribers of a queue", settings.subscribers.len(), MAX_SUBSCRIBERS)?;
    check_len("kinds with a policy of their own", settings.kinds.len(), MAX_KINDS)
}

/// Rejects an invalid schedule.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_schedule(schedule: &Schedule) -> Result<(), Error> {
    check_name("schedule", &schedule.name)?;
    non_empty("spec", &schedule.spec)?;
    check_text("spec", &schedule.spec, MAX_MESSAGE_BYTES)?;
    check_name("queue", &schedule.task.queue)?;
    check_name("kind", &schedule.task.kind)?;
    json("payload", &schedule.task.payload, MAX_TEMPLATE_BYTES)?;
    check_overrides(&schedule.task.overrides)
}

/// Rejects an invalid job.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_job(job: &NewJob) -> Result<(), Error> {
    check_name("job", &job.name)?;
    check_name("fingerprint", &job.fingerprint)?;
    check_text("spec", &job.spec, MAX_SPEC_BYTES)
}

/// Rejects an invalid session.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_session(node: &NewSession) -> Result<(), Error> {
    check_name("node", &node.name)?;
    check_name("version", &node.version)?;
    check_text("host", &node.host, MAX_NAME_BYTES)?;
    check_text("settings", &node.settings, MAX_SETTINGS_BYTES)?;
    if node.ttl.is_zero() {
        return Err(Error::invalid("ttl must be longer than zero"));
    }
    Ok(())
}

/// Rejects a report of too many workers, or of workers of a pool without a name.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_report(workers: &[Worker], closed: &[Worker]) -> Result<(), Error> {
    check_len("workers", workers.len(), MAX_WORKERS)?;
    check_len("closed workers", closed.len(), MAX_GONE_WORKERS)?;
    workers.iter().chain(closed).try_for_each(|worker| {
        check_name("pool", &worker.pool)?;
        // A name with the number of the worker after it.
        check_text("worker", &worker.name, MAX_NAME_BYTES + NUMBER_BYTES)
    })
}

/// Rejects a node command that no node can carry out.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_command(order: &NodeCommand) -> Result<(), Error> {
    match order {
        NodeCommand::Drain | NodeCommand::Resume => Ok(()),
        NodeCommand::Resize { pool, min, max } => {
            check_name("pool", pool)?;
            if *max == 0 {
                return Err(Error::invalid("max must be at least 1; to run nothing, pause the queue"));
            }
            if min > max {
                return Err(Error::invalid(format!("min is {min} and max is {max}; min must not be more")));
            }
            check_len("max", usize::try_from(*max).unwrap_or(usize::MAX), MAX_WORKERS)
        }
        NodeCommand::Recycle { pool, .. } => check_name("pool", pool),
    }
}

/// Rejects a reply that names more workers than a node can have.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_reply(reply: &Reply) -> Result<(), Error> {
    match &reply.answer {
        NodeAnswer::Recycle(RecycleAnswer { recycled, busy }) => {
            check_len("workers", recycled.len() + busy.len(), MAX_WORKERS)
        }
        NodeAnswer::Resume(_) => Ok(()),
    }
}

/// Rejects an invalid claim.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_claim(claim: &Claim) -> Result<(), Error> {
    check_backlog(&claim.queue, &claim.kinds, claim.limit)
}

/// Rejects an invalid backlog query: it counts no more than a claim could take.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_backlog(queue: &str, kinds: &Kinds, limit: usize) -> Result<(), Error> {
    check_name("queue", queue)?;
    check_len("claim", limit, MAX_CLAIM)?;
    match kinds {
        Kinds::Any => Ok(()),
        Kinds::Only(kinds) => check_len("kinds", kinds.len(), MAX_KINDS),
    }
}

/// Rejects more than `most` of `what`.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_len(what: &str, count: usize, most: usize) -> Result<(), Error> {
    if count > most {
        return Err(Error::invalid(format!("{what}: {count} in one call, and at most {most} are taken")));
    }
    Ok(())
}

/// Rejects a name that is empty, too long, or contains control characters.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_name(field: &str, name: &str) -> Result<(), Error> {
    non_empty(field, name)?;
    check_text(field, name, MAX_NAME_BYTES)?;
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{field}: a name has no control characters or line breaks")));
    }
    Ok(())
}

/// Rejects an impossible policy.
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
pub fn check_overrides(overrides: &Overrides) -> Result<(), Error> {
    if overrides.attempts == Some(0) {
        return Err(Error::invalid("attempts must be at least 1: it counts the first try too"));
    }
    if overrides.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Error::invalid("timeout must be longer than zero"));
    }
    Ok(())
}

/// Rejects a key that is empty or too long.
fn key_text(field: &str, key: &str) -> Result<(), Error> {
    non_empty(field, key)?;
    check_text(field, key, MAX_KEY_BYTES)
}

fn non_empty(field: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{field} must not be empty")));
    }
    Ok(())
}

/// Rejects a JSON text that is too large, or nested deeper than JSON parsers accept.
fn json(field: &str, json: &str, most: usize) -> Result<(), Error> {
    check_text(field, json, most)?;
    if is_too_deep(json) {
        return Err(Error::invalid(format!(
            "{field}: its arrays and objects are more than {MAX_NESTING} deep inside of each other, and no more are taken"
        )));
    }
    Ok(())
}

pub(crate) fn check_text(field: &str, text: &str, most: usize) -> Result<(), Error> {
    if text.len() > most {
        return Err(Error::invalid(format!(
            "{field} has {} bytes, and at most {most} are taken",
            text.len()
        )));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!(
            "{field} has a NUL character in it, which not every store can keep"
        )));
    }
    Ok(())
}

/// The outcome, with overlong texts of a failure truncated and marked. A failure is never rejected for its size: the outcome of an
/// attempt must be recorded.
#[must_use]
pub fn bounded(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Failed(failure) => Outcome::Failed(bounded_failure(failure)),
        Outcome::Success | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled => outcome.clone(),
    }
}

fn bounded_failure(failure: &Failure) -> Failure {
    let short = |text: &Option<String>, most| text.as_deref().map(|text| clean(text, most));
    Failure {
        class: failure.class,
        message: clean(&failure.message, MAX_MESSAGE_BYTES),
        details: short(&failure.details, MAX_DETAILS_BYTES),
        step: short(&failure.step, MAX_NAME_BYTES),
        hint: short(&failure.hint, MAX_MESSAGE_BYTES),
        retry_after: failure.retry_after,
        exit_code: failure.exit_code,
    }
}

pub(crate) fn clean(text: &str, most: usize) -> String {
    cut(&text.replace('\0', "\u{fffd}"), most)
}
