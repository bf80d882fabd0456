//! The store contract: durable storage of tasks.
//!
//! - [`Store`]: the verbs. [`calls`] has their requests and answers, [`views`] the query results, [`unique`] unique keys,
//!   [`schedules`] recurring work, [`node_commands`] commands to nodes, [`node_settings`] what nodes say of themselves, [`outbox`] outcomes to deliver,
//!   [`gates`] limits and breakers, [`accounts`] what queues share, [`call_breakers`] breakers of handlers, [`paths`] the keys and costs
//!   in payloads, [`jobs`] tasks created together, [`budgets`] money that queues may spend, [`costs`] what they spent,
//!   [`queue_records`] the queues of a survey.
//! - [`transfer`]: moving everything from one store to another.
//!
//! `ostler-conformance` has the reference implementation, which specifies the verbs, and the suite that every store passes.
//! A store makes no rules: it asks `ostler_core` and writes the answer.

pub mod accounts;
mod bounds;
pub mod budgets;
pub mod call_breakers;
pub mod calls;
mod cascade;
mod changes;
mod checks;
mod clock;
mod contract;
pub mod costs;
mod error;
pub mod events;
mod filter;
pub mod gates;
pub mod jobs;
mod lease;
pub mod node_commands;
pub mod node_settings;
pub mod outbox;
pub mod paths;
pub mod queue_records;
pub mod schedules;
mod stats;
pub mod transfer;
pub mod unique;
pub mod views;
mod wake;

pub use bounds::{
    Bounds, MAX_AFTER, MAX_AFTER_IN_CALL, MAX_BATCH, MAX_CASCADE, MAX_CLAIM, MAX_DETAILS_BYTES,
    MAX_EVENT_BYTES, MAX_EVENTS, MAX_GONE_WORKERS, MAX_ID_SCAN, MAX_KEY_BYTES, MAX_KINDS,
    MAX_MAINTENANCE_BATCH, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_NODE_COMMANDS, MAX_PAGE, MAX_READ_BYTES,
    MAX_SCHEDULES, MAX_SETTINGS_BYTES, MAX_STEPS, MAX_TEMPLATE_BYTES, MAX_UNNAMED, MAX_WORKERS, RECENT_RUNS,
    bounded, check_backlog, check_claim, check_command, check_job, check_len, check_name, check_overrides,
    check_replacement, check_reply, check_report, check_schedule, check_session, check_settings,
};
pub use cascade::release_all_dependents;
pub use changes::{ChangeWatch, Changes, LAST_POLL, Woken};
pub use checks::{Check, Checks};
pub use clock::{Clock, SystemClock};
pub use contract::Store;
pub use error::{Error, ErrorKind};
pub use lease::{Lease, LeaseRef};
pub use stats::{KindStats, Stats, Totals, WorkerCounts};
pub use wake::{Bell, Bells, Rings, Wakeups};
