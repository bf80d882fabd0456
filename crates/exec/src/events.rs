//! Events of a running attempt, in a bounded buffer until they are stored.
//!
//! Log lines and progress never hold the work back: when the store is slower, some are left out, and a mark says how many. A
//! conversation does: its sender waits for room, and nothing of it is lost. Most attempts send no events, so a sender and
//! a receiver cost little until the first one.
//!
//! In a pool with secrets, `events/redaction.rs` replaces their values before an event is in the buffer. `events/tap.rs` copies a
//! conversation for the handler that asked for it.

mod redaction;
mod tap;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::{EventBody, EventKind, Loss, cut};
use redaction::{Admitted, EventRedaction};
pub(crate) use tap::EventTap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::secrets::Secrets;

/// Events of one attempt in the buffer. Above it, log lines are left out, and other senders wait.
const MAX_WAITING: usize = 1_024;
/// Bytes of their texts, unless a single one is longer.
const MAX_WAITING_BYTES: usize = 4 << 20;
/// Bytes of one log line or warning; longer ones are truncated and marked.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Bytes of one text of a conversation; longer ones are truncated and marked. No store takes more.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Bytes of a name or an id in an event.
const MAX_LABEL_BYTES: usize = 4 * 1024;

/// Files recorded per attempt. They describe the results, and are never left out because lines came too fast.
pub const MAX_FILES: usize = 1_000;
/// Pieces of standard output kept per attempt. They are not lines, and are never left out because lines came too fast.
pub const MAX_STDOUT_PIECES: usize = 16_384;

