//! Codecs: what a column keeps as text, most of it JSON: failures, policies, rare settings of a task, outbox filters, node commands.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{
    Backoff, EndKind, ErrorClass, Failure, HeldUntil, Jitter, KeyHold, Overrides, Timestamp, Traceparent,
    WorkerId, in_time_until,
};
use ostler_store::calls::NewTask;
use ostler_store::node_commands::{
    NodeAnswer, NodeCommand, RecycleAnswer, Reply, ResumeAnswer, WorkerChoice,
};
use ostler_store::outbox::{OutboxFilter, Subscribers};
use ostler_store::unique::Unique;
use serde::{Deserialize, Serialize};

use crate::task::FoundTask;
use crate::value::Unreadable;

/// What was read from a stored format.
pub type Readable<T> = Result<T, Unreadable>;

#[derive(Serialize, Deserialize)]
struct FailureRow {
    class: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    details: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    exit_code: Option<u8>,
    first_at_ms: i64,
    last_at_ms: i64,
}

/// A failure with the times of the first and the last one.
pub struct StoredFailure {
    pub failure: Failure,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// The text that keeps a failure.
pub fn failure_text(failure: &Failure, first_at: Timestamp, last_at: Timestamp) -> String {
    let row = FailureRow {
        class: failure.class.name().into(),
        message: failure.message.clone(),
        details: failure.details.clone(),
        step: failure.step.clone(),
        hint: failure.hint.clone(),
        retry_after_ms: failure.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        exit_code: failure.exit_code,
        first_at_ms: first_at.millis(),
        last_at_ms: last_at.millis(),
    };
    serde_json::to_string(&row).expect("a failure has only texts and numbers")
}

/// The failure that a text keeps.
pub fn failure_from(text: Option<String>) -> Readable<Option<StoredFailure>> {
    let Some(row) = json::<FailureRow>(text)? else { return Ok(None) };
    let failure = Failure {
        // A class of a later version reads as the default one.
        class: ErrorClass::named(&row.class).unwrap_or(ErrorClass::Transient),
        message: row.message,
        details: row.details,
        step: row.step,
        hint: row.hint,
        retry_after: row.retry_after_ms.map(Duration::from_millis),
        exit_code: row.exit_code,
    };
    let (first_at, last_at) =
        (Timestamp::from_millis(row.first_at_ms), Timestamp::from_millis(row.last_at_ms));
    Ok(Some(StoredFailure { failure, first_at, last_at }))
}

/// The two ends that a task may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndLimits {
    pub not_after: Option<Timestamp>,
    pub deadline: Option<Timestamp>,
}

impl EndLimits {
    /// The first of both, which has a column of its own.
    pub fn late_at(self) -> Option<i64> {
        in_time_until(self.not_after, self.deadline).map(Timestamp::millis)
    }
}

/// What few tasks have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extras {
    pub overrides: Overrides,
    pub folder: Option<String>,
    pub traceparent: Option<Traceparent>,
    pub ends: EndLimits,
    pub cost: u32,
    /// Its unique key, if it holds that until its end: a replay takes it back.
    pub end_key: Option<String>,
    /// The token of its last lease before it began from scratch; 0: it never did.
    pub scratch_token: u64,
}

#[derive(Serialize, Deserialize)]
struct ExtrasRow {
    #[serde(flatten)]
    overrides: OverridesRow,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    folder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    deadline_ms: Option<i64>,
    /// Only beside a deadline: without one it is the first of both ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    not_after_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    cost: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    end_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    scratch_token: Option<u64>,
}

impl Extras {
    pub fn of_new(new: &NewTask) -> Self {
        let ends = EndLimits { not_after: new.not_after, deadline: new.deadline };
        let until_end = |unique: &&Unique| unique.hold == Some(KeyHold::End);
        Self {
            overrides: new.overrides,
            folder: new.folder.clone(),
            traceparent: new.traceparent.clone(),
            ends,
            cost: new.cost.unwrap_or(1),
            end_key: new.unique.as_ref().filter(until_end).map(|unique| unique.key.clone()),
            scratch_token: 0,
        }
    }

