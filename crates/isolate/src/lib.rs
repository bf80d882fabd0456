//! JavaScript functions as tasks: engines, limits, host processes, and the executor of a pool.
//!
//! - [`FunctionFolder`]: ES modules in a folder, one for each kind, read as a whole ([`FunctionSource`]).
//! - [`FunctionWorker`]: runs a [`FunctionCall`] within [`FunctionLimits`], in a fresh or a warm isolate ([`Reuse`]). It returns the
//!   output, or the one cause that ended the call ([`FunctionEnd`]).
//! - [`FunctionHost`]: what the embedding program does for a function. An isolate itself reaches nothing.
//! - [`Watchdog`]: stops calls from outside, and reports those that only the end of the process can end ([`DeafCall`]).
//! - [`fetch`]: the requests of functions, which the node performs for them.
//! - [`Engine`]: what a JavaScript engine offers; [`QuickJs`] is built in, and `V8` with the feature of that name.
//! - [`IsolateExecutor`]: runs the functions of a pool, in host processes ([`host_process`]) or on threads. [`IsolateKind`]: how such a
//!   pool is read from the config. [`Fetcher`]: sends the requests of functions.
//!
//! An isolate lives on one thread. What runs it is not asynchronous: a thread runs one call, and waits for its timers and answers.

mod bridge;
mod call;
mod claim_room;
mod dialect;
mod end;
mod engine;
mod engine_name;
mod executor;
mod exhaustion;
pub mod fetch;
mod function;
mod host;
pub mod host_process;
mod kind;
mod limits;
mod meter;
mod prelude;
mod pump;
mod stop;
mod timers;
mod verdict;
mod watchdog;
mod web;
mod worker;

pub use bridge::Bridge;
pub use call::{CallInfo, FunctionCall};
pub use end::{ErrorLabels, FunctionEnd, MAX_ERROR_BYTES, ThrownError};
pub use engine::quickjs::QuickJs;
#[cfg(feature = "v8")]
pub use engine::v8::{V8, V8StartError};
pub use engine::{Engine, Isolate, JobRun, PreludeEntry};
pub use engine_name::EngineName;
pub use executor::{HostProgram, IsolateExecutor, IsolateFault, IsolatePolicy, Isolation};
pub use fetch::{FetchLimits, FetchRules, FetchSession, Fetcher};
pub use function::{FunctionFault, FunctionFolder, FunctionSource, ModuleKind, ModuleText};
pub use host::{
    FetchHead, FetchRedirect, FetchRequest, FunctionHost, FunctionProgress, HostAnswer, HostCall, HostError,
    HostReply, MAX_LINE_BYTES,
};
pub use kind::IsolateKind;
pub use limits::{FunctionLimits, THREAD_STACK_BYTES};
pub use stop::{Interrupter, LimitCause};
pub use watchdog::{DeafCall, ThreadWatch, Watchdog};
pub use worker::{FunctionWorker, Reuse, WarmPolicy};
