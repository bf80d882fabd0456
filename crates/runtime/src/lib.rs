//! The node: it claims work, keeps its leases alive, has the work run, reports how it ended, and looks after the store.
//!
//! - [`Node`]: start, drain, stop, and from term to term. `term.rs`: one session from its join to its end. `config.rs`: its
//!   settings, checked once. `sizes.rs`: how many workers its pools have.
//! - `house.rs`: the thread that all of this lives on. `stages.rs`: the runtime that attempts run on.
//! - `heartbeat.rs`: the heartbeat, on a thread of its own, and the fence. `orphans.rs`: leases that the store has for the node, and the node has not.
//! - `pool.rs`: claims for one queue what its workers can run, and says how many there are. `workers.rs`: the workers, and what
//!   waits for them. `hand.rs`: one worker. `attempt.rs`: one attempt from start to report. `pace.rs`: how far to claim ahead.
//! - `finisher.rs`: reports, many in one write. `upkeep.rs`: expire, make ready, prune, and who works on what.
//! - `starts.rs`: what follows when workers do not come up. `recycler.rs`: workers that are replaced by order.
//! - `steps.rs`: the steps of an attempt, kept in the store.
//! - `teller.rs`: tells whoever listens how attempts ended, after the commit.
//! - `settings.rs`: what the node brings for its queues, compared with what others brought.
//! - `calendar.rs`, `cron.rs`: when a schedule runs. `schedules.rs`: fires what is due.
//! - `presence/mod.rs`: tells Redis that the node is there (feature `redis`).
//! - `store_health.rs`: whether the store can be used, and what is said of it. `watched_store.rs`: reports there how each verb went.
//! - `held.rs`: what this node holds, and how each of it is told to stop. `stand.rs`: where it stands, and the fence.

mod attempt;
mod config;
mod cron;
mod finisher;
mod handler_runtime;
mod heartbeat;
mod leases;
mod lifecycle;
mod maintenance;
mod node;
mod node_thread;
mod orphans;
mod outbox;
mod pool;
mod prefetch;
mod presence;
mod recycler;
mod schedule_spec;
mod schedules;
mod session;
mod settings_conflict;
mod sizes;
mod start_backoff;
mod steps;
mod store_health;
mod watched_store;
mod worker_loop;
mod workers;

pub use config::{
    InvalidConfig, LeaseTimes, MemoryGauge, NodeConfig, PoolConfig, PoolSize, Prefetch, StartMode, TakeOver,
    Unclassed,
};
pub use cron::CronLine;
pub use lifecycle::NodeState;
pub use node::{Drained, Ids, Node, NodeDeps, StartError, Stopper};
pub use outbox::EndListener;
pub use pool::WORKERS_FAIL;
pub use presence::Presence;
#[cfg(feature = "redis")]
pub use presence::{BadRedisAddress, PresenceStatus, PresenceTimes, RedisAddress, RedisFault};
pub use schedule_spec::{BadScheduleSpec, Interval, ScheduleSpec};
pub use schedules::PlannedSchedule;
pub use settings_conflict::{LIMIT_SETTINGS, SettingsConflict};
pub use store_health::{StoreHealth, StoreNews};
