//! Pool kinds of child processes: `executor = "command"`, `executor = "adhoc"` and `executor = "process"`.
//!
//! `command.rs`, `adhoc.rs` and `process.rs` read the keys of each, `children.rs` what they share: environment, folders, sandbox, stuck work. The
//! `.toml` files are their parts of the commented default config.

mod adhoc;
pub mod children;
mod command;
mod process;

pub use adhoc::AdhocKind;
pub use command::CommandKind;
pub use process::ProcessKind;

/// The default of `max_workers` is the number of cores, but at most this.
const MOST_BY_CORES: u32 = 10;
/// The maximum of `max_log` in bytes.
pub const MAX_LOG_BYTES: u64 = 1 << 30;
/// The supervisor, as a sentence names it.
pub const SUPERVISOR: &str = "a supervisor of child processes";
