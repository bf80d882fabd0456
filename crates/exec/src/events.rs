//! Events of a running attempt, in a bounded buffer until they are stored.
//!
//! Log lines and progress never hold the work back: when the store is slower, some are left out, and a mark says how many. A
//! conversation does: its sender waits for room, and nothing of it is lost. Most attempts send no events, so a sender and
//! a receiver cost little until the first one.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler_core::{EventBody, EventKind, Loss, cut};
use tokio::sync::{Notify, oneshot};

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
pub const MAX_STDOUT_PIECES: usize = 2_048;

/// Creates the sender and the receiver of one attempt.
#[must_use]
pub fn event_channel() -> (EventSender, EventReceiver) {
    let shared = Arc::<Shared>::default();
    (EventSender(Arc::new(SenderCount(Arc::clone(&shared)))), EventReceiver(shared))
}

/// The sending half.
#[derive(Clone, Debug)]
pub struct EventSender(Arc<SenderCount>);

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
    waiting: VecDeque<QueuedEvent>,
    /// Bytes of their texts.
    bytes: usize,
    thinned: u64,
    files: usize,
    stdout_pieces: usize,
    closed: bool,
}

impl Buffer {
    fn push(&mut self, body: EventBody, stored: Option<oneshot::Sender<()>>) {
        self.bytes += body.text().map_or(0, str::len);
        self.waiting.push_back(QueuedEvent { body, receipt: Receipt(stored) });
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
        let events = self.waiting.len() + 1 + usize::from(self.thinned > 0);
        let bytes = self.bytes + more.text().map_or(0, str::len);
        events > MAX_WAITING || (bytes > MAX_WAITING_BYTES && !self.waiting.is_empty())
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
    match &mut body {
        EventBody::Progress { note, .. } => note.iter_mut().for_each(|note| clean(note, MAX_LABEL_BYTES)),
        EventBody::ToolCall { call, tool, .. } => {
            [call, tool].into_iter().for_each(|name| clean(name, MAX_LABEL_BYTES));
        }
        EventBody::ToolResult { call, tool, .. } => {
            [call].into_iter().chain(tool).for_each(|name| clean(name, MAX_LABEL_BYTES));
        }
        EventBody::File { path, .. } => clean(path, MAX_LABEL_BYTES),
        EventBody::Usage(usage) => usage.model.iter_mut().for_each(|model| clean(model, MAX_LABEL_BYTES)),
        EventBody::Session { id } => clean(id, MAX_LABEL_BYTES),
        EventBody::Log { .. }
        | EventBody::Prompt { .. }
        | EventBody::Message { .. }
        | EventBody::Thinking { .. }
        | EventBody::Warning { .. }
        | EventBody::Stdout { .. }
        | EventBody::Transition { .. }
        | EventBody::Thinned { .. } => {}
    }
    body
}

impl EventSender {
    /// Sends a log line, progress, a warning, a file or a piece of output. Never waits: over their bounds, they are left out and
    /// marked. A conversation must not be sent like this: see [`send`](Self::send).
    pub fn say(&self, body: EventBody) {
        let body = bounded(body);
        let kind = body.kind();
        let shared = &self.0.0;
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
            | EventKind::Thinned => {
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
        self.put(bounded(body), None).await
    }

    /// Sends an event, and waits until it is stored. For what must be known before the work goes on, such as the id of a session.
    pub async fn store(&self, body: EventBody) -> Sent {
        let (stored, is_stored) = oneshot::channel();
        if self.put(bounded(body), Some(stored)).await == Sent::Closed {
            return Sent::Closed;
        }
        // Dropped without an answer: it will not be stored.
        is_stored.await.map_or(Sent::Closed, |()| Sent::Yes)
    }

    async fn put(&self, body: EventBody, stored: Option<oneshot::Sender<()>>) -> Sent {
        let shared = &self.0.0;
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
            {
                let mut buffer = self.0.lock();
                if buffer.closed {
                    buffer.mark();
                }
                let (mut taken, mut bytes) = (0, 0);
                while taken < most
                    && let Some(next) = buffer.waiting.front()
                {
                    bytes += next.body.text().map_or(0, str::len);
                    if taken > 0 && bytes > MAX_WAITING_BYTES {
                        break;
                    }
                    into.extend(buffer.take());
                    taken += 1;
                }
                if taken > 0 || buffer.closed {
                    drop(buffer);
                    self.0.room.notify_waiters();
                    return taken;
                }
            }
            filled.await;
        }
    }

    /// An event that is already in the buffer.
    #[must_use]
    pub fn try_recv(&self) -> Option<EventBody> {
        let next = self.0.lock().take();
        self.0.room.notify_waiters();
        next.map(|queued| queued.body)
    }

    /// Closes the channel. Events sent before stay available.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Buffer {
    fn take(&mut self) -> Option<QueuedEvent> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.body.text().map_or(0, str::len);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::Role;

    use super::*;

    fn line(number: usize) -> EventBody {
        EventBody::line(number.to_string())
    }

    fn message(text: &str) -> EventBody {
        EventBody::Message { role: Role::Assistant, text: text.to_owned() }
    }

    #[tokio::test]
    async fn events_arrive_in_order_and_end_with_the_last_sender() {
        let (sender, receiver) = event_channel();
        let other = sender.clone();
        sender.say(line(1));
        drop(sender);
        other.say(line(2));
        drop(other);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(line(1)), Some(line(2))));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn after_a_close_nothing_new_arrives() {
        let (sender, receiver) = event_channel();
        sender.say(line(1));
        receiver.close();
        sender.say(line(2));
        assert_eq!(sender.send(message("late")).await, Sent::Closed);
        assert_eq!((receiver.recv().await, receiver.recv().await), (Some(line(1)), None));
    }

