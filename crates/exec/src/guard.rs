//! Whoever keeps a node's proof of life until nothing of its work is left.

use std::os::fd::OwnedFd;

use async_trait::async_trait;

/// Holds on to a node's proof of life. Some work outlives its node for a moment: children have to be killed first. As long as
/// somebody holds the tether, nobody takes the node for dead, and so nobody begins its tasks anew beside what is left of them.
#[async_trait]
pub trait Guard: Send + Sync {
    /// Holds this from now on, and no longer what it held before. When it answers, it has it.
    ///
    /// # Errors
    /// When it cannot hold it: the node must not begin then.
    async fn hold(&self, tether: OwnedFd) -> std::io::Result<()>;
}
