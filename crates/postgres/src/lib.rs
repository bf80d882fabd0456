//! The shared store: one PostgreSQL database for any number of nodes.
//!
//! - [`Postgres`]: implements the contract. `verbs/`: the statements of each verb; what both SQL stores share is in `ostler_sql`.
//! - `transactor.rs`: runs each verb as one transaction, with retries. `commit_mark.rs`: proof of a commit. `group_commit.rs`, `batches.rs`: concurrent
//!   calls share a transaction. `tx/`: one transaction. `locks.rs`: advisory locks. `counts.rs`: lane counters without contention.
//! - `row.rs`: tasks as rows. `queue.rs`: queues. `cache.rs`: cached queues, claims and sessions.
//! - `address.rs`, `url.rs`: the URL of a store. `open.rs`, `connect.rs`, `tls.rs`, `schema.rs`: opening. [`integrity`]: checks.
//!   `pools.rs`, `session_settings.rs`: connections. `param.rs`: typed parameters. `notifier.rs`: notifications between processes.
//!   `liveness.rs`, `backend.rs`: the heartbeat connection, and detection of dead nodes.
//!   [`PostgresTarget`]: the target of a move.
//!   `inbox.rs`: tasks enqueued in a caller's own transaction. `fault.rs`: errors. `conformance.rs`: for the suite only.

mod address;
mod backend;
mod batches;
mod cache;
mod change_watch;
mod commit_mark;
#[cfg(feature = "conformance")]
mod conformance;
mod conn;
mod connect;
mod counts;
mod fault;
mod functions;
mod group_commit;
mod inbox;
pub mod integrity;
mod liveness;
mod locks;
mod move_target;
mod notifier;
mod open;
mod param;
mod pools;
mod queue;
mod row;
mod schema;
mod session_settings;
mod store;
mod tls;
mod transactor;
mod tx;
mod url;
mod verbs;

pub use address::Address;
pub use liveness::Failover;
pub use move_target::PostgresTarget;
pub use notifier::Listening;
pub use open::Options;
pub use store::Postgres;
/// The crate whose transactions [`Postgres::enqueue_in`] takes.
pub use tokio_postgres;
