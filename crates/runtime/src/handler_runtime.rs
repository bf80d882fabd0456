//! Handler runtimes: attempts run on the runtime that started the node. Blocking handlers can occupy all of its threads,
//! and then nothing progresses there, not even a timer. The node runs on its own thread, detects this, and continues on a
//! new runtime of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum runtimes that a node creates: each replaces one lost to handlers that never end.
const MAX_STAGES: usize = 8;
/// Maximum threads of such a runtime. With one thread more than workers, handlers cannot block all of them.
const MAX_THREADS: usize = 64;

/// How long a runtime with a late attempt may make no progress before it is considered blocked.
const MAX_STILL: Duration = Duration::from_millis(500);

/// A runtime for attempts.
#[derive(Clone, Debug)]
pub(crate) struct HandlerRuntime {
    /// Counted from zero.
    pub(crate) number: usize,
    pub(crate) handle: Handle,
}

/// The current handler runtime and its predecessors. Clones share the same state.
#[derive(Clone)]
pub(crate) struct HandlerRuntimes(Arc<Mutex<RuntimeState>>);

struct RuntimeState {
    now: HandlerRuntime,
    /// The handles of all runtimes so far, by number.
    all: Vec<Handle>,
    own: Vec<Runtime>,
}

impl HandlerRuntimes {
    /// Starts with the current runtime.
    pub(crate) fn here() -> Self {
        let now = HandlerRuntime { number: 0, handle: Handle::current() };
        let all = vec![now.handle.clone()];
        Self(Arc::new(Mutex::new(RuntimeState { now, all, own: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, RuntimeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> HandlerRuntime {
        self.lock().now.clone()
    }

    /// Whether this runtime makes progress.
    pub(crate) async fn moves(&self, number: usize) -> bool {
        let Some(handle) = self.lock().all.get(number).cloned() else { return false };
        tokio::time::timeout(MAX_STILL, handle.spawn(async {})).await.is_ok()
    }

    /// Replaces a blocked runtime with a new one for this many workers. Does nothing if another pool has already replaced
    /// it. If no runtime can be created, the old one stays in use.
    pub(crate) fn leave(&self, stuck: usize, workers: usize) {
        let mut book = self.lock();
        if book.now.number != stuck || book.own.len() >= MAX_STAGES {
            return;
        }
        let threads = workers.saturating_add(1).min(MAX_THREADS);
        let built = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("ostler-stage")
            .enable_all()
            .build();
        if let Ok(runtime) = built {
            book.now = HandlerRuntime { number: stuck + 1, handle: runtime.handle().clone() };
            book.all.push(runtime.handle().clone());
            book.own.push(runtime);
        }
    }
}

impl Drop for RuntimeState {
    fn drop(&mut self) {
        // Its threads may be blocked forever.
        self.own.drain(..).for_each(Runtime::shutdown_background);
    }
}
