//! The JSON views that users see: on the command line, and later over HTTP and MCP.
//!
//! - [`task`]: a task in a list, and a task in detail. [`job`]: jobs of `ostler map`.
//! - [`dead`]: tasks that failed for good. [`event`]: events of a task.
//! - [`system`]: counts, nodes and workers. [`schedule`]: schedules. [`action`]: results of actions.
//! - [`limits`]: the limits of queues, and throttled work.
//! - [`time`]: timestamps. [`json`]: raw JSON.
//!
//! The views are stable: fields may be added, but are never renamed or removed. A field that does not apply is `null`, never left
//! out. The core crate knows nothing of these types; they are built here from its types.

pub mod action;
pub mod dead;
pub mod event;
pub mod job;
pub mod json;
pub mod limits;
pub mod schedule;
pub mod system;
pub mod task;
pub mod time;
