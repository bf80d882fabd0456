//! Which commands free a waiting task: what raises the limit, ends the hold, resumes the queue, approves the pilot or starts a node.
//! `ostler show` and the page of a task show them.

use ostler_core::{Rate, Readiness, State, StateName, Task, TaskId, Timestamp, Wait, show_duration};
use ostler_store::Store;
use ostler_store::accounts::AccountRecord;
use ostler_store::gates::MAX_AMOUNT;
use ostler_store::jobs::job_of;
use ostler_store::views::{QueueRecord, Survey, TaskDetail, TaskRef};
use ostler_wire::limits::{PAUSED, ThrottleView};
use ostler_wire::task::FreeingCommand;

use crate::doctor::word;
use crate::error::OpsError;
use crate::jobs::pilot::{APPROVALS, PAUSED as PILOT_WAITS};
use crate::published;

/// Tasks that it waits for and that are looked up.
pub const MAX_OTHERS: usize = 5;

/// The commands, in the order in which they help. More than one means that all of them are needed, except for those about other tasks.
pub(crate) async fn frees(
    store: &dyn Store,
    survey: &Survey,
    record: &TaskDetail,
    held: Option<&ThrottleView>,
) -> Result<Vec<FreeingCommand>, OpsError> {
    let task = &record.task;
    let State::Queued { readiness, why, .. } = task.state else { return Ok(Vec::new()) };
    let others = others(store, &record.after).await?;
    if let Some(job) = job_of(&task.queue).filter(|_| waits_for_approval(&others)) {
        return Ok(vec![approve(&job.to_string())]);
    }
    let mut found = match (why, readiness) {
        (Wait::Dependency, _) => others.iter().map(of_other).collect(),
        (_, Readiness::Waiting) => vec![retry(task, why)],
        (_, Readiness::Parked) if held.is_none() => vec![of_key(survey, task)],
        (_, Readiness::Ready) if held.is_none() => vec![of_pool(survey, &task.queue)],
        (_, Readiness::Parked | Readiness::Ready) => Vec::new(),
    };
    if let Some(held) = held {
        found.extend(of_throttle(survey, held, &store.accounts().await?, store.now().await?));
    }
    Ok(found)
}

/// The unfinished tasks that a task waits for, as far as they are looked at.
///
/// # Errors
/// When the store cannot be read.
pub async fn others(store: &dyn Store, after: &[TaskId]) -> Result<Vec<Task>, OpsError> {
    let mut found = Vec::new();
    for id in after.iter().take(MAX_OTHERS) {
        found.extend(store.show(TaskRef::Id(*id)).await?.map(|found| found.task));
    }
    Ok(found)
}

/// Whether one of these tasks is the approval of a pilot.
#[must_use]
pub fn waits_for_approval(others: &[Task]) -> bool {
    others.iter().any(|other| other.queue == APPROVALS)
}

/// The workers of the pool that serves a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWorkers {
    pub pool: String,
    /// Whether a node serves the queue, with or without a worker that is up.
    pub is_served: bool,
    pub all: u64,
    pub busy: u64,
}

impl PoolWorkers {
    #[must_use]
    pub fn of(survey: &Survey, queue: &str) -> Self {
        let pool = record(survey, queue).and_then(|record| record.settings.pool.as_deref()).unwrap_or(queue);
        let workers = survey.workers.iter().filter(|at| at.worker.pool == pool);
        let (all, busy) =
            workers.fold((0, 0), |(all, busy), at| (all + 1, busy + u64::from(at.worker.task.is_some())));
        let is_served = all > 0 || survey.nodes.iter().any(|node| published::queues(node).contains(pool));
        Self { pool: pool.to_owned(), is_served, all, busy }
    }
}

fn record<'a>(survey: &'a Survey, queue: &str) -> Option<&'a QueueRecord> {
    survey.queues.iter().find(|record| record.name == queue)
}

fn command(what: &str, command: String) -> FreeingCommand {
    FreeingCommand { what: what.to_owned(), command }
}

fn approve(job: &str) -> FreeingCommand {
    command("Approve the pilot", format!("ostler job approve {job}"))
}