    pub fn of(found: &FoundTask) -> Self {
        let FoundTask { task, end_key, scratch_token, .. } = found;
        Self {
            overrides: task.overrides,
            folder: task.folder.clone(),
            traceparent: task.traceparent.clone(),
            ends: EndLimits { not_after: task.not_after, deadline: task.deadline },
            cost: task.cost,
            end_key: end_key.clone(),
            scratch_token: *scratch_token,
        }
    }

    /// The text that keeps them; `None` when there are none.
    pub fn text(self) -> Option<String> {
        let Self { overrides, folder, traceparent, ends, cost, end_key, scratch_token } = self;
        let EndLimits { not_after, deadline } = ends;
        let usual = overrides.is_none() && folder.is_none() && deadline.is_none() && cost == 1;
        if usual && traceparent.is_none() && end_key.is_none() && scratch_token == 0 {
            return None;
        }
        let row = ExtrasRow {
            overrides: overrides_row(&overrides),
            folder,
            traceparent: traceparent.as_ref().map(Traceparent::to_string),
            deadline_ms: deadline.map(Timestamp::millis),
            not_after_ms: deadline.and(not_after).map(Timestamp::millis),
            cost: (cost != 1).then_some(cost),
            end_key,
            scratch_token: (scratch_token != 0).then_some(scratch_token),
        };
        Some(serde_json::to_string(&row).expect("extras have only texts and numbers"))
    }
}

/// The extras that a text keeps, beside the first of the two ends.
pub fn extras_from(text: Option<String>, late_at: Option<i64>) -> Readable<Extras> {
    let not_after = late_at.map(Timestamp::from_millis);
    let Some(row) = json::<ExtrasRow>(text)? else {
        let ends = EndLimits { not_after, deadline: None };
        return Ok(Extras {
            overrides: Overrides::NONE,
            folder: None,
            traceparent: None,
            ends,
            cost: 1,
            end_key: None,
            scratch_token: 0,
        });
    };
    let deadline = row.deadline_ms.map(Timestamp::from_millis);
    let not_after = if deadline.is_some() { row.not_after_ms.map(Timestamp::from_millis) } else { not_after };
    let ends = EndLimits { not_after, deadline };
    let (overrides, cost) = (overrides_of(&row.overrides), row.cost.unwrap_or(1));
    let scratch_token = row.scratch_token.unwrap_or(0);
    // One that is none does not keep its task from running.
    let traceparent = row.traceparent.and_then(|text| text.parse().ok());
    Ok(Extras { overrides, folder: row.folder, traceparent, ends, cost, end_key: row.end_key, scratch_token })
}

/// The time that stands for a hold until the end of a task: versions that do not know it take the key as held for good.
const UNTIL_END: i64 = i64::MAX;

/// The number that keeps how long a unique key is held.
pub fn held_number(held: HeldUntil) -> Option<i64> {
    match held {
        HeldUntil::Removed => None,
        HeldUntil::Ended => Some(UNTIL_END),
        HeldUntil::At(until) => Some(until.millis().min(UNTIL_END - 1)),
    }
}

/// How long a unique key is held, from its number.
pub const fn held_from(until: Option<i64>) -> HeldUntil {
    match until {
        None => HeldUntil::Removed,
        Some(UNTIL_END) => HeldUntil::Ended,
        Some(until) => HeldUntil::At(Timestamp::from_millis(until)),
    }
}

/// Overrides, as JSON has them.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub struct OverridesRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_crashes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_node_deaths: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

/// The text that keeps overrides; `None` when nothing was said.
pub fn overrides_text(overrides: &Overrides) -> Option<String> {
    if overrides.is_none() {
        return None;
    }
    Some(serde_json::to_string(&overrides_row(overrides)).expect("overrides have only texts and numbers"))
}

