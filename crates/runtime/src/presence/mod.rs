//! Presence: a node tells Redis that it is there, for monitors outside of Ostler. A hint, and never more: nothing here decides about
//! work, and work goes on without it.
//!
//! - `announcer.rs`: the task that tells, beat by beat. `beat.rs`: what is said at a beat, and when to try again.
//! - `event.rs`: the JSON. `link.rs`: one connection, every answer bounded. `address.rs`: where Redis is.
//!
//! Without the feature `redis` there is none of it: `disabled.rs`.

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
use crate::workers::WorkerSet;

/// Who is told of.
#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "without Redis, nobody is told"))]
pub(crate) struct Subject {
    pub(crate) session: SessionId,
    /// What people call the node.
    pub(crate) name: String,
    pub(crate) worker_sets: Vec<WorkerSet>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: watch::Receiver<NodeState>,
}
