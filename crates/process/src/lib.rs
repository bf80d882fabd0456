//! Child processes: the supervisor, the command and worker executors, and sandboxes.
//!
//! - [`supervisor`]: one small process per node. It spawns every child, reaps it, and leaves nothing of it behind, not even
//!   when the node itself is killed.
//! - [`Command`]: the executor that runs one child per task. Its arguments come from templates, its stdout is the output.
//! - [`Process`]: the executor of long-lived workers in any language, over a socket.
//! - [`CommandKind`], [`ProcessKind`]: how a pool of either is read from the config. [`children`]: keys that other kinds of children
//!   share. [`injection`]: data in program text.
//! - [`Worktrees`]: a git worktree for each task.
//! - [`descriptors`]: file descriptor limits.
//! - [`Gauge`]: memory pressure. [`process_tree`]: what a worker has started.
//!
//! Only the supervisor sends signals: the pid of a child that it has not reaped cannot be reused.

mod argument;
mod command;
pub mod descriptors;
mod file_writes;
mod files;
mod folders;
pub mod injection;
mod kinds;
mod lines;
mod links;
mod memory;
mod output_files;
pub mod pipes;
mod process_tree;
mod running_children;
pub mod sandbox;
mod stall;
pub mod supervisor;
mod walk;
mod worker;
mod worktrees;

pub use argument::Argument;
pub use command::verdict::not_spawned;
pub use command::{
    Codes, Command, CommandPolicy, Environment, Input, OutputForm, PolicyError, StdoutLog, TemplateError,
};
pub use file_writes::{MAX_WRITTEN_DEPTH, write_file};
pub use files::FilePatterns;
pub use folders::{Folders, Links, TaskFolder, TaskFolders};
pub use kinds::{AdhocKind, CommandKind, MAX_LOG_BYTES, ProcessKind, SUPERVISOR, children};
pub use lines::{Lines, Tail};
pub use memory::Gauge;
pub use output_files::OutputFiles;
pub use process_tree::process_tree;
pub use running_children::RunningChildren;
pub use worker::{
    AttemptExtension, CallFuture, FrameField, MAX_FRAME_BYTES, MAX_OPEN_CALLS, MAX_PER_WORKER, Process,
    ProcessPolicy, Recycle, WorkerExtension, WorkerSocket,
};
pub use worktrees::{WorktreeKeeper, Worktrees, usual_folder as usual_worktrees};
