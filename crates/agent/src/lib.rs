//! Command-line agents (claude, codex, gemini, opencode, any other program): what to start, what their lines mean, why they ended, what they cost.
//!
//! Only [`executor`] does I/O: it spawns the process, moves the bytes, and does what the facts say. All else is without I/O and clocks:
//!
//! ```text
//! AgentSettings ──► Dialect::plan ──► LaunchPlan     program, arguments, environment, files, standard input
//!       │
//!       └──► Dialect::run ──► AgentRun
//!                               open()        ─► facts: store the prompt and the session, send the first line
//!         bytes ─► LineSplitter ─► line(…)    ─► facts: events of the transcript, cost, limits, tools in flight, lines to send
//!                               interrupt()   ─► facts: lines to send
//!         exit, stderr, now ──► end(…)        ─► RunReport: an answer or a Trouble with its Reason, and usage not yet reported
//! ```
//!
//! Facts are handled in their order. In particular a session is stored before the line after it is sent: a request that was paid
//! for belongs to a conversation that the next attempt can resume.
//!
//! A dialect turns the lines of one program into facts that are the same for all. It has a folder in `dialect`, and knows the names of
//! fields, flags and messages; everything else in this crate knows none. What a dialect relies on was recorded from the real programs:
//! `tests/recordings` has the lines, `tests/expected` what is read from them.
//!
//! - [`settings`], [`launch`], [`environment`]: how a run is started. [`version`]: whether the program can be used.
//! - [`lines`], [`fact`], [`transcript`]: what it writes. [`ending`], [`reason`], [`reset`]: why it ended, and when it may go on.
//! - [`price`]: what tokens cost. [`prompt`]: templates.
//! - [`gateway`]: sessions with an agent of this node, or with a server elsewhere.
//! - [`executor`]: runs them. [`AgentKind`]: how a pool of them is read from the config.
//! - [`llm`]: models over HTTP, without an agent.

pub mod dialect;
pub mod ending;
pub mod environment;
pub mod executor;
pub mod fact;
pub mod gateway;
mod json;
mod kind;
pub mod launch;
pub mod lines;
pub mod llm;
mod meter;
pub mod prompt;
pub mod reason;
pub mod reset;
pub mod settings;
pub mod transcript;
pub mod version;

pub use dialect::{AgentProduct, AgentRun, Dialect, LogLine};
pub use ending::{AgentAnswer, AgentEnd, ProcessEnd, ProcessExit, RunReport, StopCause, Trouble};
pub use executor::{AgentExecutor, AgentPolicy};
pub use fact::{Fact, LimitWindow};
pub use kind::AgentKind;
pub use launch::{LaunchPlan, PlanError, PromptInput};
pub use lines::LineSplitter;
pub use llm::{LlmApi, LlmExecutor, LlmKind, LlmPolicy};
pub use ostler_core::price::{self, Price, PriceTable};
pub use reason::{FollowUp, Reason};
pub use settings::AgentSettings;
