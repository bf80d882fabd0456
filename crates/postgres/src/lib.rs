//! The shared store: one PostgreSQL database for any number of nodes.
//!
//! - [`Postgres`]: the contract, on top of the rest. `verbs`: the statements of each verb.
//! - `transactor.rs`: carries verbs out, each as one transaction. `commit_mark.rs`: proof that one was committed. `group_commit.rs`: calls that come at
//!   once share one. `tx`: one transaction as the verbs see it. `locks.rs`: who waits for whom. `counts.rs`: what lanes count, without anybody waiting.
//! - `row.rs`, `kept.rs`, `gate_row.rs`: rows and records. `queue.rs`: queues. `cache.rs`: what is known by heartbeat.
//! - `keys.rs`, `gates`: limit keys, rates, breakers. `unique.rs`, `dependents.rs`: plans.
//! - `address.rs`, `url.rs`: where a store is. `open.rs`, `connect.rs`, `tls.rs`, `schema.rs`: how it is opened. [`care`]: how it is.
//!   `pools.rs`, `session_settings.rs`: connections. `param.rs`: what statements are given. `notifier.rs`: hints between processes.
//!   `heartbeat.rs`, `backend.rs`: the heartbeat's connection, and how it is known that another node's is gone.
//!   [`PostgresTarget`]: a store that moves in.
//!   `inbox.rs`: tasks that come with others' transactions. `fault.rs`: what errors mean.

mod address;
mod backend;
mod cache;
mod commit_mark;
mod conn;
mod connect;
mod counts;
mod fault;
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
