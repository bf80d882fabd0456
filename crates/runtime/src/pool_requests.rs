//! Requests to add a pool to a running node, and to remove one.
//!
//! The supervisor of the sessions owns the pools. It answers requests between other events and never waits for the store
//! meanwhile, so that neither a drain nor a lost session is delayed.

use std::time::Duration;

use ostler_store::Error;
use tokio::sync::oneshot;

use crate::config::{InvalidConfig, PoolConfig};
use crate::node::Drained;
use crate::session::SettingsError;
use crate::settings_conflict::SettingsConflict;

/// Requests that may wait; beyond it, callers wait.
pub(crate) const MAX_REQUESTS: usize = 16;

/// A request to the supervisor of the sessions.
pub(crate) enum PoolRequest {
    /// Whether the node could have this pool too.
    Check(Box<PoolConfig>, oneshot::Sender<Result<(), InvalidConfig>>),
    /// The settings of its queue are written: it may claim.
    Add(Box<PoolConfig>, oneshot::Sender<Result<(), InvalidConfig>>),
    Remove {
        queue: String,
        timeout: Duration,
        drained: oneshot::Sender<Option<Drained>>,
    },
}

/// Why a pool was not added.
#[derive(Debug, thiserror::Error)]
pub enum AddPoolError {
    /// The node cannot have this pool besides its others.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
    /// Another live node has different settings for the queue.
    #[error("{0}")]
    Differs(SettingsConflict),
    /// The node drains or has ended.
    #[error("the node takes no more pools, because it stops")]
    Ended,
}

impl From<SettingsError> for AddPoolError {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Store(error) => Self::Store(error),
            SettingsError::Differs(conflict) => Self::Differs(conflict),
        }
    }
}