/// Overrides, as JSON has them.
pub fn overrides_row(overrides: &Overrides) -> OverridesRow {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    OverridesRow {
        attempts: overrides.attempts,
        backoff: overrides.backoff.map(|backoff| backoff.name().into()),
        base_ms: overrides.base.map(millis),
        max_ms: overrides.max.map(millis),
        jitter: overrides.jitter.map(|jitter| jitter == Jitter::Half),
        max_crashes: overrides.max_crashes,
        max_node_deaths: overrides.max_node_deaths,
        timeout_ms: overrides.timeout.map(millis),
    }
}

/// The overrides that a text keeps.
pub fn overrides_from(text: Option<String>) -> Readable<Overrides> {
    Ok(json::<OverridesRow>(text)?.map_or(Overrides::NONE, |row| overrides_of(&row)))
}

/// The overrides of kinds as text; `None` without any.
pub fn kinds_text(kinds: &BTreeMap<String, Overrides>) -> Option<String> {
    if kinds.is_empty() {
        return None;
    }
    let rows: BTreeMap<&String, OverridesRow> =
        kinds.iter().map(|(kind, overrides)| (kind, overrides_row(overrides))).collect();
    Some(serde_json::to_string(&rows).expect("overrides have only texts and numbers"))
}

/// The overrides of kinds that a text has.
pub fn kinds_from(text: Option<String>) -> Readable<BTreeMap<String, Overrides>> {
    let rows = json::<BTreeMap<String, OverridesRow>>(text)?.unwrap_or_default();
    Ok(rows.into_iter().map(|(kind, row)| (kind, overrides_of(&row))).collect())
}

/// The overrides that JSON has.
pub fn overrides_of(row: &OverridesRow) -> Overrides {
    Overrides {
        attempts: row.attempts,
        backoff: row.backoff.as_deref().and_then(Backoff::named),
        base: row.base_ms.map(Duration::from_millis),
        max: row.max_ms.map(Duration::from_millis),
        jitter: row.jitter.map(|on| if on { Jitter::Half } else { Jitter::Off }),
        max_crashes: row.max_crashes,
        max_node_deaths: row.max_node_deaths,
        timeout: row.timeout_ms.map(Duration::from_millis),
    }
}

/// The subscribers as text: a JSON object that has the names of their outcomes, with spaces between; `None` when there are none.
pub fn subscribers_text(subscribers: &Subscribers) -> Option<String> {
    let wants = |wants: OutboxFilter| {
        let names = EndKind::ALL.into_iter().filter(|what| wants.has(*what)).map(EndKind::name);
        names.collect::<Vec<_>>().join(" ")
    };
    let all: BTreeMap<&str, String> =
        subscribers.iter().map(|(name, wanted)| (name, wants(wanted))).collect();
    (!all.is_empty()).then(|| serde_json::to_string(&all).expect("it has only texts"))
}

/// The subscribers that a text has. Words of later versions are ignored.
pub fn subscribers_from(text: Option<String>) -> Readable<Subscribers> {
    let wants = |text: &str| text.split(' ').filter_map(EndKind::named).collect::<OutboxFilter>();
    match text {
        None => Ok(Subscribers::default()),
        // Versions without names have written the outcomes alone.
        Some(text) if !text.starts_with('{') => {
            let named = |what: EndKind| (format!("on_{}", what.name()), OutboxFilter::NONE.with(what));
            Ok(text.split(' ').filter_map(EndKind::named).map(named).collect())
        }
        Some(text) => {
            let all: BTreeMap<String, String> =
                serde_json::from_str(&text).map_err(|error| Unreadable(error.to_string()))?;
            Ok(all.into_iter().map(|(name, text)| (name, wants(&text))).collect())
        }
    }
}

