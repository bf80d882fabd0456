//! Whoever keeps a node's proof of life until nothing of its work is left.

use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;

/// Holds on to a node's proof of life. Some work outlives its node for a moment: children have to be killed first. As long as
/// somebody holds the liveness_lock, nobody takes the node for dead, and so nobody begins its tasks anew beside what is left of them.
#[async_trait]
pub trait LivenessHolder: Send + Sync {
    /// Holds this from now on, and no longer what it held before. When it answers, it has it.
    ///
    /// # Errors
    /// When it cannot hold it: the node must not begin then.
    async fn hold(&self, liveness_lock: OwnedFd) -> std::io::Result<()>;

    /// The node has renewed its leases: its work may go on until this moment, and is ended then unless a later one was named. The
    /// moment is one of the clock that all processes of the machine share (`CLOCK_MONOTONIC`). So the work of a node that is
    /// stopped, or stands still for another reason, ends before somebody else begins it anew. It must not wait for anything.
    fn live_until(&self, _uptime: Duration) {}
}
