//! Liveness holder: keeps a node's liveness lock until nothing of its work is left.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

/// Holds a node's liveness lock. Some work briefly outlives its node: child processes have to be killed first. While the
/// lock is held, no other node considers this one dead, so none restarts its tasks next to what is left of them.
#[async_trait]
pub trait LivenessHolder: Send + Sync {
    /// Takes over this lock and drops the previous one. It holds the lock when it returns.
    ///
    /// # Errors
    /// When it cannot hold the lock: the node must not start then.
    async fn hold(&self, liveness_lock: OwnedFd) -> std::io::Result<()>;

    /// Extends the deadline of the work after the node has renewed its leases: the work is killed at this time unless a later one
    /// is set. The time is that of the clock that all processes of the machine share (`CLOCK_MONOTONIC`). So the work of a node that is
    /// stopped, or stalls for another reason, ends before another node restarts it. Must not block.
    fn live_until(&self, _uptime: Duration) {}
}
