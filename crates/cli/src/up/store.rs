//! The store of a node, opened with patience.

use std::sync::Arc;
use std::time::Duration;

use ostler_store::Store;
use tokio::time::Instant;

use crate::exit::warn;
use crate::store_location::{IfMissing, OpenMode, StoreLocation, refusal};

/// How long to wait for an unavailable store when a node starts.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// The interval between attempts to open the store.
const TRY_AGAIN: Duration = Duration::from_millis(500);

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
            warn(&format!("{error}; retrying for {} s", START_PATIENCE.as_secs()));
            said = true;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}
