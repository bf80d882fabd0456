//! Work in child processes.
//!
//! - [`supervisor`]: one small process per node. It spawns every child, sees it end, and leaves nothing of it behind, not even
//!   when the node itself is killed.
//! - [`Command`]: the executor that runs one child per task. Its arguments come from a template, its stdout is the output.
//! - [`Process`]: the executor of long-lived workers in any language, which talk over a socket.
//! - [`descriptors`]: how many files a node may have open, and how many it needs.
//! - [`Gauge`]: whether there is memory for more work.
//!
//! Only the supervisor sends signals: a child that it has not reaped cannot give its pid to anybody else.

mod argument;
mod command;
pub mod descriptors;
mod files;
mod folders;
mod lines;
mod links;
mod memory;
pub mod sandbox;
pub mod supervisor;
mod walk;
mod worker;

pub use argument::Argument;
pub use command::{
    Codes, Command, CommandPolicy, Environment, Input, OutputForm, PolicyError, TemplateError,
};
pub use folders::Folders;
pub use memory::Gauge;
pub use worker::{MAX_FRAME_BYTES, Process, ProcessPolicy, Recycle};
