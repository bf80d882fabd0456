//! The program as its users run it: the real binary, on its own store, in parallel.
//!
//! `ostler.rs` runs it; `hands.rs` does to the store what a node would do, so that most tests need no node.
//! `store_lost.rs` takes the store away from a node; `presence.rs` has a real Redis, and `pooler.rs` a real PgBouncer;
//! `postgres.rs`, `together.rs` and `away.rs` have a real server, and many nodes on it; `shared.rs` is the store on that server.

mod accounts;
mod act;
mod agents;
mod away;
mod bad_input;
mod bar;
mod budgets;
mod changes;
mod crowd;
mod db;
mod dead;
mod descriptors;
mod failed_output;
mod files;
mod guide;
mod hands;
mod help;
mod hooks;
mod id_parts;
mod item_folders;
mod jobs;
mod json;
mod limited;
mod limits;
mod list;
mod liveness;
mod log;
mod logs;
mod map;
mod moving;
mod ostler;
mod pipes;
mod plans;
mod pool_jobs;
mod pooler;
mod postgres;
mod presence;
mod real_agents;
mod sandbox;
mod schedule;
mod secrets;
mod settings;
mod shared;
mod stopped;
mod store_lost;
mod submit;
mod submit_lines;
mod terminal;
mod together;
mod ulimits;
mod up;
mod workers;
mod worktrees;