/// An order, with the version of its form in front, so that a later one can tell.
#[derive(Serialize, Deserialize)]
struct CommandRow {
    v: u32,
    #[serde(flatten)]
    order: CommandText,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
enum CommandText {
    Drain,
    Resume,
    Resize { pool: String, min: u32, max: u32 },
    Recycle { pool: String, who: WorkerChoiceText },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WorkerChoiceText {
    One(String),
    Any,
    All,
}

/// An answer, with the version of its form in front.
#[derive(Serialize, Deserialize)]
struct ReplyRow {
    v: u32,
    recycled: Vec<String>,
    busy: Vec<String>,
    /// Only in the answer to an order to resume, which has no workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resume: Option<ResumeText>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResumeText {
    Resumed,
    NotDraining,
    Stopping,
}

/// The form in which orders are written.
const ORDER_VERSION: u32 = 1;

/// The text that keeps an order.
pub fn command_text(order: &NodeCommand) -> String {
    let order = match order.clone() {
        NodeCommand::Drain => CommandText::Drain,
        NodeCommand::Resume => CommandText::Resume,
        NodeCommand::Resize { pool, min, max } => CommandText::Resize { pool, min, max },
        NodeCommand::Recycle { pool, who } => {
            let who = match who {
                WorkerChoice::One(worker) => WorkerChoiceText::One(worker.to_string()),
                WorkerChoice::Any => WorkerChoiceText::Any,
                WorkerChoice::All => WorkerChoiceText::All,
            };
            CommandText::Recycle { pool, who }
        }
    };
    let row = CommandRow { v: ORDER_VERSION, order };
    serde_json::to_string(&row).expect("an order has only texts and numbers")
}

/// The order that a text keeps. `None`: a later version wrote it, and this one could only guess what it means.
pub fn command_from(text: &str) -> Option<NodeCommand> {
    let row: CommandRow = serde_json::from_str(text).ok()?;
    if row.v != ORDER_VERSION {
        return None;
    }
    Some(match row.order {
        CommandText::Drain => NodeCommand::Drain,
        CommandText::Resume => NodeCommand::Resume,
        CommandText::Resize { pool, min, max } => NodeCommand::Resize { pool, min, max },
        CommandText::Recycle { pool, who } => {
            let who = match who {
                WorkerChoiceText::One(worker) => WorkerChoice::One(worker.parse().ok()?),
                WorkerChoiceText::Any => WorkerChoice::Any,
                WorkerChoiceText::All => WorkerChoice::All,
            };
            NodeCommand::Recycle { pool, who }
        }
    })
}

/// The text that keeps an answer.
pub fn reply_text(reply: &Reply) -> String {
    let texts = |workers: &[WorkerId]| workers.iter().map(WorkerId::to_string).collect();
    let empty = ReplyRow { v: ORDER_VERSION, recycled: Vec::new(), busy: Vec::new(), resume: None };
    let row = match &reply.answer {
        NodeAnswer::Recycle(RecycleAnswer { recycled, busy }) => {
            ReplyRow { recycled: texts(recycled), busy: texts(busy), ..empty }
        }
        NodeAnswer::Resume(answer) => {
            let resume = match answer {
                ResumeAnswer::Resumed => ResumeText::Resumed,
                ResumeAnswer::NotDraining => ResumeText::NotDraining,
                ResumeAnswer::Stopping => ResumeText::Stopping,
            };
            ReplyRow { resume: Some(resume), ..empty }
        }
    };
    serde_json::to_string(&row).expect("an answer has only texts")
}

/// The answer to an order that a text keeps. `None`: a later version wrote it.
pub fn reply_from(number: u64, text: &str) -> Option<Reply> {
    let row: ReplyRow = serde_json::from_str(text).ok()?;
    if row.v != ORDER_VERSION {
        return None;
    }
    let ids = |texts: Vec<String>| texts.iter().filter_map(|text| text.parse().ok()).collect();
    let answer = match row.resume {
        None => NodeAnswer::Recycle(RecycleAnswer { recycled: ids(row.recycled), busy: ids(row.busy) }),
        Some(ResumeText::Resumed) => NodeAnswer::Resume(ResumeAnswer::Resumed),
        Some(ResumeText::NotDraining) => NodeAnswer::Resume(ResumeAnswer::NotDraining),
        Some(ResumeText::Stopping) => NodeAnswer::Resume(ResumeAnswer::Stopping),
    };
    Some(Reply { number, answer })
}

/// What a text keeps as JSON.
pub fn json<T: for<'a> Deserialize<'a>>(text: Option<String>) -> Readable<Option<T>> {
    text.map(|text| serde_json::from_str(&text).map_err(|error| Unreadable(error.to_string()))).transpose()
}
