//! Events of a worker that must not be lost: they wait for room in the buffer, and a session until it is stored.

use std::pin::Pin;

use ostler_core::EventBody;
use ostler_exec::{EventSender, Sent};

/// An event that is being recorded.
pub(super) type Keeping = Pin<Box<dyn Future<Output = Kept> + Send>>;

/// What became of an event.
pub(super) enum Kept {
    Event,
    /// The id of a session is durable. The worker waits for this.
    Session(String),
    /// The lease is lost: nothing more that the worker sends counts.
    Lost,
}

pub(super) fn keep(events: EventSender, event: EventBody) -> Keeping {
    Box::pin(async move {
        let session = if let EventBody::Session { id } = &event { Some(id.clone()) } else { None };
        let sent = match session {
            Some(_) => events.store(event).await,
            None => events.send(event).await,
        };
        match (sent, session) {
            (Sent::Closed, _) => Kept::Lost,
            (Sent::Yes, Some(session)) => Kept::Session(session),
            (Sent::Yes, None) => Kept::Event,
        }
    })
}
