//! The JSON views that users see, on the command line, over HTTP and by MCP. All of them are built here, from the records
//! of a store.
//!
//! - [`task`]: a task in a list, and a task in detail. [`remains`]: what its attempts left. [`event`]: its events.
//! - [`dead`]: tasks that failed for good. [`notice`]: what hooks receive. [`job`]: jobs of `ostler map`. [`schedule`]: schedules.
//! - [`system`]: counts, nodes, workers and findings. [`limits`]: the limits of queues, and throttled work. [`account`]: accounts. [`overview`]: all of it.
//! - [`action`]: results of actions. [`cost`]: costs and budgets. [`audit`]: changes by hand.
//! - [`input`]: what users send. [`value`], [`limit_syntax`]: single values of it. [`pool_stats`]: statistics in the shapes of other pools.
//! - [`time`]: timestamps and durations. [`json`]: raw JSON. [`bytes`]: bytes in JSON.
//! - [`transcript_page`]: the events of a task as an HTML page, for people.
//!
//! The views are stable: fields may be added, but are never renamed or removed. A field that does not apply is `null`, never left
//! out. The core crate and the store know nothing of these types.

mod about;
pub mod account;
pub mod action;
pub mod audit;
pub mod bytes;
pub mod cost;
pub mod dead;
pub mod event;
pub mod input;
pub mod job;
pub mod json;
pub mod limit_syntax;
pub mod limits;
pub mod notice;
pub mod overview;
pub mod pool_stats;
pub mod remains;
pub mod schedule;
pub mod system;
pub mod task;
pub mod time;
pub mod transcript_page;
pub mod value;
pub mod word;
