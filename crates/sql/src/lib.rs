//! What the SQLite and PostgreSQL stores share: stored formats, and every rule-bearing verb that is not on the hot path.
//!
//! - `codec.rs`, `gate_codec.rs`, `phase.rs`: what columns hold. `dialect.rs`: one statement text for both databases.
//! - `tx.rs`: the transaction and snapshot traits that each store implements. `value.rs`: parameters and rows.
//! - `task.rs`, `queue.rs`: tasks and queues as a transaction sees them.
//! - `limit_keys.rs`, `gates/`, `unique.rs`, `dependents.rs`: limit keys, gates, unique keys, and tasks that wait for others.
//! - `claim.rs`: a claim from a queue with limits.
//! - `end_attempt.rs`, `outbox.rs`: the end of an attempt, and the entries that it leaves for hooks and callbacks.
//! - `queries/`: lists of tasks, one task in detail. `events.rs`, `chunks.rs`: its events, and long texts.
//! - `views.rs`: the tables that people read. `integrity.rs`: what a check finds in rows.
//! - `make_ready.rs`, `prune.rs`, `sessions.rs`, `gone_workers.rs`, `call_breakers.rs`, `accounts.rs`, `budgets.rs`, `costs.rs`, `cancel.rs`,
//!   `replay.rs`, `amend.rs`, `configure.rs`, `schedules.rs`, `jobs.rs`, `node_commands.rs`: the verbs of these names.

pub mod accounts;
pub mod amend;
pub mod budgets;
pub mod call_breakers;
pub mod cancel;
pub mod chunks;
pub mod claim;
pub mod codec;
pub mod configure;
pub mod costs;
pub mod dependents;
pub mod dialect;
pub mod end_attempt;
pub mod events;
pub mod gate_codec;
pub mod gates;
pub mod gone_workers;
pub mod integrity;
pub mod jobs;
pub mod limit_keys;
pub mod make_ready;
pub mod node_commands;
pub mod outbox;
pub mod phase;
pub mod prune;
pub mod queries;
pub mod queue;
pub mod replay;
pub mod schedules;
pub mod sessions;
pub mod task;
pub mod tx;
pub mod unique;
pub mod value;
pub mod views;

pub use phase::{Mishaps, Phase};
pub use queue::{KeyRules, QueueRow};
pub use task::FoundTask;
pub use tx::{Snapshot, Tx, poll_now};
pub use value::{Cell, Column, Row, ToValue, Unreadable, Value};
