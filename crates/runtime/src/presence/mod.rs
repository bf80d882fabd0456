//! Presence: announces a node in Redis for external monitors. A hint only: no decision about work depends on it, and work
//! continues without it.
//!
//! - `announcer.rs`: the heartbeat task. `beat.rs`: which event to send, and the backoff.
//! - `event.rs`: the JSON. `link.rs`: one connection, with bounded waits. `address.rs`: the Redis address.
//!
//! `disabled.rs` replaces all of it without the feature `redis`.

#[cfg(feature = "redis")]
mod address;
#[cfg(feature = "redis")]
mod announcer;
#[cfg(feature = "redis")]
mod beat;
#[cfg(not(feature = "redis"))]
mod disabled;
#[cfg(feature = "redis")]
mod event;
#[cfg(feature = "redis")]
mod link;

#[cfg(feature = "redis")]
pub use address::{BadRedisAddress, RedisAddress};
#[cfg(feature = "redis")]
pub(crate) use announcer::announce;
#[cfg(feature = "redis")]
pub use announcer::{Presence, PresenceStatus, PresenceTimes};
#[cfg(not(feature = "redis"))]
pub use disabled::Presence;
#[cfg(not(feature = "redis"))]
pub(crate) use disabled::announce;
#[cfg(feature = "redis")]
pub use link::RedisFault;

use std::sync::Arc;

use ostler_core::SessionId;
use ostler_store::Clock;
use tokio::sync::watch;

use crate::lifecycle::NodeState;
use crate::worker_sets::WorkerSets;

/// The node that is announced.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "the node is announced only to Redis"))]
pub(crate) struct Subject {
    pub(crate) session: SessionId,
    /// The display name of the node.
    pub(crate) name: String,
    pub(crate) worker_sets: WorkerSets,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: watch::Receiver<NodeState>,
}
