//! Work in child processes.
//!
//! - [`keeper`]: one small process per node. It spawns every child, sees it end, and leaves nothing of it behind, not even
//!   when the node itself is killed.
//! - [`Command`]: the executor that runs one child per task. Its arguments come from a template, its stdout is the output.
//!
//! Only the keeper sends signals: a child that it has not reaped cannot give its pid to anybody else.

mod command;
pub mod keeper;

pub use command::{Codes, Command, CommandPolicy, Environment, Input, PolicyError, TemplateError};
