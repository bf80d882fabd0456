//! JavaScript functions as tasks: the part that needs no node.
//!
//! - [`FunctionFolder`]: ES modules in a folder, one for each kind, read as a whole ([`FunctionSource`]).
//! - [`FunctionWorker`]: runs a [`FunctionCall`] within [`FunctionLimits`], in a fresh or a warm isolate ([`Reuse`]). It returns the
//!   output, or the one cause that ended the call ([`FunctionEnd`]).
//! - [`FunctionHost`]: what the embedding program does for a function. An isolate itself reaches nothing.
//! - [`Watchdog`]: stops calls from outside, and reports those that only the end of the process can end ([`DeafCall`]).
//! - [`Engine`]: what a JavaScript engine offers; [`QuickJs`] is built in.
//!
//! An isolate lives on one thread. Nothing here is asynchronous: a thread runs one call, and waits for its timers and answers.

mod bridge;
mod call;
mod end;
mod engine;
mod function;
mod host;
mod limits;
mod meter;
mod prelude;
mod pump;
mod stop;
mod timers;
mod watchdog;
mod web;
mod worker;

pub use bridge::Bridge;
pub use call::{CallInfo, FunctionCall};
pub use end::{FunctionEnd, MAX_ERROR_BYTES, ThrownError};
pub use engine::quickjs::QuickJs;
pub use engine::{Engine, Isolate, JobRun, PreludeEntry};
pub use function::{FunctionFault, FunctionFolder, FunctionSource, ModuleKind, ModuleText};
pub use host::{
    FetchHead, FetchRequest, FunctionHost, FunctionProgress, HostAnswer, HostCall, HostError, HostReply,
    MAX_LINE_BYTES,
};
pub use limits::{FunctionLimits, THREAD_STACK_BYTES};
pub use stop::{Interrupter, LimitCause};
pub use watchdog::{DeafCall, ThreadWatch, Watchdog};
pub use worker::{FunctionWorker, Reuse, WarmPolicy};
