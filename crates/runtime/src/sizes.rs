//! Pool sizes: from the configuration, and changed by resize commands at run time. A resize lasts until the node ends,
//! including across sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_store::{MAX_BATCH, MAX_CLAIM};
use tokio::sync::watch;

use crate::config::{PoolConfig, PoolSize};

/// The sizes of all pools by queue. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Sizes(Arc<BTreeMap<String, PoolSizes>>);

struct PoolSizes {
    size: watch::Sender<PoolSize>,
    /// How many workers the executor supports.
    capacity: usize,
}

impl Sizes {
    pub(crate) fn new(pools: &[PoolConfig]) -> Self {
        let kept = |pool: &PoolConfig| {
            let capacity = pool.executor.capacity().unwrap_or(usize::MAX);
            (pool.queue.clone(), PoolSizes { size: watch::Sender::new(pool.size), capacity })
        };
        Self(Arc::new(pools.iter().map(kept).collect()))
    }

    /// Watches the size of a pool.
    pub(crate) fn watch(&self, pool: &PoolConfig) -> watch::Receiver<PoolSize> {
        self.0
            .get(&pool.queue)
            .map_or_else(|| watch::Sender::new(pool.size).subscribe(), |kept| kept.size.subscribe())
    }

    /// The maximum number of workers of all pools together.
    pub(crate) fn most(&self) -> usize {
        self.0.values().map(|kept| kept.size.borrow().max).sum()
    }

    /// Resizes a pool, within what a node can hold. Pools of other nodes are ignored.
    pub(crate) fn resize(&self, pool: &str, min: u32, max: u32) {
        let Some(PoolSizes { size, capacity }) = self.0.get(pool) else { return };
        let others: usize =
            self.0.iter().filter(|(name, _)| *name != pool).map(|(_, kept)| kept.size.borrow().max).sum();
        let room = (MAX_BATCH / 2).saturating_sub(others).min(*capacity).clamp(1, MAX_CLAIM);
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let max = whole(max).clamp(1, room);
        size.send_modify(|size| *size = PoolSize { min: whole(min).min(max), max, ..*size });
    }
}
