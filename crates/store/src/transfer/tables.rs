//! Tables and columns of a move, in the order in which they are copied.
//!
//! Both stores hold the same facts, each in its own way. The names here are those of the columns in both; other columns of a store
//! are derived from these, or belong to live nodes, and none is alive when the copy starts. A test in each store compares this
//! list with its schema, so that a new column is either copied or named there.

/// A table to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Queues with their settings, pauses, virtual times and gates.
    Queue,
    /// Lanes with their counters, including former tasks.
    Lane,
    /// Sessions, all of which have ended.
    Session,
    /// Limit keys, with the state of their gates.
    Limits,
    /// Limit keys without tasks whose gates have state.
    UnusedKey,
    Task,
    UniqueKey,
    /// Dependencies between tasks.
    Edge,
    /// Ended tasks with unprocessed dependents.
    Freed,
    Attempt,
    Step,
    Event,
    /// Long texts of events, and long outputs, in parts.
    Chunk,
    /// What attempts asked of models.
    Conversation,
    /// Outbox entries.
    Outbox,
    Schedule,
    Job,
    /// The last records of workers that are gone.
    GoneWorker,
    /// Breakers around calls of handlers.
    CallBreaker,
    Account,
    /// What queues with a budget have spent.
    Spending,
    /// Costs by day, queue, pool, account and model.
    Spent,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An integer, or a timestamp in milliseconds.
    Number,
    /// A boolean, as 1 and 0.
    Flag,
    Text,
    /// The sixteen bytes of an id.
    Id,
    Bytes,
    /// A short list of integers.
    Numbers,
}

/// A column to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name, in both stores.
    pub name: &'static str,
    pub kind: Kind,
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Flag }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

const fn id(name: &'static str) -> Column {
    Column { name, kind: Kind::Id }
}

const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes }
}

const fn numbers(name: &'static str) -> Column {
    Column { name, kind: Kind::Numbers }
}

impl Table {
    /// All tables, in the order in which they are copied: a row comes after those that it refers to.
    pub const ALL: [Self; 22] = [
        Self::Queue,
        Self::Lane,
        Self::Session,
        Self::Limits,
        Self::UnusedKey,
        Self::Task,
        Self::UniqueKey,
        Self::Edge,
        Self::Freed,
        Self::Attempt,
        Self::Step,
        Self::Event,
        Self::Chunk,
        Self::Conversation,
        Self::Outbox,
        Self::Schedule,
        Self::Job,
        Self::GoneWorker,
        Self::CallBreaker,
        Self::Account,
        Self::Spending,
        Self::Spent,
    ];

    /// The name, in both stores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Lane => "lane",
            Self::Session => "session",
            Self::Limits => "limits",
            Self::UnusedKey => "unused_key",
            Self::Task => "task",
            Self::UniqueKey => "unique_key",
            Self::Edge => "edge",
            Self::Freed => "freed",
            Self::Attempt => "attempt",
            Self::Step => "step",
            Self::Event => "event",
            Self::Chunk => "chunk",
            Self::Conversation => "conversation",
            Self::Outbox => "outbox",
            Self::Schedule => "schedule",
            Self::Job => "job",
            Self::GoneWorker => "gone_worker",
            Self::CallBreaker => "call_breaker",
            Self::Account => "account",
            Self::Spending => "spending",
            Self::Spent => "spent",
        }
    }

    /// The number of leading columns that form the key. Rows are copied in key order, which is the same in both stores.
    #[must_use]
    pub const fn key(self) -> usize {
        match self {
            Self::Queue
            | Self::Lane
            | Self::Session
            | Self::Limits
            | Self::UnusedKey
            | Self::Task
            | Self::Freed
            | Self::Outbox
            | Self::Schedule
            | Self::Job
            | Self::GoneWorker
            | Self::CallBreaker
            | Self::Account
            | Self::Spending => 1,
            Self::Chunk => 3,
            Self::Spent => 5,
            Self::UniqueKey | Self::Edge | Self::Attempt | Self::Step | Self::Event | Self::Conversation => 2,
        }
    }

    /// The columns to copy.
    #[must_use]
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Queue => QUEUE,
            Self::Lane => LANE,
            Self::Session => SESSION,
            Self::Limits => LIMITS,
            Self::UnusedKey => UNUSED_KEY,
            Self::Task => TASK,
            Self::UniqueKey => UNIQUE_KEY,
            Self::Edge => EDGE,
            Self::Freed => FREED,
            Self::Attempt => ATTEMPT,
            Self::Step => STEP,
            Self::Event => EVENT,
            Self::Chunk => CHUNK,
            Self::Conversation => CONVERSATION,
            Self::Outbox => OUTBOX,
            Self::Schedule => SCHEDULE,
            Self::Job => JOB,
            Self::GoneWorker => GONE_WORKER,
            Self::CallBreaker => CALL_BREAKER,
            Self::Account => ACCOUNT,
            Self::Spending => SPENDING,
            Self::Spent => SPENT,
        }
    }
}

