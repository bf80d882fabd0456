//! The PostgreSQL store on real servers. Most tests share one, each with a schema of its own; those that stop or configure a server
//! have their own.

mod changes;
mod commits;
mod conformance;
mod faults;
mod idle;
mod opening;
mod order;
mod plans;
mod pooler;
mod retries;
mod tls;
mod transactions;
mod views;
