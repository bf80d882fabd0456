//! The executors of Rust handlers.

mod conformance;
mod guide_statuses;
mod thread_pool;
mod threads;