const QUEUE: &[Column] = &[
    number("id"),
    text("name"),
    text("paused"),
    number("max_queued"),
    number("key_cap"),
    text("overrides"),
    text("kinds"),
    text("tell"),
    text("rules"),
    number("clock"),
    text("gate"),
    text("account"),
    text("pool"),
];

const LANE: &[Column] = &[
    number("id"),
    number("queue"),
    text("kind"),
    number("queued"),
    number("claimed"),
    number("running"),
    number("completed"),
    number("failed"),
    number("cancelled"),
    number("pruned_completed"),
    number("pruned_failed"),
    number("pruned_cancelled"),
    number("high_water"),
    numbers("recent"),
    number("attempts"),
    number("retried"),
    number("replayed_failed"),
    number("replayed_cancelled"),
];

const SESSION: &[Column] = &[
    number("id"),
    id("uid"),
    text("name"),
    number("pid"),
    text("version"),
    number("ttl_ms"),
    text("settings"),
    number("joined_at"),
    number("ended_at"),
    flag("swept"),
];

const LIMITS: &[Column] = &[
    number("id"),
    number("queue"),
    text("key"),
    number("used"),
    number("tasks"),
    number("last"),
    text("gate"),
    number("shut_why"),
    number("shut_until"),
];

const UNUSED_KEY: &[Column] = &[number("id"), number("limit_id")];

const TASK: &[Column] = &[
    number("id"),
    id("uid"),
    number("lane"),
    number("phase"),
    number("why"),
    number("rank"),
    number("priority"),
    number("run_at"),
    number("token"),
    number("session"),
    number("runs"),
    number("failures"),
    number("trouble"),
    number("created_at"),
    number("started_at"),
    number("finished_at"),
    number("cancel_at"),
    number("late_at"),
    number("limit_id"),
    bytes("ran"),
    text("extras"),
    text("failure"),
    text("payload"),
    text("output"),
];

const UNIQUE_KEY: &[Column] = &[number("queue"), text("key"), number("task"), number("until")];
const EDGE: &[Column] = &[number("task"), number("after"), number("on_failed")];
const FREED: &[Column] = &[number("task"), number("reached")];

const ATTEMPT: &[Column] = &[
    number("task"),
    number("number"),
    number("token"),
    id("session"),
    id("worker"),
    number("started_at"),
    number("finished_at"),
    text("ending"),
    text("failure"),
];

const STEP: &[Column] =
    &[number("task"), text("name"), number("place"), text("value"), number("saved_at"), number("token")];
const EVENT: &[Column] = &[
    number("task"),
    number("number"),
    number("at"),
    number("token"),
    number("kind"),
    text("data"),
    number("version"),
    text("text"),
];

const CHUNK: &[Column] = &[number("task"), number("owner"), number("part"), number("size"), bytes("bytes")];

const CONVERSATION: &[Column] =
    &[number("task"), number("token"), text("session"), number("prompt"), text("usage")];

const OUTBOX: &[Column] = &[
    number("number"),
    number("queue"),
    number("lane"),
    number("task"),
    number("session"),
    number("attempt"),
    number("what"),
    number("at"),
    text("failure"),
    number("run_at"),
    text("subscriber"),
    number("taken"),
];

const SCHEDULE: &[Column] = &[
    text("name"),
    text("spec"),
    number("overlap"),
    number("missed"),
    text("queue"),
    text("kind"),
    text("payload"),
    number("priority"),
    text("overrides"),
    number("activity"),
    number("next_at"),
    number("last_at"),
    id("last_task"),
];

const JOB: &[Column] = &[
    id("id"),
    text("name"),
    text("queue"),
    text("fingerprint"),
    text("spec"),
    number("items"),
    number("made_at"),
    number("cancelled_at"),
];

const GONE_WORKER: &[Column] = &[
    number("number"),
    id("session"),
    text("node"),
    id("id"),
    text("pool"),
    number("pid"),
    number("state"),
    number("memory_bytes"),
    number("started_at"),
    number("done"),
    number("failed"),
    number("how"),
    number("gone_at"),
    text("name"),
];

const CALL_BREAKER: &[Column] = &[text("name"), text("state"), number("changed_at")];

const ACCOUNT: &[Column] = &[
    text("name"),
    number("cap"),
    number("held_until"),
    text("held_why"),
    number("window_milli"),
    number("lowered_at"),
    text("allowance"),
    number("used_permille"),
    number("resets_at"),
];

const SPENDING: &[Column] = &[
    text("queue"),
    number("spent"),
    number("reserved"),
    number("in_flight"),
    number("day"),
    number("spent_today"),
    text("recent"),
];

const SPENT: &[Column] = &[
    number("day"),
    text("queue"),
    text("pool"),
    text("account"),
    text("model"),
    number("runs"),
    number("input"),
    number("output"),
    number("cache_read"),
    number("cache_write"),
    number("reasoning"),
    number("cost"),
    number("estimated"),
];
