//! The use cases: what a command, an HTTP route or an MCP tool does, without parsing or printing.
//!
//! - [`task_name`]: ids, parts of ids, and keys. [`selection`]: tasks by name or by filter. [`act`]: cancel, replay, copy and
//!   drop them, in bounded batches.
//! - [`tasks`]: find, list, show and amend tasks. [`submit`]: enqueue a task, and wait for it. [`obstacle`]: why one does not start.
//!   [`logs`]: pages of events. [`progress`]: how far running tasks have come.
//!   [`output`]: what an attempt wrote. [`continuation`]: go on with a conversation.
//!   [`run`]: a prompt for a pool of agents. [`added`]: commands for the caller's folder.
//! - [`overview`]: the views of the system as a whole. [`queues`]: pause, limits, holds and breakers. [`accounts`]: limits that queues
//!   share. [`cost`]: costs. [`budgets`]: which ones can be kept. [`figures`]: what the store holds, for metrics.
//! - [`nodes`]: drain and resize. [`recycle`]: replace workers. [`schedules`]: recurring tasks. [`jobs`]: batches of tasks.
//!   [`prune`]: remove old tasks.
//! - [`input`]: input of users, read into requests. [`idempotency`]: ids from idempotency keys. [`bulk`]: actions on all tasks that match a
//!   filter, with a preview and a cut-off. [`pool_stats`]: statistics in the shapes of other pools.
//! - [`doctor`]: the rules that find problems, over facts that the caller gathers. `hooks` (a feature): what follows when a
//!   task has failed for good.
//!
//! A function takes a store and plain arguments, and returns a view of `ostler-wire` or a typed answer. What the user did not
//! expect is an [`OpsError`]; the caller decides how to report it.

pub mod accounts;
pub mod act;
pub mod added;
pub mod budgets;
pub mod bulk;
pub mod continuation;
pub mod cost;
pub mod doctor;
mod error;
pub mod figures;
#[cfg(feature = "hooks")]
pub mod hooks;
pub mod idempotency;
pub mod input;
pub mod jobs;
pub mod logs;
pub mod nodes;
pub mod obstacle;
pub mod output;
pub mod overview;
pub mod pool_stats;
pub mod progress;
pub mod prune;
mod published;
pub mod queues;
pub mod recycle;
pub mod reply;
pub mod run;
pub mod schedules;
pub mod selection;
pub mod submit;
pub mod task_name;
pub mod tasks;
pub mod waiting;

pub use error::{Missing, OpsError, Refusal, Unsuccessful};
