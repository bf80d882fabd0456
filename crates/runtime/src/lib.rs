//! The node: it claims work, keeps its leases alive, has the work run, reports how it ended, and looks after the store.
//!
//! - [`Node`]: start, drain, stop. `config.rs`: its settings, checked once.
//! - `keeper.rs`: the heartbeat, on a thread of its own, and the fence.
//! - `pool.rs`: claims for one queue, as much as it has free slots. `attempt.rs`: one attempt from start to report.
//! - `finisher.rs`: reports, many in one write. `upkeep.rs`: expire, make ready, prune, and who works on what.
//! - `settings.rs`: what the node brings for its queues, compared with what others brought.
//! - `held.rs`: what this node holds, and how each of it is told to stop.

mod attempt;
mod config;
mod finisher;
mod held;
mod keeper;
mod node;
mod pool;
mod settings;
mod upkeep;

pub use config::{Beginning, InvalidConfig, LeaseTimes, NodeConfig, PoolConfig, TakeOver};
pub use node::{Drained, Ids, Node, NodeState, Parts, StartError};
pub use settings::Difference;
