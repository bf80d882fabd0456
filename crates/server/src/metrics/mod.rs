//! Metrics of a node for `/metrics`, in OpenMetrics text for readers that ask for it: what the node did, as counters with its name, and what the store holds, as gauges
//! that one node at a time exports. See docs/decisions/0040-metrics.md.
//!
//! - `counts.rs`: what the embedding program says that the node did. `families.rs`: the names of metrics, their help, types and units.
//!   `plain_text.rs`: the older text format, for other readers.
//! - The store is read at most once in [`MAX_AGE`], however many scrapes there are; one that finds it away answers all the same.

mod counts;
mod families;
mod plain_text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_ops::figures::StoreFigures;
use ostler_store::Store;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use counts::{Durations, LaneCounts, NodeCounters, NodeCounts, PoolCounts};
use families::Families;

/// The media type of OpenMetrics, by which readers ask for it.
const OPENMETRICS: &str = "application/openmetrics-text";
const OPENMETRICS_MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How old figures of the store may be.
const MAX_AGE: Duration = Duration::from_secs(1);
/// How long a store may take to answer.
const MAX_STORE_TIME: Duration = Duration::from_secs(2);

/// Who may read metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Callers with a token.
    #[default]
    Token,
    /// Everyone who reaches the address.
    Open,
}

/// What a reading of the store found; `None`: it did not answer.
type StoreReading = Option<Arc<StoreFigures>>;

/// Makes the text of scrapes.
pub(crate) struct Metrics {
    store: Arc<dyn Store>,
    counters: Arc<dyn NodeCounters>,
    /// The last reading, and when it ended. The lock is held while one is under way, so that scrapes at the same time share it.
    last: Mutex<Option<(Instant, StoreReading)>>,
    reads: AtomicU64,
}

impl Metrics {
    pub(crate) fn new(store: Arc<dyn Store>, counters: Arc<dyn NodeCounters>) -> Self {
        Self { store, counters, last: Mutex::default(), reads: AtomicU64::default() }
    }

    /// The text of one scrape, and its media type, for a reader that accepts these.
    pub(crate) async fn scrape(&self, accepted: Option<&str>) -> Result<(&'static str, String), fmt::Error> {
        let figures = self.figures().await;
        let families =
            Families { counts: self.counters.counts(), figures, reads: self.reads.load(Ordering::Relaxed) };
        let mut registry = Registry::with_prefix("ostler");
        registry.register_collector(Box::new(families));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(if accepted.is_some_and(|accepted| accepted.contains(OPENMETRICS)) {
            (OPENMETRICS_MEDIA, text)
        } else {
            (plain_text::MEDIA, plain_text::from_openmetrics(&text))
        })
    }

    async fn figures(&self) -> StoreReading {
        let mut last = self.last.lock().await;
        if let Some((_, figures)) = last.as_ref().filter(|(at, _)| at.elapsed() < MAX_AGE) {
            return figures.clone();
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let read = tokio::time::timeout(MAX_STORE_TIME, StoreFigures::take(self.store.as_ref())).await;
        let figures = read.ok().and_then(Result::ok).map(Arc::new);
        *last = Some((Instant::now(), figures.clone()));
        figures
    }
}
