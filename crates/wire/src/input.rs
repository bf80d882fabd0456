//! What users send as JSON: the bodies of requests, and the lines of `submit --jsonl`. Only shapes: `ostler-ops` reads the values.
//!
//! Fields have the names of the command line's options. An unknown field is refused, so that a typo does not pass silently.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Reads an object. Derived readers also take a list of the fields in their order, in which a mistake would go unnoticed.
///
/// # Errors
/// When it is not an object, or not one of this type.
pub fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    struct Fields<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
        type Value = T;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Fields(PhantomData))
}

fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(bound = "T: Deserialize<'de>")]
    struct Object<T>(#[serde(deserialize_with = "object")] T);
    let all: Vec<Object<T>> = Vec::deserialize(from)?;
    Ok(all.into_iter().map(|Object(one)| one).collect())
}

/// A task to submit: the options of `ostler submit` as fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskInput {
    pub queue: Option<String>,
    pub kind: Option<String>,
    /// Any JSON. Its text is kept byte by byte.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// From -100 to 100; each point is a minute's head start.
    #[cfg_attr(feature = "schema", schemars(range(min = -100, max = 100)))]
    pub priority: Option<i64>,
    /// Run after this delay, such as `5m`.
    #[serde(rename = "in")]
    pub delay: Option<String>,
    /// Run at this time, such as `2026-08-01T03:00:00Z`.
    pub at: Option<String>,
    /// A ULID that the caller makes: submitting it again changes nothing.
    pub id: Option<String>,
    /// A unique key: while another task in the queue has it, nothing is enqueued.
    pub key: Option<String>,
    /// The timeout of one attempt, such as `5m`.
    pub timeout: Option<String>,
    /// The maximum number of attempts.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub attempts: Option<u64>,
    /// The working folder, as an absolute path on the machine of the node.
    pub folder: Option<String>,
    /// The W3C trace context of the caller, which programs that run the task get as `TRACEPARENT`. Over HTTP, the header
    /// `traceparent` says the same for all tasks of a request.
    pub traceparent: Option<String>,
    /// Cancel the task instead of starting it after this time.
    pub not_after: Option<String>,
    /// Tasks with the same limit key share limits and take turns.
    pub limit_key: Option<String>,
    /// How much of the queue's rates it uses.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000_000)))]
    pub cost: Option<u64>,
    /// How long the key stays unique, such as `10m`.
    pub key_for: Option<String>,
    /// Until when the key stays unique: `removed` or `end`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["removed", "end", null])))]
    pub key_until: Option<String>,
    /// If another task has the key: `keep` it, `replace` it while it waits, or `reject` this one.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["keep", "replace", "reject", null])))]
    pub if_taken: Option<String>,
    /// Run after these tasks: ids, or `key:K` for a key in the same queue.
    #[serde(default)]
    pub after: Vec<String>,
    /// If one of those does not complete: `cancel` this task, `run` it anyway, or `wait` for a replay.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["cancel", "run", "wait", null])))]
    pub if_failed: Option<String>,
    /// Start no attempt later than this from now.
    pub deadline: Option<String>,
}

/// Many tasks to submit in one transaction.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TasksInput {
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 10_000)))]
    #[serde(deserialize_with = "objects")]
    pub tasks: Vec<TaskInput>,
}

/// Filters for tasks; all of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FilterInput {
    /// `queued`, `claimed`, `running`, `completed`, `failed` or `cancelled`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["queued", "claimed", "running", "completed", "failed", "cancelled", null])))]
    pub state: Option<String>,
    pub queue: Option<String>,
    pub kind: Option<String>,
    /// With this text in the payload, the key or the error.
    pub text: Option<String>,
    /// With this value in the payload, such as `payload.tenant=acme`.
    #[serde(rename = "where")]
    pub field: Option<String>,
    /// Whose last failure has this class, such as `timeout`.
    pub class: Option<String>,
    /// Whose last failure was at this time or later.
    pub failed_since: Option<String>,
    /// Whose last failure was before this time.
    pub failed_until: Option<String>,
    /// That ended at this time or later.
    pub ended_since: Option<String>,
    /// That ended before this time.
    pub ended_until: Option<String>,
    /// Held by a node that is dead or overdue.
    pub stale: Option<bool>,
    /// `false`: without the items of jobs.
    pub items: Option<bool>,
}

