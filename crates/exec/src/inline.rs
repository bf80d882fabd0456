//! Inline executor: async handlers on the node's runtime.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ostler_core::{ErrorClass, WorkerId};
use tokio::task::{AbortHandle, JoinError};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::context::Context;
use crate::contract::{AttemptResult, Control, Executor, Served, Work};
use crate::error::TaskError;
use crate::resources::Resources;
use crate::unresponsive::Unresponsive;

pub(crate) type HandlerFuture = Result<Option<String>, TaskError>;
type Handler =
    Box<dyn Fn(String, Context) -> Pin<Box<dyn Future<Output = HandlerFuture> + Send>> + Send + Sync>;

/// Runs async handlers, each as a task of its own, so that a panic ends that handler and nothing else.
///
/// A handler receives the stop signal through its context. A handler that does not stop within the grace period, or has timed out,
/// is dropped at its next await; one whose lease is lost is dropped at once. One that never awaits, because it blocks its thread,
/// cannot be dropped: it is left behind and reported as unresponsive.
#[derive(Default)]
pub struct Inline {
    handlers: BTreeMap<String, Handler>,
    shared: Arc<Resources>,
    unresponsive: Unresponsive,
}

impl Inline {
    /// An executor without handlers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for a kind: JSON text in, JSON text out.
    #[must_use]
    pub fn handle<F, R>(mut self, kind: impl Into<String>, handler: F) -> Self
    where
        F: Fn(String, Context) -> R + Send + Sync + 'static,
        R: Future<Output = HandlerFuture> + Send + 'static,
    {
        let handler: Handler = Box::new(move |payload, context| Box::pin(handler(payload, context)));
        self.handlers.insert(kind.into(), handler);
        self
    }

    /// Gives handlers this shared state; see [`Context::shared`].
    #[must_use]
    pub fn sharing(self, shared: Arc<Resources>) -> Self {
        Self { shared, ..self }
    }

    pub(crate) fn serves(&self, kind: &str) -> bool {
        self.handlers.contains_key(kind)
    }
}

#[async_trait]
impl Executor for Inline {
    fn served(&self) -> Served {
        Served::Only(self.handlers.keys().cloned().collect())
    }

    async fn run(&self, work: Work, control: Control) -> AttemptResult {
        let Some(handler) = self.handlers.get(&*work.kind) else { return no_handler(&work.kind) };
        let context = Context::new(&work, &control, &self.shared, Instant::now());
        // A handler may panic before its first await, while its future is created.
        let made =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handler(work.payload.clone(), context)));
        let future = match made {
            Ok(future) => future,
            Err(panic) => return panicked(panic.as_ref()),
        };
        let mut running = tokio::spawn(future.instrument(control.span.clone()));
        let guard = AbortOnDrop(running.abort_handle());
        let deadline = tokio::time::sleep(work.timeout);
        let ended = tokio::select! {
            biased;
            joined = &mut running => return conclude(joined, &control.cancel),
            () = deadline => AttemptResult::too_long(work.timeout),
            () = control.lost.cancelled() => AttemptResult::cancelled(),
            () = control.cancel.cancelled() => tokio::select! {
                biased;
                // The context has signalled the stop; a result within the grace period counts.
                joined = &mut running => return conclude(joined, &control.cancel),
                () = control.lost.cancelled() => AttemptResult::cancelled(),
                () = tokio::time::sleep(work.grace) => AttemptResult::cancelled(),
            },
        };
        drop(guard);
        // Dropping takes effect at the handler's next await. A handler that blocks its thread has none.
        match tokio::time::timeout(work.grace, &mut running).await {
            Ok(_) => ended,
            Err(_) => {
                self.unresponsive.keep(work.worker, async move { drop(running.await) });
                ended.unresponsive()
            }
        }
    }

    async fn close(&self, worker: WorkerId) {
        self.unresponsive.ended(worker).await;
    }
}

/// Aborts the handler when the future that waits for it is dropped.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result of a handler that finished by itself. A failure after the stop signal counts as cancelled.
pub(crate) fn conclude(
    joined: Result<HandlerFuture, JoinError>,
    cancel: &CancellationToken,
) -> AttemptResult {
    match joined {
        Ok(Ok(output)) => AttemptResult::success(output),
        Ok(Err(_)) | Err(_) if cancel.is_cancelled() => AttemptResult::cancelled(),
        Ok(Err(error)) => error.into_end(),
        Err(error) if error.is_panic() => panicked(error.into_panic().as_ref()),
        // The runtime is shutting down.
        Err(_) => AttemptResult::cancelled(),
    }
}

/// The failure for a kind without a handler.
pub(crate) fn no_handler(kind: &str) -> AttemptResult {
    AttemptResult::failed_with(ErrorClass::Permanent, format!("no handler for the kind \"{kind}\""))
}

/// The failure for a panic; its class is not set.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> AttemptResult {
    let message = format!("the handler panicked: {}", panic_message(panic));
    AttemptResult::failed_with(ErrorClass::Transient, message).unclassed()
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
