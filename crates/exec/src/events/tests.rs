//! Tests of the event channel: order, bounds, waits, and secrets.

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
    let pieces = std::iter::from_fn(|| receiver.try_recv()).filter(|event| event.kind() == EventKind::Stdout);
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
