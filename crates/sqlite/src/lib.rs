//! The embedded store: one SQLite file, and a folder of locks beside it.
//!
//! - `writer.rs`: the writer thread, with group commit. `turnstile.rs`: the write lock between processes.
//! - `liveness.rs`: liveness without the database. `notifier.rs`: wake-ups between processes. `lock_folder.rs`: the folder of both.
//! - `readers.rs`: reader threads. `open.rs`: opening and refusing files. `fault.rs`: errors.
//! - [`integrity`]: integrity check, version, backup. `restore.rs`: restore. `log_epoch.rs`: which write-ahead log belongs to which file.
//! - `move_source.rs`: the source of a move.
//! - `verbs/`: the statements of each verb. `tx.rs`, `counts.rs`, `row.rs`: what they share. `shared_tx.rs`: the transaction as `ostler_sql`
//!   sees it, which has what both SQL stores share.

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
