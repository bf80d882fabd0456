//! A hook that enqueues a task. The task's id derives from the outbox entry, so that a repeated delivery enqueues nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{Minter, Seed, TaskId};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::{Bounds, Store};

use super::{HookAttempt, HookError, HookNotice};

pub struct TaskHook {
    store: Arc<dyn Store>,
    bounds: Bounds,
    queue: String,
    kind: String,
}

impl TaskHook {
    #[must_use]
    pub fn new(store: Arc<dyn Store>, bounds: Bounds, queue: String, kind: String) -> Self {
        Self { store, bounds, queue, kind }
    }
}

#[async_trait]
impl HookAttempt for TaskHook {
    async fn run(&self, notice: &HookNotice, _timeout: Duration) -> Result<(), HookError> {
        let Some(payload) = notice.view.json_within(self.bounds.payload_bytes) else {
            return Err(HookError::Never("the payload_limit is too small for any notice".to_owned()));
        };
        let id = id_for(notice, &self.queue, &self.kind);
        let task = NewTask::new(id, self.queue.as_str(), self.kind.as_str(), payload);
        match self.store.enqueue(vec![task]).await.as_deref() {
            Ok([Enqueued::QueueFull { limit }]) => {
                Err(HookError::MayPass(format!("the queue is full: {limit} tasks are waiting, its limit")))
            }
            Ok(_) => Ok(()),
            Err(error) if error.is_transient() => Err(HookError::MayPass(error.to_string())),
            Err(error) => Err(HookError::Never(error.to_string())),
        }
    }
}

/// The id of this hook's task for this outbox entry, always the same.
fn id_for(notice: &HookNotice, queue: &str, kind: &str) -> TaskId {
    let bits = notice.task.0.bits();
    let mut mixed = Seed::new((bits as u64) ^ ((bits >> 64) as u64)).next() ^ notice.sequence;
    // Separated by a zero byte, which no name contains.
    for byte in queue.bytes().chain([0]).chain(kind.bytes()) {
        mixed = Seed::new(mixed ^ u64::from(byte)).next();
    }
    let mut seed = Seed::new(mixed);
    let chance = (u128::from(seed.next()) << 64) | u128::from(seed.next());
    TaskId(Minter::new().mint(notice.at, chance))
}