/// It waits for a time.
fn retry(task: &Task, why: Wait) -> FreeingCommand {
    let what = match why {
        Wait::Retry | Wait::RateLimited | Wait::UsageLimit => "Retry now",
        Wait::New
        | Wait::Scheduled
        | Wait::Concurrency
        | Wait::BreakerOpen
        | Wait::Paused
        | Wait::Dependency
        | Wait::Budget
        | Wait::HandedBack
        | Wait::LeaseExpired
        | Wait::Replayed => "Run it now",
    };
    command(what, format!("ostler retry {}", task.id))
}

/// What brings a task to its end that others wait for.
fn of_other(other: &Task) -> FreeingCommand {
    let id = other.id;
    match other.state.name() {
        StateName::Failed => command("Replay what it waits for", format!("ostler dead replay {id}")),
        StateName::Cancelled => command("Retry what it waits for", format!("ostler retry {id}")),
        StateName::Queued | StateName::Claimed | StateName::Running | StateName::Completed => {
            command("To see what it waits for", format!("ostler show {id}"))
        }
    }
}

/// It waits for its limit key.
fn of_key(survey: &Survey, task: &Task) -> FreeingCommand {
    let queue = word(&task.queue);
    match record(survey, &task.queue).and_then(|record| record.settings.key_concurrency) {
        Some(most) => {
            let line = format!("ostler queue set {queue} --key-concurrency {}", twice(most));
            command("To let more run", line)
        }
        None => command("To see the limits", format!("ostler queue show {queue}")),
    }
}

/// What starts a node.
pub(crate) fn start_node() -> FreeingCommand {
    command("To start a node with a pool for it", "ostler up".to_owned())
}

/// It waits for a worker.
pub(crate) fn of_pool(survey: &Survey, queue: &str) -> FreeingCommand {
    let PoolWorkers { pool, is_served, all, busy } = PoolWorkers::of(survey, queue);
    if !is_served {
        return start_node();
    }
    if all > 0 && busy >= all {
        return command("For more workers", format!("ostler resize {} {all} {}", word(&pool), all * 2));
    }
    command("If it is not taken, this finds out why", "ostler doctor".to_owned())
}

/// What ends a throttle, or lets more start.
pub(crate) fn of_throttle(
    survey: &Survey,
    held: &ThrottleView,
    accounts: &[AccountRecord],
    now: Timestamp,
) -> Option<FreeingCommand> {
    Throttled { held, survey, accounts, now }.frees()
}

/// A throttle of a queue or a limit key, and what is known about it.
struct Throttled<'a> {
    held: &'a ThrottleView,
    survey: &'a Survey,
    accounts: &'a [AccountRecord],
    now: Timestamp,
}

