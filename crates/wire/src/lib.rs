//! The shapes of the JSON that users see: on the command line, and later over HTTP and MCP.
//!
//! - [`task`]: a task as a list shows it, and one with all that belongs to it.
//! - [`dead`]: tasks that failed for good.
//! - [`system`]: counts, nodes and workers. [`schedule`]: schedules. [`act`]: what became of a request.
//! - [`limits`]: the limits of queues, and what holds tasks back.
//! - [`moment`]: how moments are written and read. [`json`]: texts that are JSON already.
//!
//! The shapes are stable: a field may be added, and none is renamed or taken away. What does not apply is `null`, never left
//! out. The rules of Ostler know nothing of them; they are made here from what the rules say.

pub mod action;
pub mod dead;
pub mod job;
pub mod json;
pub mod limits;
pub mod schedule;
pub mod system;
pub mod task;
pub mod time;
