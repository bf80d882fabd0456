//! The node's own thread: claims, reports and upkeep go on there, whatever handlers do to the runtime that they run on.

use std::future::Future;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A thread with a runtime. When this is dropped, everything on it ends.
pub(crate) struct NodeThread {
    handle: Handle,
    _until_dropped: oneshot::Sender<()>,
}

impl NodeThread {
    pub(crate) fn open() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (until_dropped, end) = oneshot::channel();
        let live = move || {
            let _ = runtime.block_on(end);
            // Whoever still waits for a store that does not answer is not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("ostler-node".into()).spawn(live)?;
        Ok(Self { handle, _until_dropped: until_dropped })
    }

    /// Does this there.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(work)
    }
}
