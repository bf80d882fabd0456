//! Obstacles: why a queued task does not start. `ostler submit` reports them at once and while it waits; `show` and the API list them.

use std::time::Duration;

use ostler_core::{Readiness, State, Task, Timestamp, Wait, cut, nearest, show_duration, visible};
use ostler_store::Store;
use ostler_store::calls::NewTask;
use ostler_store::gates::WORKERS_FAIL;
use ostler_store::jobs::job_of;
use ostler_store::views::{LaneRecord, Survey};
use ostler_wire::limits::{PAUSED, ThrottleView};
use ostler_wire::task::{FreeingCommand, ObstacleView as Obstacle};

use crate::doctor::names;
use crate::error::OpsError;
use crate::jobs::pilot::APPROVALS;
use crate::published::ServedQueues;
use crate::submit::SubmitRequest;
use crate::waiting::{self, PoolWorkers};

/// A task that has been ready for less than this is about to be claimed.
const SOON: Duration = Duration::from_secs(3);
/// A ready task that idle workers leave alone for this long has no handler. Before that, a worker may be starting whose record says idle.
const LONG: Duration = Duration::from_secs(10);
/// A wait that is shorter than this is not worth a word.
const SHORT: Duration = Duration::from_secs(1);
/// Bytes of a failure's message in a sentence.
const MAX_MESSAGE_BYTES: usize = 200;
/// What a kind without a handler is called in [`Obstacle::code`].
const KIND_UNSERVED: &str = "kind_unserved";

fn obstacle(code: &'static str, sentence: impl Into<String>, frees: Option<FreeingCommand>) -> Obstacle {
    Obstacle { code, sentence: sentence.into(), attempt: None, frees }
}

/// A task that is queued.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub queue: &'a str,
    pub kind: &'a str,
    pub limit_key: Option<&'a str>,
    pub record: CandidateRecord<'a>,
}

/// What is known of it.
#[derive(Clone, Copy, Debug)]
pub enum CandidateRecord<'a> {
    /// It has just been enqueued, and was not read.
    New(Readiness),
    Read(&'a Task),
}

impl<'a> From<&'a Task> for Candidate<'a> {
    fn from(task: &'a Task) -> Self {
        Self {
            queue: &task.queue,
            kind: &task.kind,
            limit_key: task.limit_key.as_deref(),
            record: CandidateRecord::Read(task),
        }
    }
}

impl<'a> From<&'a SubmitRequest> for Candidate<'a> {
    fn from(request: &'a SubmitRequest) -> Self {
        let NewTask { queue, kind, limit_key, run_at, .. } = &request.task;
        let is_later = request.delay.is_some() || run_at.is_some() || !request.after.is_empty();
        let readiness = if is_later { Readiness::Waiting } else { Readiness::Ready };
        let limit_key = limit_key.as_deref();
        Self { queue, kind, limit_key, record: CandidateRecord::New(readiness) }
    }
}

