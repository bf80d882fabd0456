//! Stream: the events of a query as they arrive, and then its answer.
//!
//! The query runs as a task of its own, beside the handler. A few events wait for the handler; with more, the agent is held back. A stream
//! that is dropped gives its query up, as a cancel does: the agent is asked to stop. When the handler has ended, nothing of it is left.

use std::sync::{Arc, Mutex, PoisonError};

use ostler_core::EventBody;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::Instrument as _;

use super::GatewayAnswer;
use super::attempt::Visit;
use crate::contract::Control;
use crate::error::TaskError;
use crate::events::EventTap;

/// Streams of one attempt that are not read to their end, or dropped.
pub const MAX_STREAMS: usize = 16;

/// The queries of an attempt that stream. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Streams {
    tasks: Mutex<JoinSet<()>>,
    places: Arc<Semaphore>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { tasks: Mutex::default(), places: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }
}

/// A query that is under way: its events, and then the answer. Dropping it gives the query up; what was said is in the transcript.
#[must_use = "a stream that is dropped gives its query up"]
#[derive(Debug)]
pub struct QueryStream {
    events: mpsc::Receiver<EventBody>,
    ended: oneshot::Receiver<Result<GatewayAnswer, TaskError>>,
    /// What has come of the query.
    end: Option<Result<GatewayAnswer, TaskError>>,
    _gives_up: DropGuard,
    _place: OwnedSemaphorePermit,
    _visit: Arc<Visit>,
}

impl QueryStream {
    /// Begins a query, which is asked with a control of its own.
    pub(super) fn begin<F>(
        visit: &Arc<Visit>,
        control: &Control,
        until: Instant,
        ask: impl FnOnce(Control) -> F,
    ) -> Result<Self, TaskError>
    where
        F: Future<Output = Result<GatewayAnswer, TaskError>> + Send + 'static,
    {
        let Ok(place) = Arc::clone(&visit.streams.places).try_acquire_owned() else {
            let message =
                format!("an attempt has at most {MAX_STREAMS} streams at once: read them, or drop them");
            return Err(TaskError::permanent(message));
        };
        let cancel = control.cancel.child_token();
        let (tap, events) = EventTap::new(cancel.clone(), until);
        let control =
            Control { cancel: cancel.clone(), events: control.events.tapped(tap), ..control.clone() };
        let (end, ended) = oneshot::channel();
        let span = control.span.clone();
        let asking = ask(control);
        let mut tasks = visit.streams.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(
            async move {
                let _ = end.send(asking.await);
            }
            .instrument(span),
        );
        drop(tasks);
        let gives_up = cancel.drop_guard();
        Ok(Self { events, ended, end: None, _gives_up: gives_up, _place: place, _visit: Arc::clone(visit) })
    }

    /// The next event; `None` when the answer is there, and all events were read. They are in their order, each comes once, and none is
    /// left out. A query that was answered in an earlier attempt has none. Cancel safe.
    ///
    /// # Errors
    /// When the query has failed, with the class of the cause.
    pub async fn next(&mut self) -> Result<Option<EventBody>, TaskError> {
        if self.end.is_none() {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Ok(Some(event)),
                ended = &mut self.ended => {
                    let lost = || Err(TaskError::transient("the query ended without an answer"));
                    self.end = Some(ended.unwrap_or_else(|_| lost()));
                }
            }
        }
        match (self.try_next(), &self.end) {
            (Some(event), _) => Ok(Some(event)),
            (None, Some(Err(error))) => Err(error.clone()),
            (None, Some(Ok(_)) | None) => Ok(None),
        }
    }

    /// An event that is already there.
    pub fn try_next(&mut self) -> Option<EventBody> {
        self.events.try_recv().ok()
    }

    /// Waits for the answer, past events that were not read.
    ///
    /// # Errors
    /// When there is none, with the class of the cause.
    pub async fn answer(&mut self) -> Result<GatewayAnswer, TaskError> {
        while self.next().await?.is_some() {}
        match &self.end {
            Some(end) => end.clone(),
            None => unreachable!("a stream has come to its end"),
        }
    }
}
