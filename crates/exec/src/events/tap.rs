//! Tap: a bounded copy of a conversation, for the handler that asked. The transcript does not depend on it.

use ostler_core::{EventBody, EventKind, cut};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::MAX_LABEL_BYTES;

/// Events that wait for their reader. With more, the sender waits.
const MAX_COPIES: usize = 16;
/// Bytes of one text. What is longer is cut in the copy, and whole in the transcript.
const MAX_COPY_BYTES: usize = 1 << 20;

/// Copies the events of a conversation to the handler that streams it.
#[derive(Debug)]
pub(crate) struct EventTap {
    copies: mpsc::Sender<EventBody>,
    /// From these on, no reader is waited for.
    cancel: CancellationToken,
    until: Instant,
}

impl EventTap {
    /// A tap that waits for its reader until then, or until it is cancelled.
    pub(crate) fn new(cancel: CancellationToken, until: Instant) -> (Self, mpsc::Receiver<EventBody>) {
        let (copies, reader) = mpsc::channel(MAX_COPIES);
        (Self { copies, cancel, until }, reader)
    }

    /// A copy of an event that a handler may want: not what it has asked itself, nor the lines that events were read from.
    pub(super) fn copy(&self, body: &EventBody) -> Option<EventBody> {
        let is_wanted = match body.kind() {
            EventKind::Message
            | EventKind::Continued
            | EventKind::Thinking
            | EventKind::ToolCall
            | EventKind::ToolResult
            | EventKind::Usage
            | EventKind::Status
            | EventKind::Warning
            | EventKind::Error => true,
            EventKind::Log
            | EventKind::Progress
            | EventKind::File
            | EventKind::Stdout
            | EventKind::Prompt
            | EventKind::Session
            | EventKind::Transition
            | EventKind::Thinned
            | EventKind::Result
            | EventKind::Raw
            | EventKind::FormerPayload => false,
        };
        if !is_wanted || self.copies.is_closed() {
            return None;
        }
        let mut copy = if let EventBody::Continued { role, text } = body {
            // A handler gets the words as they come.
            let text = text.clone();
            match *role {
                Some(role) => EventBody::Message { role, text },
                None => EventBody::Thinking { text },
            }
        } else {
            body.clone()
        };
        if let Some(text) = copy.text_mut().filter(|text| text.len() > MAX_COPY_BYTES) {
            *text = cut(text, MAX_COPY_BYTES);
        }
        for label in copy.labels_mut().filter(|label| label.len() > MAX_LABEL_BYTES) {
            *label = cut(label, MAX_LABEL_BYTES);
        }
        Some(copy)
    }

    pub(super) async fn send(&self, copy: EventBody) {
        tokio::select! {
            biased;
            // A reader that is gone misses nothing.
            _ = self.copies.send(copy) => {}
            () = self.cancel.cancelled() => {}
            () = sleep_until(self.until) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::Role;

    use super::*;
    use crate::events::{EventSender, Sent, event_channel};

    fn message(text: impl Into<String>) -> EventBody {
        EventBody::Message { role: Role::Assistant, text: text.into() }
    }

    async fn sent(events: &EventSender, number: usize) {
        assert_eq!(events.send(message(number.to_string())).await, Sent::Yes);
    }

    /// A tapped sender, the sender that it was made of, and what reads the copies.
    fn tapped(cancel: &CancellationToken) -> (EventSender, EventSender, mpsc::Receiver<EventBody>) {
        let (events, stored) = event_channel();
        tokio::spawn(async move { while stored.recv().await.is_some() {} });
        let (tap, copies) = EventTap::new(cancel.clone(), Instant::now() + Duration::from_secs(60));
        (events.tapped(tap), events, copies)
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_waits_for_a_slow_reader_and_no_longer_once_it_is_cancelled() {
        let cancel = CancellationToken::new();
        let (events, plain, mut copies) = tapped(&cancel);
        for number in 0..MAX_COPIES {
            sent(&events, number).await;
        }
        let wait = Duration::from_secs(5);
        assert!(tokio::time::timeout(wait, sent(&events, MAX_COPIES)).await.is_err(), "it is held back");
        sent(&plain, 0).await;
        assert_eq!(copies.recv().await, Some(message("0")));
        sent(&events, 99).await;
        cancel.cancel();
        sent(&events, 100).await;
        for number in 1..MAX_COPIES {
            assert_eq!(copies.recv().await, Some(message(number.to_string())));
        }
        assert_eq!(copies.recv().await, Some(message("99")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_never_reads_holds_a_sender_until_its_time_is_up_and_one_that_is_gone_does_not() {
        let (events, _, copies) = tapped(&CancellationToken::new());
        let began = Instant::now();
        for number in 0..=MAX_COPIES {
            sent(&events, number).await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(60));
        drop(copies);
        for number in 0..10 * MAX_COPIES {
            sent(&events, number).await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_copy_has_what_is_said_and_done_and_no_text_without_end() {
        let (events, _, mut copies) = tapped(&CancellationToken::new());
        for body in [
            EventBody::Prompt { text: "p".into() },
            EventBody::Raw { text: "\"r\"".into() },
            message("x".repeat(MAX_COPY_BYTES + 1)),
        ] {
            assert_eq!(events.send(body).await, Sent::Yes);
        }
        let copy = copies.recv().await.expect("the message");
        let text = copy.text().expect("a text");
        assert!(text.len() <= MAX_COPY_BYTES && text.starts_with("xxx"), "{} bytes", text.len());
    }
}