/// Reads the store once, and finds what keeps a task from starting that has just been enqueued. What ends by itself in a moment, and
/// tasks ahead of it, are none.
///
/// # Errors
/// When the store cannot be read.
pub async fn at_once(
    store: &dyn Store,
    tasks: &[Candidate<'_>],
    now: Timestamp,
) -> Result<Vec<Obstacle>, OpsError> {
    let survey = store.survey().await?;
    let mut found: Vec<Obstacle> = Vec::new();
    for obstacle in tasks.iter().flat_map(|task| obstacles(&survey, task, now)) {
        let is_new = !found.iter().any(|known| known.sentence == obstacle.sentence);
        if is_new && obstacle.code != Wait::Concurrency.name() {
            found.push(obstacle);
        }
    }
    Ok(found)
}

/// What keeps a task from starting, the most important first; nothing if it is not queued.
#[must_use]
pub fn obstacles(survey: &Survey, task: &Candidate<'_>, now: Timestamp) -> Vec<Obstacle> {
    let (readiness, ready_since) = match task.record {
        CandidateRecord::New(readiness) => (readiness, now),
        CandidateRecord::Read(task) => match task.state {
            State::Queued { readiness, run_at, .. } => (readiness, run_at.max(task.created_at)),
            State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => return Vec::new(),
        },
    };
    let mut found: Vec<Obstacle> = unserved(survey, task.queue, now).into_iter().collect();
    if let CandidateRecord::Read(task) = task.record {
        found.extend(not_due(task, now));
    }
    if readiness == Readiness::Waiting {
        return found;
    }
    let held = throttle(survey, task);
    found.extend(held.as_ref().and_then(|held| throttled(survey, held, now)));
    if !found.is_empty() || held.is_some() {
        return found;
    }
    match readiness {
        Readiness::Parked => {
            let sentence = "as many tasks with its limit key run as may at once";
            found.push(obstacle(Wait::Concurrency.name(), sentence, None));
        }
        Readiness::Ready if now.since(ready_since) >= SOON => {
            found.extend(not_taken(survey, task, now.since(ready_since)));
        }
        Readiness::Ready => found.extend(new_kind(survey, task)),
        Readiness::Waiting => {}
    }
    found
}

/// No node serves its queue. The items of a job need no pool of a config, and approvals wait for a person.
fn unserved(survey: &Survey, queue: &str, now: Timestamp) -> Option<Obstacle> {
    if job_of(queue).is_some() || queue == APPROVALS {
        return None;
    }
    let up = waiting::start_node();
    let served = match ServedQueues::of(survey, now) {
        ServedQueues::Unknown => return None,
        ServedQueues::Known(served) if served.contains(queue) => return None,
        ServedQueues::Known(served) => served,
        ServedQueues::NoNode => {
            return Some(obstacle("no_node", "no node is up, so the task waits until one is", Some(up)));
        }
    };
    let served: Vec<&str> = served.iter().map(String::as_str).filter(|name| job_of(name).is_none()).collect();
    let more = match (nearest(queue, &served), served.as_slice()) {
        (Some(near), _) => format!("; did you mean \"{}\"?", visible(near)),
        (None, []) => "; the nodes that are up have no pools".to_owned(),
        (None, all) => format!("; there are {}", names(all.iter().copied())),
    };
    let sentence = format!("no node serves the queue \"{}\"{more}", visible(queue));
    Some(obstacle("queue_unserved", sentence, None))
}

/// It waits for a time, or for other tasks.
fn not_due(task: &Task, now: Timestamp) -> Option<Obstacle> {
    let State::Queued { readiness: Readiness::Waiting, why, run_at } = task.state else { return None };
    let left = run_at.since(now);
    let due = || (left >= SHORT).then(|| obstacle(why.name(), format!("it is due in {}", about(left)), None));
    match why {
        Wait::Dependency => Some(obstacle(why.name(), "it waits for other tasks", None)),
        Wait::Retry | Wait::RateLimited | Wait::UsageLimit if left >= SHORT => {
            let message = task.last_failure.as_ref().map(|failure| failure.message.as_str());
            let message = message.and_then(|message| message.lines().next()).unwrap_or_default();
            let (why_failed, left) = (visible(&cut(message, MAX_MESSAGE_BYTES)), about(left));
            let sentence =
                format!("attempt {} failed: {why_failed}; the next one starts in {left}", task.runs);
            Some(Obstacle { attempt: Some(task.runs), ..obstacle(why.name(), sentence, None) })
        }
        Wait::Retry
        | Wait::RateLimited
        | Wait::UsageLimit
        | Wait::New
        | Wait::Scheduled
        | Wait::Concurrency
        | Wait::BreakerOpen
        | Wait::Paused
        | Wait::Budget
        | Wait::HandedBack
        | Wait::LeaseExpired
        | Wait::Replayed => due(),
    }
}

/// What throttles its queue or its limit key; the key's is more specific.
fn throttle(survey: &Survey, task: &Candidate<'_>) -> Option<ThrottleView> {
    let mut all = ThrottleView::all(survey, Some(task.queue));
    let own = all.iter().position(|held| held.key.is_some() && held.key.as_deref() == task.limit_key);
    let found = own.or_else(|| all.iter().position(|held| held.key.is_none()))?;
    Some(all.swap_remove(found))
}

/// A throttle in words, unless it ends in a moment.
fn throttled(survey: &Survey, held: &ThrottleView, now: Timestamp) -> Option<Obstacle> {
    let left = held.until.map(|until| until.timestamp().since(now));
    if left.is_some_and(|left| left < SHORT) {
        return None;
    }
    let queue = visible(&held.queue);
    let record = survey.queues.iter().find(|record| record.name == held.queue)?;
    let whose = match &held.key {
        Some(key) => format!("the limit key \"{}\" in the queue \"{queue}\"", visible(key)),
        None => format!("the queue \"{queue}\""),
    };
    let what = match held.waits_for {
        PAUSED => paused(&queue, record.settings.paused.as_deref().unwrap_or_default()),
        "budget" => format!("the budget of {whose} is spent"),
        "breaker_open" => format!("the breaker of {whose} is open"),
        "rate_limited" if record.held_until.is_some() && held.key.is_none() => {
            format!("nothing of {whose} starts: an attempt reported \"too many requests\"")
        }
        "rate_limited" => format!("the rate limit of {whose} is used up"),
        "usage_limit" => {
            let account = record.settings.account.as_deref().unwrap_or_default();
            format!("the allowance of the account \"{}\" is used up", visible(account))
        }
        "concurrency" => format!("as many tasks of {whose} run as may at once"),
        other => format!("{whose} waits: {other}"),
    };
    let ends = left.map(|left| format!(", for another {}", about(left))).unwrap_or_default();
    // Only what lets more run at once depends on accounts.
    let frees = waiting::of_throttle(survey, held, &[], now);
    Some(obstacle(held.waits_for, format!("{what}{ends}"), frees))
}

fn paused(queue: &str, reason: &str) -> String {
    match reason.strip_prefix(WORKERS_FAIL) {
        Some(cause) => {
            let cause = cause.trim_start_matches(':').trim();
            format!("the queue \"{queue}\" is paused, since its workers fail to start: {}", visible(cause))
        }
        None if reason.is_empty() => format!("the queue \"{queue}\" is paused"),
        None => format!("the queue \"{queue}\" is paused: \"{}\"", visible(reason)),
    }
}

/// It has been ready for a while.
fn not_taken(survey: &Survey, task: &Candidate<'_>, ready_for: Duration) -> Option<Obstacle> {
    let PoolWorkers { pool, all, busy, .. } = PoolWorkers::of(survey, task.queue);
    let frees = Some(waiting::of_pool(survey, task.queue));
    let pool = visible(&pool);
    if all == 0 {
        return Some(obstacle("no_worker", format!("the pool \"{pool}\" has no worker yet"), frees));
    }
    if busy >= all {
        let workers = if all == 1 { "the only worker".to_owned() } else { format!("all {all} workers") };
        let sentence = format!("{workers} of the pool \"{pool}\" are busy");
        let sentence = if all == 1 { sentence.replace("are busy", "is busy") } else { sentence };
        return Some(obstacle("workers_busy", sentence, frees));
    }
    if ready_for < LONG {
        return None;
    }
    let kinds = kinds_run(survey, task);
    let known = match (nearest(task.kind, &kinds), kinds.as_slice()) {
        (Some(near), _) => format!("did you mean \"{}\"?", visible(near)),
        (None, []) => "is there a handler for it?".to_owned(),
        (None, all) => {
            format!("is there a handler for it? Kinds that have run there: {}", names(all.iter().copied()))
        }
    };
    let idle = all - busy;
    let workers = if idle == 1 { "1 is idle".to_owned() } else { format!("{idle} are idle") };
    let sentence = format!(
        "no worker of the pool \"{pool}\" takes the kind \"{}\", although {workers}; {known}",
        visible(task.kind)
    );
    Some(obstacle(KIND_UNSERVED, sentence, frees))
}

/// A kind that has never run in its queue, and is spelled like one that has.
fn new_kind(survey: &Survey, task: &Candidate<'_>) -> Option<Obstacle> {
    let has_run =
        |lane: &LaneRecord| lane.queue == task.queue && lane.kind == task.kind && lane.tally.attempts > 0;
    if survey.lanes.iter().any(has_run) {
        return None;
    }
    let near = nearest(task.kind, &kinds_run(survey, task))?;
    let sentence = format!(
        "no task of the kind \"{}\" has run in the queue \"{}\" yet; did you mean \"{}\"?",
        visible(task.kind),
        visible(task.queue),
        visible(near)
    );
    Some(obstacle("kind_new", sentence, None))
}

/// The other kinds of the queue that have run.
fn kinds_run<'s>(survey: &'s Survey, task: &Candidate<'_>) -> Vec<&'s str> {
    let lanes = survey.lanes.iter().filter(|lane| lane.queue == task.queue && lane.kind != task.kind);
    lanes.filter(|lane| lane.tally.attempts > 0).map(|lane| lane.kind.as_str()).collect()
}

/// Tells what keeps a task from starting while a caller waits for it: each reason once, and again when it returns.
#[derive(Debug, Default)]
pub struct ObstacleWatch {
    known: Vec<Obstacle>,
}

impl ObstacleWatch {
    /// The reasons that are new. That it waits for other tasks is none: the caller has asked for it.
    pub fn news(&mut self, mut found: Vec<Obstacle>) -> Vec<Obstacle> {
        found.retain(|obstacle| obstacle.code != Wait::Dependency.name());
        let is_new = |obstacle: &&Obstacle| !self.known.iter().any(|known| known.is_same(obstacle));
        let news = found.iter().filter(is_new).cloned().collect();
        self.known = found;
        news
    }
}

/// A duration for people, without milliseconds.
fn about(time: Duration) -> String {
    show_duration(Duration::from_secs(time.as_secs().max(1)))
}
