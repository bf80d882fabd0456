//! Pool sizes: from the configuration, and changed by resize commands at run time. A resize lasts until the node ends,
//! including across sessions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_store::{MAX_BATCH, MAX_CLAIM};
use tokio::sync::watch;

use crate::config::{PoolConfig, PoolSize};

/// The sizes of all pools by queue. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct Sizes(Arc<Mutex<BTreeMap<String, PoolSizes>>>);

struct PoolSizes {
    size: watch::Sender<PoolSize>,
    /// How many workers the executor supports.
    capacity: usize,
}

impl Sizes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PoolSizes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the size of a pool: as configured at first.
    pub(crate) fn watch(&self, pool: &PoolConfig) -> watch::Receiver<PoolSize> {
        let mut sizes = self.lock();
        let kept = sizes.entry(pool.queue.clone()).or_insert_with(|| PoolSizes {
            size: watch::Sender::new(pool.size),
            capacity: pool.executor.capacity().unwrap_or(usize::MAX),
        });
        kept.size.subscribe()
    }

    /// Forgets a pool that was removed.
    pub(crate) fn forget(&self, queue: &str) {
        self.lock().remove(queue);
    }

    /// The maximum number of workers of all pools together.
    pub(crate) fn most(&self) -> usize {
        self.lock().values().map(|kept| kept.size.borrow().max).sum()
    }

    /// Resizes a pool, within what a node can hold. Pools of other nodes are ignored.
    pub(crate) fn resize(&self, pool: &str, min: u32, max: u32) {
        let sizes = self.lock();
        let Some(PoolSizes { size, capacity }) = sizes.get(pool) else { return };
        let others: usize =
            sizes.iter().filter(|(name, _)| *name != pool).map(|(_, kept)| kept.size.borrow().max).sum();
        let room = (MAX_BATCH / 2).saturating_sub(others).min(*capacity).clamp(1, MAX_CLAIM);
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let max = whole(max).clamp(1, room);
        size.send_modify(|size| *size = PoolSize { min: whole(min).min(max), max, ..*size });
    }
}
