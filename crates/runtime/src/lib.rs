//! The node: claims tasks, keeps their leases alive, runs attempts, reports outcomes, and maintains the store.
//!
//! - `node.rs`: start, drain, stop. `node_handle.rs`: what can be asked of a node. `sessions.rs`: the sequence of sessions.
//!   `session.rs`: one session from join to end. `config.rs`: settings, checked once. `sizes.rs`: pool sizes.
//!   `lifecycle.rs`: the state of the node, and fencing.
//! - `node_thread.rs`: the node's own thread. `handler_runtime.rs`: the runtimes that attempts run on.
//! - `heartbeat.rs`: heartbeat and self-fencing, on a dedicated thread. `leases.rs`: held leases and their stop signals.
//!   `orphans.rs`: leases that the store has for the node, but the node does not know.
//! - `pool.rs`: claims for one queue and scales the workers. `running_pool.rs`: its end. `pool_requests.rs`: pools that are
//!   added and removed while the node runs. `workers.rs`: the worker set and its backlog. `worker_sets.rs`: those of all pools.
//!   `worker_loop.rs`: one worker. `attempt.rs`: one attempt from start to report. `prefetch.rs`: how far to claim ahead.
//! - `finisher.rs`: batched reports. `maintenance.rs`: expire, make ready, prune, and report workers.
//! - `start_backoff.rs`: backoff for workers that fail to start. `recycler.rs`: recycles workers on command.
//! - `steps.rs`: durable steps of an attempt. `task_desk.rs`: tasks that it submits and looks up. `handler_options.rs`: options of handlers.
//! - `call_breakers.rs`: durable breakers around calls of handlers.
//! - `outbox.rs`: delivers outcomes to listeners after the commit.
//! - `settings_conflict.rs`: compares the queue settings of nodes.
//! - `schedules.rs`: fires schedules that are due. `ostler-schedule` knows when that is.
//! - `presence/mod.rs`: announces the node in Redis (feature `redis`).
//! - `store_health.rs`: whether the store can be used, and notifications about it. `watched_store.rs`: reports the result
//!   of each store call there.
//! - `telemetry/mod.rs`: every `tracing` event, and the counters. `breaker_watch.rs`: notices breakers that open and close.

mod account_writer;
mod attempt;
mod breaker_watch;
mod call_breakers;
mod config;
mod event_writer;
mod finisher;
mod handler_options;
mod handler_runtime;
mod heartbeat;
mod leases;
mod lifecycle;
mod maintenance;
mod node;
mod node_handle;
mod node_thread;
mod orphans;
mod outbox;
mod pool;
mod pool_requests;
mod prefetch;
mod presence;
mod recycler;
mod running_pool;
mod schedules;
mod session;
mod sessions;
mod settings_conflict;
mod sizes;
mod start_backoff;
mod steps;
mod store_health;
mod task_desk;
mod telemetry;
mod watched_store;
mod worker_loop;
mod worker_sets;
mod workers;

pub use config::{
    InvalidConfig, LeaseTimes, MemoryGauge, MetricsService, NodeConfig, PoolConfig, PoolSize, Prefetch,
    StartMode, TakeOver, Unclassed,
};
pub use lifecycle::NodeState;
pub use node::{Drained, Ids, Node, NodeDeps, StartError, Stopper};
pub use node_handle::{DrainWait, NodeHandle};
pub use ostler_schedule::{BadScheduleSpec, Interval, PlannedSchedule, ScheduleSpec, local_timezone};
pub use outbox::EndListener;
pub use pool_requests::AddPoolError;
pub use presence::Presence;
#[cfg(feature = "redis")]
pub use presence::{BadRedisAddress, PresenceStatus, PresenceTimes, RedisAddress, RedisFault};
pub use settings_conflict::{SettingsConflict, brings_settings};
pub use store_health::{StoreHealth, StoreNews};
pub use telemetry::{
    AttemptOutcome, CounterSnapshot, HistogramSnapshot, LaneSnapshot, PoolSnapshot, Telemetry,
};
pub use workers::Reservation;
