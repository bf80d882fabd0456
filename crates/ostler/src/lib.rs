//! A durable worker pool for Rust programs.
//!
//! Open a store, register typed async handlers, start, submit, wait, drain. Once [`submit`](Client::submit) returns, the task is on
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
//! A program that only submits and looks has a [`Client`]. A [`Kind`] ties a payload type to its handler. A [`ThreadPool`] runs closures
//! that are not `Send` on threads of their own, and stores nothing.
//!
//! Features: `sqlite` and `postgres` are the stores, both on by default. `process` serves queues with commands and with worker
//! processes, `agent` with command-line agents such as Claude Code and with models over HTTP, `isolate` with
//! JavaScript functions (`v8`: by that engine), `connect` has a client of a node over HTTP ([`connect`]), `redis` announces the pool to monitors, `anyhow` is for handlers that return `anyhow::Result`, and `testing` has a
//! store and a handler's context for tests.

#![warn(missing_docs)]

mod admin;
#[cfg(feature = "agent")]
pub mod agent;
mod builder;
mod callbacks;
mod client;
mod error;
mod handover;
mod ids;
#[cfg(feature = "isolate")]
pub mod isolate;
mod job_builder;
mod jobs;
mod kind;
#[cfg(feature = "agent")]
pub mod llm;
mod opening;
mod pool;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "connect")]
mod remote;
mod run;
mod schedules;
mod store_url;
mod submit;

/// Runs the examples of the guide as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct Guide;

/// For tests: calls a handler directly, with a payload and a context that no node made.
#[cfg(feature = "testing")]
pub mod testing {
    pub use ostler_exec::testing::{TestAttempt, TestRun};
}

/// What a node answers to a [`RemoteClient`], and what it takes: the JSON of the API.
#[cfg(feature = "connect")]
pub mod view {
    pub use ostler_wire::{account, action, dead, event, input, job, json, limits, system, task, time};
}

/// The PostgreSQL store without a pool, for programs that only submit: open it with
/// [`postgres::Postgres::open`](ostler_postgres::Postgres::open), then call
/// [`enqueue_in`](ostler_postgres::Postgres::enqueue_in) with a transaction of
/// [`tokio_postgres`](ostler_postgres::tokio_postgres).
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use ostler_postgres::{Address, Listening, Options, Postgres, tokio_postgres};
    pub use ostler_store::calls::NewTask;
}

pub use admin::TaskFile;
#[cfg(feature = "testing")]
pub use builder::open_memory;
pub use builder::{Builder, open};
pub use callbacks::AttemptEnded;
pub use client::Client;
pub use error::{OpenError, ResultError, ScheduleError, SubmitError, WaitError};
pub use ids::ids;
pub use job_builder::{JobBuilder, JobError};
pub use jobs::Job;
pub use kind::Kind;
pub use ostler_core::{
    Account, AccountChange, AccountHold, AccountReading, AccountWindow, Attempt, AttemptEnd, Backoff,
    BreakerPolicy, BreakerState, Budget, Conversation, Cost, Ending, ErrorClass, EventBody, EventKind,
    EventKinds, Failure, Jitter, JobId, KeyHold, Level, LogStream, Missed, OnConflict, OnFailed, Overlap,
    Overrides, Priority, PriorityOrder, PromptRef, Rate, Role, State, StateName, Step, Task, TaskId,
    Timestamp, ToolStatus, Traceparent, Trip, Usage, UsageSource, Worker, WorkerState,
};
pub use ostler_exec::{
    AttemptGateway, BadThreadPolicy, CallBreaker, ChildRun, ChildTask, Choice, Classed, Context, DrainEnd,
    GatewayAnswer, GatewayQuery, GatewaySession, QueryStream, Runtimes, SessionRequest, SettingSource,
    TaskError, TaskInfo, ThreadEnvironment, ThreadPolicy, ThreadPool, ThreadPoolError, ThreadStartError,
};
pub use ostler_ops::jobs::JobTotals;
pub use ostler_ops::jobs::pilot::PilotResult;
#[cfg(feature = "redis")]
pub use ostler_runtime::PresenceTimes;
pub use ostler_runtime::{
    BadScheduleSpec, Drained, LeaseTimes, NodeState, ScheduleSpec, StoreNews, Unclassed,
};
pub use ostler_store::accounts::AccountRecord;
pub use ostler_store::call_breakers::CallBreakerRecord;
pub use ostler_store::calls::Amended;
pub use ostler_store::calls::{Replay, ReplayAnswer, StepsOnReplay};
pub use ostler_store::costs::{CostBy, CostKey, CostQuery, CostRecord, CostSums};
pub use ostler_store::events::{Event, EventQuery, TextPart, TextRef};
pub use ostler_store::jobs::{JobRecord, NewJob};
pub use ostler_store::node_commands::ResumeAnswer;
pub use ostler_store::schedules::{ScheduleAnswer, ScheduleRecord};
pub use ostler_store::views::{
    Counts, Cursor, Field, Filter, GoneWorker, Page, TaskDetail, WorkerEnd, WorkerRecord,
};
pub use ostler_store::{KindStats, Stats, Totals, WorkerCounts};
pub use pool::Pool;
#[cfg(feature = "connect")]
pub use remote::{
    ApiMethod, ApiRequest, BulkAction, DEFAULT_NODE, EventsPage, Follow, LettersPage, Live, LiveState,
    RemoteClient, RemoteError, RemoteErrorKind, RemoteJob, TasksPage, connect, filter_input,
};
pub use run::AgentRun;
pub use schedules::Recurrence;
pub use store_url::{StoreUrl, StoreUrlError};
pub use submit::{Submission, Submit};