/// Creates the sender and the receiver of one attempt.
#[must_use]
pub fn event_channel() -> (EventSender, EventReceiver) {
    let shared = Arc::<Shared>::default();
    let count = Arc::new(SenderCount(Arc::clone(&shared)));
    (EventSender { count, tap: None }, EventReceiver(shared))
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct EventSender {
    count: Arc<SenderCount>,
    tap: Option<Arc<EventTap>>,
}

/// The receiving half.
#[derive(Debug)]
pub struct EventReceiver(Arc<Shared>);

/// An event in the buffer.
#[derive(Debug)]
pub struct QueuedEvent {
    pub body: EventBody,
    pub receipt: Receipt,
}

/// Tells the sender of an event that it is stored, or, if dropped, that it will not be.
#[derive(Debug)]
#[must_use]
pub struct Receipt(Option<oneshot::Sender<()>>);

impl Receipt {
    /// The event is stored.
    pub fn stored(self) {
        if let Some(sender) = self.0 {
            let _ = sender.send(());
        }
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is in the buffer, or in the store if that was asked for.
    Yes,
    /// The attempt is over, or its lease is lost: the event is not recorded.
    Closed,
}

#[derive(Debug, Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    /// Notified when there is an event, or when there will be no more.
    filled: Notify,
    /// Notified when events were taken, or when no more are.
    room: Notify,
}

#[derive(Debug, Default)]
struct Buffer {
    waiting: Waiting,
    thinned: u64,
    files: usize,
    stdout_pieces: usize,
    closed: bool,
    /// Only in a pool with secrets.
    redaction: Option<Box<EventRedaction>>,
}

/// The events in the buffer, numbered from the first one of the attempt.
#[derive(Debug, Default)]
struct Waiting {
    /// `None`: an event of which nothing is left.
    events: VecDeque<Option<QueuedEvent>>,
    /// Bytes of their texts.
    bytes: usize,
    /// The number of the first one.
    first: u64,
}

impl Waiting {
    /// The number of the event that is added next.
    fn next_number(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn add(&mut self, event: QueuedEvent) {
        self.bytes += event.body.text().map_or(0, str::len);
        self.events.push_back(Some(event));
    }

    fn front(&mut self) -> Option<&QueuedEvent> {
        while matches!(self.events.front(), Some(None)) {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.front()?.as_ref()
    }

    fn take(&mut self) -> Option<QueuedEvent> {
        self.front()?;
        let next = self.events.pop_front()??;
        self.first += 1;
        self.bytes -= next.body.text().map_or(0, str::len);
        Some(next)
    }

    /// Changes the text of an event that is still here. If nothing is left of it, the event goes.
    fn edit(&mut self, number: u64, change: impl FnOnce(&mut String)) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(slot) = at.and_then(|at| self.events.get_mut(at)) else { return };
        let Some(text) = slot.as_mut().and_then(|event| event.body.text_mut()) else { return };
        self.bytes -= text.len();
        change(text);
        self.bytes += text.len();
        if text.is_empty() {
            *slot = None;
        }
    }
}

impl Buffer {
    fn push(&mut self, mut body: EventBody, stored: Option<oneshot::Sender<()>>) {
        if let Some(redaction) = &mut self.redaction {
            match redaction.admit(&mut self.waiting, &mut body, Instant::now()) {
                Admitted::Yes => {}
                Admitted::Swallowed => return,
            }
        }
        self.waiting.add(QueuedEvent { body: bounded(body), receipt: Receipt(stored) });
    }

    /// Marks log lines that were left out.
    fn mark(&mut self) {
        let lines = std::mem::take(&mut self.thinned);
        if lines > 0 {
            self.push(EventBody::Thinned { lines }, None);
        }
    }

    fn is_full(&self, more: &EventBody) -> bool {
        // The mark of a gap needs space too, or it would be the next to be left out.
        let events = self.waiting.events.len() + 1 + usize::from(self.thinned > 0);
        let bytes = self.waiting.bytes + more.text().map_or(0, str::len);
        events > MAX_WAITING || (bytes > MAX_WAITING_BYTES && !self.waiting.events.is_empty())
    }

    /// Until when the event of this number, and all behind it, wait for what follows.
    fn held(&self) -> Option<(u64, Instant)> {
        let redaction = self.redaction.as_ref().filter(|_| !self.closed)?;
        redaction.held(&self.waiting, Instant::now())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
        self.room.notify_waiters();
    }
}

/// Shared by all clones of a sender. Dropping the last one closes the channel.
#[derive(Debug)]
struct SenderCount(Arc<Shared>);

impl Drop for SenderCount {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// No store takes a NUL, nor a text or a name without end.
fn bounded(mut body: EventBody) -> EventBody {
    let is_line = matches!(body.kind(), EventKind::Log | EventKind::Warning);
    let most = if is_line { MAX_LINE_BYTES } else { MAX_TEXT_BYTES };
    let clean = |text: &mut String, most: usize| {
        if text.contains('\0') {
            *text = text.replace('\0', "\u{fffd}");
        }
        if text.len() > most {
            *text = cut(text, most);
        }
    };
    if let Some(text) = body.text_mut() {
        clean(text, most);
    }
    body.labels_mut().for_each(|label| clean(label, MAX_LABEL_BYTES));
    body
}

impl EventSender {
    /// Replaces the values of these secrets in all events from now on.
    pub(crate) fn redact(&self, secrets: &Secrets) {
        self.shared().lock().redaction = EventRedaction::new(secrets).map(Box::new);
    }

    /// The same, with a copy of the conversation that is sent for this tap. A reader of the copy that is slow holds the sender back.
    pub(crate) fn tapped(&self, tap: EventTap) -> Self {
        Self { count: Arc::clone(&self.count), tap: Some(Arc::new(tap)) }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.count.0
    }

    /// Sends a log line, progress, a warning, a file or a piece of output. Never waits: over their bounds, they are left out and
    /// marked. A conversation must not be sent like this: see [`send`](Self::send).
    pub fn say(&self, body: EventBody) {
        let kind = body.kind();
        let shared = self.shared();
        let mut buffer = shared.lock();
        if buffer.closed {
            return;
        }
        match kind {
            EventKind::File => {
                buffer.files += 1;
                match buffer.files.cmp(&(MAX_FILES + 1)) {
                    Ordering::Less => buffer.push(body, None),
                    Ordering::Equal => {
                        let text = format!("not all files are recorded: there are more than {MAX_FILES}");
                        buffer.push(EventBody::Warning { text }, None);
                    }
                    Ordering::Greater => return,
                }
            }
            EventKind::Stdout => {
                if buffer.stdout_pieces >= MAX_STDOUT_PIECES {
                    return;
                }
                buffer.stdout_pieces += 1;
                buffer.push(body, None);
            }
            EventKind::Log
            | EventKind::Progress
            | EventKind::Warning
            | EventKind::Message
            | EventKind::ToolCall
            | EventKind::Prompt
            | EventKind::Thinking
            | EventKind::ToolResult
            | EventKind::Usage
            | EventKind::Session
            | EventKind::Transition
            | EventKind::Thinned
            | EventKind::Status
            | EventKind::Error
            | EventKind::Result
            | EventKind::Raw
            | EventKind::FormerPayload
            | EventKind::Continued => {
                debug_assert!(
                    kind.loss() == Loss::Thinned || kind == EventKind::Warning,
                    "{kind:?} must not be lost: its sender has to wait"
                );
                if buffer.is_full(&body) {
                    buffer.thinned += 1;
                    return;
                }
                buffer.mark();
                buffer.push(body, None);
            }
        }
        drop(buffer);
        shared.filled.notify_one();
    }

    /// Sends an event that must not be lost: waits while the buffer is full, so that a store that is slower than the source
    /// slows it down.
    pub async fn send(&self, body: EventBody) -> Sent {
        self.put_and_copy(body, None).await
    }

    /// Sends an event, and waits until it is stored. For what must be known before the work goes on, such as the id of a session.
    pub async fn store(&self, body: EventBody) -> Sent {
        let (stored, is_stored) = oneshot::channel();
        if self.put_and_copy(body, Some(stored)).await == Sent::Closed {
            return Sent::Closed;
        }
        // Dropped without an answer: it will not be stored.
        is_stored.await.map_or(Sent::Closed, |()| Sent::Yes)
    }

    /// The copy comes second: what a tap has is in the buffer.
    async fn put_and_copy(&self, body: EventBody, stored: Option<oneshot::Sender<()>>) -> Sent {
        let copied = self.tap.as_deref().and_then(|tap| Some((tap, tap.copy(&body)?)));
        let sent = self.put(body, stored).await;
        if let (Sent::Yes, Some((tap, copy))) = (sent, copied) {
            tap.send(copy).await;
        }
        sent
    }

    async fn put(&self, body: EventBody, stored: Option<oneshot::Sender<()>>) -> Sent {
        let shared = self.shared();
        loop {
            let room = shared.room.notified();
            let mut room = std::pin::pin!(room);
            room.as_mut().enable();
            {
                let mut buffer = shared.lock();
                if buffer.closed {
                    return Sent::Closed;
                }
                if !buffer.is_full(&body) {
                    buffer.mark();
                    buffer.push(body, stored);
                    drop(buffer);
                    shared.filled.notify_one();
                    return Sent::Yes;
                }
            }
            room.await;
        }
    }
}

impl EventReceiver {
    /// The next event; `None` when the channel is closed and empty.
    pub async fn recv(&self) -> Option<EventBody> {
        let mut one = Vec::with_capacity(1);
        self.recv_many(&mut one, 1).await;
        one.pop().map(|queued| queued.body)
    }

    /// Waits for events, and appends up to `most` of them, and as many as fit into four megabytes, at least one. Returns
    /// how many; zero when the channel is closed and empty.
    pub async fn recv_many(&self, into: &mut Vec<QueuedEvent>, most: usize) -> usize {
        loop {
            let filled = self.0.filled.notified();
            let held = {
                let mut buffer = self.0.lock();
                if buffer.closed {
                    buffer.mark();
                }
                let held = buffer.held();
                let (mut taken, mut bytes) = (0, 0);
                while taken < most
                    && held.is_none_or(|(number, _)| buffer.waiting.first < number)
                    && let Some(next) = buffer.waiting.front()
                {
                    bytes += next.body.text().map_or(0, str::len);
                    if taken > 0 && bytes > MAX_WAITING_BYTES {
                        break;
                    }
                    into.extend(buffer.waiting.take());
                    taken += 1;
                }
                if taken > 0 || buffer.closed {
                    drop(buffer);
                    self.0.room.notify_waiters();
                    return taken;
                }
                held
            };
            match held {
                Some((_, until)) => drop(tokio::time::timeout_at(until, filled).await),
                None => filled.await,
            }
        }
    }

    /// An event that is already in the buffer.
    #[must_use]
    pub fn try_recv(&self) -> Option<EventBody> {
        let next = self.0.lock().waiting.take();
        self.0.room.notify_waiters();
        next.map(|queued| queued.body)
    }

    /// Closes the channel. Events sent before stay available.
    pub fn close(&self) {
        self.0.close();
    }
}