    #[test]
    fn files_arrive_however_many_lines_wait_up_to_a_bound_of_their_own() {
        let (sender, receiver) = event_channel();
        (0..MAX_WAITING + 5).for_each(|number| sender.say(line(number)));
        let file = EventBody::File { path: "a".into(), size: 1, sha256: String::new() };
        (0..MAX_FILES + 5).for_each(|_| sender.say(file.clone()));
        let all: Vec<EventBody> = std::iter::from_fn(|| receiver.try_recv()).collect();
        assert_eq!(all.iter().filter(|event| **event == file).count(), MAX_FILES);
        let last = all.last().and_then(EventBody::text);
        assert!(last.is_some_and(|why| why.contains("1000")), "{last:?}");
    }

    #[test]
    fn pieces_of_stdout_arrive_however_many_lines_wait_up_to_a_bound_of_their_own() {
        let (sender, receiver) = event_channel();
        (0..MAX_WAITING + 5).for_each(|number| sender.say(line(number)));
        (0..MAX_STDOUT_PIECES + 5).for_each(|_| sender.say(EventBody::Stdout { text: "\"a\"".into() }));
        let pieces =
            std::iter::from_fn(|| receiver.try_recv()).filter(|event| event.kind() == EventKind::Stdout);
        assert_eq!(pieces.count(), MAX_STDOUT_PIECES);
    }

    #[test]
    fn over_the_bound_lines_are_left_out_and_the_gap_is_marked_once_there_is_room() {
        let (sender, receiver) = event_channel();
        (0..MAX_WAITING + 5).for_each(|number| sender.say(line(number)));
        let _ = (receiver.try_recv(), receiver.try_recv());
        sender.say(line(7));
        let all: Vec<EventBody> = std::iter::from_fn(|| receiver.try_recv()).collect();
        assert_eq!(all.len(), MAX_WAITING);
        assert_eq!(all[MAX_WAITING - 2..], [EventBody::Thinned { lines: 5 }, line(7)]);
    }

    #[tokio::test]
    async fn a_gap_at_the_end_is_marked_too() {
        let (sender, receiver) = event_channel();
        (0..MAX_WAITING + 5).for_each(|number| sender.say(line(number)));
        drop(sender);
        let mut all = Vec::new();
        while receiver.recv_many(&mut all, 100).await > 0 {}
        assert_eq!(all.pop().map(|queued| queued.body), Some(EventBody::Thinned { lines: 5 }));
    }

    #[tokio::test]
    async fn a_conversation_waits_for_room_and_loses_nothing() {
        let (sender, receiver) = event_channel();
        let talk = tokio::spawn(async move {
            for number in 0..MAX_WAITING * 3 {
                sender.say(line(number));
                assert_eq!(sender.send(message(&number.to_string())).await, Sent::Yes);
            }
        });
        let (mut messages, mut lines, mut thinned, mut batch) = (Vec::new(), 0, 0, Vec::new());
        while receiver.recv_many(&mut batch, 10).await > 0 {
            for queued in batch.drain(..) {
                if let EventBody::Message { text, .. } = queued.body {
                    messages.push(text);
                } else if let EventBody::Thinned { lines } = queued.body {
                    thinned += lines;
                } else {
                    assert_eq!(queued.body.kind(), EventKind::Log);
                    lines += 1;
                }
            }
        }
        talk.await.expect("the sender ends");
        assert_eq!(messages, (0..MAX_WAITING * 3).map(|number| number.to_string()).collect::<Vec<_>>());
        assert_eq!(lines + thinned, MAX_WAITING as u64 * 3, "every line is there or counted");
    }

    #[tokio::test]
    async fn one_long_text_passes_and_the_next_waits_until_it_is_taken() {
        let (sender, receiver) = event_channel();
        let long = "x".repeat(MAX_WAITING_BYTES + 1);
        assert_eq!(sender.send(message(&long)).await, Sent::Yes);
        let mut second = std::pin::pin!(sender.send(message("short")));
        assert!(futures_poll(second.as_mut()).is_none(), "there is no room");
        let mut batch = Vec::new();
        assert_eq!(receiver.recv_many(&mut batch, 10).await, 1);
        assert_eq!(second.await, Sent::Yes);
    }

    /// Polls once.
    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_stored_event_answers_when_it_is_stored_and_not_before() {
        let (sender, receiver) = event_channel();
        let mut storing = std::pin::pin!(sender.store(EventBody::Session { id: "s-1".to_owned() }));
        assert!(futures_poll(storing.as_mut()).is_none());
        let mut batch = Vec::new();
        receiver.recv_many(&mut batch, 10).await;
        assert!(futures_poll(storing.as_mut()).is_none(), "it is only taken");
        batch.into_iter().for_each(|queued| queued.receipt.stored());
        assert_eq!(storing.await, Sent::Yes);
    }

    #[tokio::test]
    async fn an_event_that_will_not_be_stored_says_so() {
        let (sender, receiver) = event_channel();
        let mut storing = std::pin::pin!(sender.store(EventBody::Session { id: "s-1".to_owned() }));
        assert!(futures_poll(storing.as_mut()).is_none());
        let mut batch = Vec::new();
        receiver.recv_many(&mut batch, 10).await;
        drop(batch);
        assert_eq!(storing.await, Sent::Closed);
    }
}