impl Throttled<'_> {
    fn frees(&self) -> Option<FreeingCommand> {
        match self.held.waits_for {
            PAUSED => self.resume(),
            "budget" => self.spend(self.limiting(|record| record.settings.budget.is_some())?),
            "breaker_open" => {
                let open = |record: &QueueRecord| record.breaker.is_some();
                let line = format!("ostler breaker reset {}", self.named(self.limiting(open)?));
                Some(command("Reset the breaker", line))
            }
            "rate_limited" => self.start_more(),
            "concurrency" => self.run_more(),
            "usage_limit" => {
                let account = record(self.survey, &self.held.queue)?.settings.account.as_deref()?;
                let what = "To start again at once, if there is an allowance";
                Some(command(what, format!("ostler account release {}", word(account))))
            }
            _ => None,
        }
    }

    /// The queue whose own limit throttles: that of the task, or that of the pool which serves it.
    fn limiting(&self, has: impl Fn(&QueueRecord) -> bool) -> Option<&QueueRecord> {
        let own = record(self.survey, &self.held.queue)?;
        let pool = own.settings.serving_queue(&own.name).and_then(|pool| record(self.survey, pool));
        match pool.filter(|_| self.held.key.is_none()) {
            // What closes the pool closes the queue alike.
            Some(pool) if has(pool) && (!has(own) || pool.shut == own.shut) => Some(pool),
            Some(_) | None => Some(own),
        }
    }

    /// The queue as a word of a command line, with the limit key.
    fn named(&self, queue: &QueueRecord) -> String {
        let key = self.held.key.as_ref().map(|key| format!(" --key {}", word(key)));
        format!("{}{}", word(&queue.name), key.unwrap_or_default())
    }

    fn set(what: &str, queue: &QueueRecord, options: &str) -> FreeingCommand {
        command(what, format!("ostler queue set {}{options}", word(&queue.name)))
    }

    fn resume(&self) -> Option<FreeingCommand> {
        let queue = record(self.survey, &self.held.queue)?;
        let reason = queue.settings.paused.as_deref()?;
        // A budget that is spent pauses its queue, and would again.
        let spent = queue.settings.budget.filter(|_| reason.contains("budget"));
        if let Some(more) = spent.and_then(|_| self.spend(queue)) {
            return Some(more);
        }
        Some(match job_of(&queue.name) {
            Some(job) if reason == PILOT_WAITS => approve(&job.to_string()),
            Some(job) => command("Resume the job", format!("ostler job resume {job}")),
            None => command("Resume the queue", format!("ostler resume {}", word(&queue.name))),
        })
    }

    /// Twice the budget, which resumes the queue.
    fn spend(&self, queue: &QueueRecord) -> Option<FreeingCommand> {
        let budget = queue.settings.budget?;
        let what = "To go on with twice of it";
        Some(match (job_of(&queue.name), budget.total, budget.per_day) {
            (Some(job), Some(total), _) => {
                command(what, format!("ostler job resume {job} --max-cost {}", total.usd() * 2.0))
            }
            (None, Some(total), _) => Self::set(what, queue, &format!(" --budget {}", total.usd() * 2.0)),
            (_, None, Some(day)) => Self::set(what, queue, &format!(" --budget-per-day {}", day.usd() * 2.0)),
            (_, None, None) => return None,
        })
    }

    /// Ends the hold after "too many requests", or raises the rate.
    fn start_more(&self) -> Option<FreeingCommand> {
        let queue =
            self.limiting(|record| record.held_until.is_some() || !record.settings.rate.is_empty())?;
        let held_until = match &self.held.key {
            None => queue.held_until,
            Some(key) => {
                let mut keys = self.survey.keys.iter();
                let found = keys.find(|record| record.queue == queue.name && record.key == *key);
                found.and_then(|record| record.held_until)
            }
        };
        if held_until.is_some() {
            return Some(command("End the hold", format!("ostler queue release {}", self.named(queue))));
        }
        let (option, rates) = match self.held.key {
            Some(_) => ("--key-rate", &queue.settings.key_rate),
            None => ("--rate", &queue.settings.rate),
        };
        let longest = rates.iter().map(|rate| rate.per).max()?;
        // A task that costs more than the rate gives leaves a debt, and twice the rate does not pay it.
        if self.held.until.is_some_and(|until| until.timestamp().since(self.now) > longest) {
            return Some(Self::set("To lift the rate limit", queue, &format!(" {option} none")));
        }
        let doubled: String = rates.iter().map(|rate| format!(" {option} {}", doubled(*rate))).collect();
        Some(Self::set("To let more start", queue, &doubled))
    }

    /// Raises what may run at once, of the account or of the queue.
    fn run_more(&self) -> Option<FreeingCommand> {
        let own = record(self.survey, &self.held.queue)?;
        let account = own.settings.account.as_deref();
        let account = account.and_then(|name| self.accounts.iter().find(|account| account.name == name));
        if let Some(closed) = account.filter(|account| account.closed(self.now).is_some()) {
            // A window that follows the provider has no command.
            let cap = closed.account.cap.filter(|cap| closed.account.most() == Some(*cap))?;
            let line = format!("ostler account cap {} {}", word(&closed.name), twice(cap));
            return Some(command("To let more of the account run", line));
        }
        let queue = self.limiting(|record| record.settings.concurrency.is_some())?;
        let most = queue.settings.concurrency?;
        Some(Self::set("To let more run", queue, &format!(" --concurrency {}", twice(most))))
    }
}

fn twice(most: u32) -> u32 {
    most.saturating_mul(2).max(1)
}

/// Twice the rate, as users write it.
fn doubled(rate: Rate) -> String {
    let twice = |number: u64| number.saturating_mul(2).min(MAX_AMOUNT);
    let amount = twice(rate.amount);
    let is_even = rate.burst == Rate::even(rate.amount, rate.per).burst;
    let burst = if is_even { String::new() } else { format!(",burst={}", twice(rate.burst)) };
    format!("{amount}/{}{burst}", show_duration(rate.per))
}
