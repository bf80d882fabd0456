//! The node's own thread: claims, reports and maintenance run there, unaffected by handlers that block their runtime.

use std::future::Future;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A thread with a runtime. Dropping this ends all tasks on it.
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
            // Tasks that still wait for an unresponsive store are not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("ostler-node".into()).spawn(live)?;
        Ok(Self { handle, _until_dropped: until_dropped })
    }

    /// Spawns a task on the thread.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(work)
    }
}
