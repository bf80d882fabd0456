//! The store of a node: opened with patience, and watched while the node runs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_runtime::{Drained, StoreNews};
use ostler_store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::service::Service;
use crate::exit::say;
use crate::store_location::{IfMissing, OpenMode, StoreLocation, refusal};

/// How long to wait for an unavailable store when a node starts.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The interval between attempts to open the store.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The capacity of the channel for store events.
const MAX_NEWS: usize = 16;

/// Prints store events.
pub(super) struct StoreWatcher(JoinHandle<()>);

impl StoreWatcher {
    /// Returns where the node sends its events.
    pub(super) fn start() -> (Self, mpsc::Sender<StoreNews>) {
        let (sender, mut news) = mpsc::channel(MAX_NEWS);
        let say_news = async move {
            while let Some(news) = news.recv().await {
                match news {
                    StoreNews::Away(_) | StoreNews::Back { .. } | StoreNews::Refused(_) => {
                        say(&news.to_string());
                    }
                    // The program exits with this message.
                    StoreNews::Gone(_) => {}
                }
            }
        };
        (Self(tokio::spawn(say_news)), sender)
    }
}

#[async_trait]
impl Service for StoreWatcher {
    async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
        self.0.abort();
        Drained::default()
    }
}

/// Opens the store. A store that is unavailable for a short time is waited for, with a message.
pub(super) async fn open(place: &StoreLocation) -> anyhow::Result<Arc<dyn Store>> {
    place.prepare(IfMissing::Make)?;
    let until = Instant::now() + START_PATIENCE;
    let mut said = false;
    loop {
        let opening = place.try_open(OpenMode::Long, IfMissing::Make);
        let error = match tokio::time::timeout_at(until, opening).await {
            Ok(Ok(Some(opened))) => return Ok(opened.store()),
            Ok(Ok(None)) => return Err(place.absent()),
            Ok(Err(error)) => error,
            Err(_) => return Err(place.silent()),
        };
        if !error.is_transient() || Instant::now() + TRY_AGAIN > until {
            return Err(refusal(error));
        }
        if !said {
            say(&format!("{error}; retrying for {} s", START_PATIENCE.as_secs()));
            said = true;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
