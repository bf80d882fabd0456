//! Removes what executors have kept for tasks that were pruned since, as a service of the node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_runtime::Drained;
use ostler_store::Store;
use tokio::task::JoinHandle;

use super::service::Service;
use crate::exit::say;
use crate::leftovers::Leftovers;

/// The time between two sweeps.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

pub(super) struct LeftoverService(JoinHandle<()>);

impl LeftoverService {
    pub(super) fn start(leftovers: Leftovers, store: Arc<dyn Store>) -> Self {
        Self(tokio::spawn(async move {
            loop {
                match leftovers.sweep(store.as_ref()).await {
                    // A store that does not answer is reported elsewhere; the next sweep asks it again.
                    Ok(0) | Err(_) => {}
                    Ok(removed) => say(&format!("removed {}", counted(removed))),
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }))
    }
}

/// A number of leftovers, for people.
pub(crate) fn counted(removed: usize) -> String {
    let things = if removed == 1 { "conversation or worktree" } else { "conversations and worktrees" };
    format!("{removed} {things} of tasks that are gone")
}

#[async_trait]
impl Service for LeftoverService {
    async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
        self.0.abort();
        let _ = self.0.await;
        Drained::default()
    }
}
