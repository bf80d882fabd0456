//! A durable worker pool for Rust programs.
//!
//! Open a store, register typed async handlers, start, submit, wait, drain. Once [`Pool::submit`] returns, the task is on
//! disk: even if this process is killed right after, the task runs as soon as any process with a handler for it is up.
//!
//! ```no_run
//! # use serde::{Deserialize, Serialize};
//! # #[derive(Serialize, Deserialize)] struct Resize { url: String }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = ostler::open("jobs.db")?
//!     .handle("resize", |task: Resize, ctx| async move {
//!         ctx.log(format!("fetching {}", task.url));
//!         Ok(task.url.len())
//!     })
//!     .workers(8)
//!     .start()
//!     .await?;
//! let id = pool.submit("resize", &Resize { url: "https://example.org/a.png".into() }).await?;
//! let done = pool.wait(id).await?;
//! println!("{:?}: {:?}", done.state.name(), done.output);
//! pool.drain(std::time::Duration::from_secs(30)).await;
//! # Ok(()) }
//! ```
//!
//! The store is a file, or a PostgreSQL database that any number of machines share: `ostler::open("postgres://user@host/database")`.

#![warn(missing_docs)]

mod admin;
mod builder;
mod callbacks;
mod error;
mod handover;
mod ids;
mod pool;
mod schedules;
mod store_url;

/// Runs the examples of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;

/// The PostgreSQL store without a pool, for programs that only submit: open it with
/// [`postgres::Postgres::open`](ostler_postgres::Postgres::open), then call
/// [`enqueue_in`](ostler_postgres::Postgres::enqueue_in) with a transaction of
/// [`tokio_postgres`](ostler_postgres::tokio_postgres).
pub mod postgres {
    pub use ostler_postgres::{Address, Listening, Options, Postgres, tokio_postgres};
    pub use ostler_store::calls::NewTask;
}

pub use builder::{Builder, open};
pub use callbacks::AttemptEnded;
pub use error::{OpenError, ScheduleError, SubmitError, WaitError};
pub use ids::ids;
pub use ostler_core::{
    Attempt, AttemptEnd, Backoff, BreakerPolicy, Conversation, Cost, Ending, ErrorClass, EventBody,
    EventKind, EventKinds, Failure, Jitter, KeyHold, Level, LogStream, Missed, OnConflict, OnFailed, Overlap,
    Overrides, Priority, PriorityOrder, PromptRef, Rate, Role, State, StateName, Step, Task, TaskId,
    Timestamp, ToolStatus, Trip, Usage, Worker, WorkerState,
};
pub use ostler_exec::{ChildTask, Choice, Classed, Context, Runtimes, TaskError, TaskInfo, ThreadPolicy};
#[cfg(feature = "redis")]
pub use ostler_runtime::PresenceTimes;
pub use ostler_runtime::{
    BadScheduleSpec, Drained, LeaseTimes, NodeState, ScheduleSpec, StoreNews, Unclassed,
};
pub use ostler_store::calls::Amended;
pub use ostler_store::calls::{Replay, ReplayAnswer, StepsOnReplay};
pub use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
pub use ostler_store::schedules::{ScheduleAnswer, ScheduleRecord};
pub use ostler_store::views::{Counts, Cursor, Field, Filter, Page, TaskDetail, WorkerRecord};
pub use ostler_store::{KindStats, Stats, Totals, WorkerCounts};
pub use pool::{Pool, Submission};
pub use schedules::Recurrence;
pub use store_url::{StoreUrl, StoreUrlError};
