//! Where attempts run: the runtime of whoever started the node. Handlers that block can hold every thread of it, and then nothing
//! moves there any more, not even a timer. The node, which lives elsewhere, notices that, and goes on with a runtime of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

/// Runtimes that a node makes for itself at most: each stands for one that was lost to handlers which never end.
const MAX_STAGES: usize = 8;
/// Threads of such a runtime at most. With one more than there are workers, nobody can hold them all.
const MAX_THREADS: usize = 64;

/// How long nothing may move on a stage, when an attempt is late there, before it is taken for stuck.
const MAX_STILL: Duration = Duration::from_millis(500);

/// A runtime for attempts.
#[derive(Clone, Debug)]
pub(crate) struct HandlerRuntime {
    /// Which, counted from zero.
    pub(crate) number: usize,
    pub(crate) handle: Handle,
}

/// The runtime for attempts, as it is now. Clones are the same.
#[derive(Clone)]
pub(crate) struct HandlerRuntimes(Arc<Mutex<RuntimeState>>);

struct RuntimeState {
    now: HandlerRuntime,
    /// All that there were, in order.
    all: Vec<Handle>,
    own: Vec<Runtime>,
}

impl HandlerRuntimes {
    /// This runtime, as long as it moves.
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

    /// Whether anything moves on this one.
    pub(crate) async fn moves(&self, number: usize) -> bool {
        let Some(handle) = self.lock().all.get(number).cloned() else { return false };
        tokio::time::timeout(MAX_STILL, handle.spawn(async {})).await.is_ok()
    }

    /// Attempts on this one do not move: from now on they run on another, with room for so many workers. Another pool may have
    /// noticed before. Without another one, the old one stays in use, late as it is.
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
        // Its threads may be held for ever.
        self.own.drain(..).for_each(Runtime::shutdown_background);
    }
}
