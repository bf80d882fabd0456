//! The embedded store: one SQLite file, and a folder of locks beside it.
//!
//! - `writer.rs`: one thread writes, with group commit. `turnstile.rs`: how several processes take turns.
//! - `beat.rs`: proof of life without the database. `notifier.rs`: wake-ups between processes. `lock_folder.rs`: where both have
//!   their files.
//! - `readers.rs`: threads that look. `open.rs`: what is refused, and how. `fault.rs`: what errors mean.
//! - [`care`]: checks, versions and backups of the file, for whoever keeps one. `restore.rs`: a backup takes its place.
//!   `log_epoch.rs`: which log belongs to which file.
//! - `departure.rs`: how a store is moved to another place.
//! - `verbs/`: the statements of each verb. `tx.rs`, `counts.rs`, `row.rs`, `kept.rs`, `gate_row.rs`, `keys.rs`,
//!   `gates/`: what they share.

mod counts;
mod failpoints;
mod fault;
pub mod integrity;
mod liveness;
mod lock_folder;
mod log_epoch;
mod move_source;
mod notifier;
mod open;
mod readers;
mod restore;
mod row;
mod schema;
mod shared_tx;
mod store;
mod turnstile;
mod tx;
mod verbs;
mod writer;

pub use move_source::SqliteSource;
pub use store::{Durability, Options, Sqlite};