/// A number or a word, such as a limit or `none`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum NumberOrWord {
    Number(u64),
    Word(String),
}

impl NumberOrWord {
    /// As it would be written on the command line.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Word(word) => word.clone(),
        }
    }
}

/// Limits of a queue to change: the options of `ostler queue set`. `"none"` removes a limit; those left out do not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct QueueSetInput {
    /// At most this many tasks (or cost) per window: `60/m`, `100/10s`, `60/m,burst=10`.
    pub rate: Vec<String>,
    /// The same, for each limit key.
    pub key_rate: Vec<String>,
    /// At most this many running tasks, over all nodes.
    pub concurrency: Option<NumberOrWord>,
    /// At most this many running tasks of one limit key.
    pub key_concurrency: Option<NumberOrWord>,
    /// At most this many waiting tasks.
    pub queue_limit: Option<NumberOrWord>,
    /// The payload path of the limit key, such as `payload.tenant`.
    pub key: Option<String>,
    /// The payload path of a task's cost.
    pub cost: Option<String>,
    /// Such as `failures=5,reset=5m`.
    pub breaker: Option<String>,
    /// At most this much money for all its tasks, such as `$5`.
    pub budget: Option<String>,
    /// At most this much money a day.
    pub budget_per_day: Option<String>,
    /// Money to reserve for each task.
    pub reserve: Option<String>,
    /// `aging` or `strict`.
    pub priority: Option<String>,
    /// `removed` or `end`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["removed", "end", null])))]
    pub key_until: Option<String>,
}

/// Retry and timeout settings of a task to change; those left out do not change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AmendInput {
    /// The maximum number of attempts, including those made so far.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub attempts: Option<u64>,
    /// The timeout of one attempt, from the next one on.
    pub timeout: Option<String>,
    /// `fixed`, `linear` or `exponential`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["fixed", "linear", "exponential", null])))]
    pub backoff: Option<String>,
    /// The first delay.
    pub base: Option<String>,
    /// The longest delay.
    pub max: Option<String>,
}

/// A schedule to add or replace: the options of `ostler schedule add`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleInput {
    pub queue: String,
    pub kind: String,
    /// Any JSON. Its text is kept byte by byte.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// A cron expression; or give `every` or `at`.
    pub cron: Option<String>,
    /// An interval such as `10m`.
    pub every: Option<String>,
    /// A single time.
    pub at: Option<String>,
    /// The time zone of `cron`; UTC if it is left out.
    pub timezone: Option<String>,
    #[cfg_attr(feature = "schema", schemars(range(min = -100, max = 100)))]
    pub priority: Option<i64>,
    /// If the previous run has not finished: `skip`, `queue` or `replace`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["skip", "queue", "replace", null])))]
    pub overlap: Option<String>,
    /// Runs missed while no node was up: `skip`, `one` or `all`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["skip", "one", "all", null])))]
    pub missed: Option<String>,
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub attempts: Option<u64>,
    pub timeout: Option<String>,
}

/// A job to create: items for a pool of a running node. The options of `ostler map --detach --pool`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JobInput {
    /// The pool of a node's config that runs the items.
    pub pool: String,
    /// The kind of the tasks; the name of the pool if it is left out.
    pub kind: Option<String>,
    pub name: Option<String>,
    /// Texts, or objects of which each field is a column.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100_000)))]
    pub items: Vec<serde_json::Value>,
    /// What the payload of each item has besides, such as a model.
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// How many items run before the others are approved.
    pub pilot: Option<u64>,
    /// The maximum number of items that run at once.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub concurrency: Option<u64>,
    /// The maximum number of attempts of an item.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub attempts: Option<u64>,
    /// The timeout of an item, such as `5m`.
    pub timeout: Option<String>,
    /// At most this much money, such as `$5`.
    pub max_cost: Option<String>,
    /// The working folder, as an absolute path on the machine of the node.
    pub folder: Option<String>,
}

/// More items of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ItemsInput {
    /// Texts, or objects of which each field is a column.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100_000)))]
    pub items: Vec<serde_json::Value>,
}
