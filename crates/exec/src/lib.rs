//! Executors: the contract for running work, and the two executors for Rust handlers.
//!
//! - [`Executor`]: runs one attempt and returns its outcome. [`Work`] is the input, [`Context`] the handler's
//!   view, [`AttemptResult`] the result.
//! - [`Inline`]: async handlers on the node's runtime.
//! - [`Threads`]: handlers that are not `Send`, on OS threads of their own. [`ByKind`]: both in one pool.
//! - [`ThreadPool`]: the same threads for closures that are not durable.
//! - [`Gateway`]: how a handler asks an agent, in sessions of several queries.
//! - [`Secrets`]: values for the work, which are redacted in everything that is recorded of it.
//! - `conformance` (a feature): one suite for every executor. `testing` (a feature): handlers that are called directly.
//!
//! An executor knows nothing of stores, leases or retries: whatever happens becomes an `Outcome`.

mod account;
mod breaker;
mod by_kind;
mod child_run;
mod classify;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod contract;
mod error;
mod events;
mod files;
#[cfg(feature = "anyhow")]
mod from_anyhow;
mod gateway;
mod inline;
mod liveness;
mod resources;
mod secrets;
mod steps;
mod task_calls;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;
mod unresponsive;

pub use account::{AccountFeed, AccountStore};
pub use breaker::{BreakerStore, Breakers, CallBreaker, CallPass};
pub use by_kind::ByKind;
pub use child_run::ChildRun;
pub use classify::{Classed, class_of_status, wait_of};
pub use context::Context;
pub use contract::{
    AttemptResult, ClassSource, Control, Executor, Served, Vitals, Work, WorkerFate, WorkerOpening,
};
pub use error::TaskError;
pub use events::{
    EventReceiver, EventSender, MAX_FILES, MAX_STDOUT_PIECES, QueuedEvent, Receipt, Sent, event_channel,
};
pub use files::file_event;
pub use gateway::{
    AttemptGateway, Gateway, GatewayAnswer, GatewayQuery, GatewaySession, MAX_INPUT_BYTES, MAX_OPEN_QUERIES,
    MAX_QUERIES, MAX_SESSIONS, MAX_STREAMS, NewSession, PoolGateway, QueryEnd, QueryStream, SessionOrigin,
    SessionQuery, SessionRequest,
};
pub use inline::Inline;
pub use liveness::LivenessHolder;
pub use resources::Resources;
pub use secrets::{
    MAX_SECRET_BYTES, MIN_REDACTED_BYTES, OutputRedaction, RedactedStream, Secret, SecretError, Secrets,
    is_variable_name,
};
pub use steps::{StepError, StepLookup, StepStore, Steps};
pub use task_calls::{ChildTask, TaskCallError, TaskCalls, TaskDesk, TaskInfo};
pub use thread::{
    Backpressure, BadThreadPolicy, Choice, DrainEnd, Permit, PermitRefused, Runtimes, SettingSource,
    SizeVariables, ThreadEnvironment, ThreadPolicy, ThreadPool, ThreadPoolError, ThreadStartError, Threads,
};
