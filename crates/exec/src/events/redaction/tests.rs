//! Tests of secrets in events: split over lines and pieces of a message, held for a short time, never longer.

use ostler_core::{EventBody, Level, LogStream, Role, ToolStatus, Usage};

use super::super::{EventReceiver, EventSender, QueuedEvent, Sent, event_channel};
use super::*;
use crate::secrets::{OutputRedaction, Secret};

const VALUE: &str = "sk-123456789";
const PEM: &str = "-----BEGIN-----\nabcdefgh\nijklmnop\n-----END-----";

fn channel() -> (EventSender, EventReceiver) {
    let all = [("KEY", VALUE), ("PEM", PEM)].map(|(name, value)| Secret::new(name, value).expect("valid"));
    let (sender, receiver) = event_channel();
    sender.redact(&Secrets::new(all.to_vec(), OutputRedaction::Off).expect("valid"));
    (sender, receiver)
}

fn message(text: &str) -> EventBody {
    EventBody::Message { role: Role::Assistant, text: text.to_owned() }
}

fn line(stream: LogStream, text: &str) -> EventBody {
    EventBody::Log { level: Level::Info, stream, text: text.to_owned() }
}

async fn ready(receiver: &EventReceiver) -> Vec<EventBody> {
    let mut batch: Vec<QueuedEvent> = Vec::new();
    receiver.recv_many(&mut batch, 100).await;
    batch.into_iter().map(|queued| queued.body).collect()
}

/// Everything, with the channel closed.
async fn all(sender: EventSender, receiver: EventReceiver) -> Vec<EventBody> {
    drop(sender);
    ready(&receiver).await
}

#[tokio::test]
async fn a_value_in_any_text_or_label_is_replaced() {
    let (sender, receiver) = channel();
    let v = || VALUE.to_owned();
    sender.say(line(LogStream::Log, VALUE));
    sender.say(EventBody::Progress { done: 1, total: None, note: Some(v()) });
    sender.say(EventBody::warning(VALUE));
    sender.say(EventBody::File { path: v(), size: 1, sha256: "aa".into() });
    sender.say(EventBody::Stdout { text: format!("\"{VALUE}\"") });
    for body in [
        EventBody::Prompt { text: format!("Use {VALUE}.") },
        EventBody::Thinking { text: v() },
        EventBody::ToolCall { call: v(), tool: v(), input: format!("{{\"a\":\"{VALUE}\"}}") },
        EventBody::ToolResult { call: v(), tool: Some(v()), status: ToolStatus::Ok, output: v() },
        EventBody::Usage(Usage { model: Some(v()), ..Usage::default() }),
        EventBody::Session { id: v() },
    ] {
        assert_eq!(sender.send(body).await, Sent::Yes);
    }
    let events = all(sender, receiver).await;
    assert_eq!(events.len(), 11);
    for event in events {
        let shown = format!("{event:?}");
        assert!(shown.contains("[secret KEY]") && !shown.contains(VALUE), "{shown}");
    }
}

#[tokio::test]
async fn a_value_split_over_pieces_of_a_message_is_replaced_at_every_split() {
    let text = format!("the key is {VALUE}, keep it");
    for first in 0..text.len() {
        for second in (first..text.len()).step_by(3) {
            let (sender, receiver) = channel();
            for piece in [&text[..first], &text[first..second], &text[second..]] {
                assert_eq!(sender.send(message(piece)).await, Sent::Yes);
                sender.say(line(LogStream::Log, "between"));
            }
            let texts = all(sender, receiver).await.into_iter();
            let joined: String = texts
                .filter(|event| event.kind() == EventKind::Message)
                .filter_map(|event| event.text().map(str::to_owned))
                .collect();
            assert_eq!(joined, "the key is [secret KEY], keep it", "split at {first} and {second}");
        }
    }
}

#[tokio::test]
async fn the_lines_of_a_key_become_one_line() {
    for stream in [LogStream::Log, LogStream::Stderr] {
        let (sender, receiver) = channel();
        sender.say(line(stream, "before"));
        PEM.lines().for_each(|text| sender.say(line(stream, text)));
        sender.say(line(stream, "behind"));
        let events = all(sender, receiver).await;
        assert_eq!(events, ["before", "[secret PEM]", "behind"].map(|text| line(stream, text)));
    }
}

#[tokio::test]
async fn texts_that_only_look_like_a_beginning_are_as_they_were_sent() {
    let (sender, receiver) = channel();
    let sent =
        [message("cats"), message("and dogs"), message("sk-"), EventBody::Thinking { text: "k".into() }];
    for body in sent.clone() {
        assert_eq!(sender.send(body).await, Sent::Yes);
    }
    sender.say(line(LogStream::Log, "-----BEGIN-----"));
    sender.say(line(LogStream::Log, "other"));
    let events = all(sender, receiver).await;
    assert_eq!(events[..4], sent);
    assert_eq!(events.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_held_until_the_next_of_its_text_or_for_a_second() {
    let (sender, receiver) = channel();
    sender.say(line(LogStream::Log, "cats"));
    assert_eq!(ready(&receiver).await.len(), 1, "a line ends: no single line goes on in the next");
    assert_eq!(sender.send(message("is sk-1234")).await, Sent::Yes);
    let began = Instant::now();
    assert_eq!(ready(&receiver).await, [message("is sk-1234")]);
    assert_eq!(began.elapsed(), MAX_HELD);
    assert_eq!(sender.send(message("56789!")).await, Sent::Yes);
    assert_eq!(ready(&receiver).await, [message("[secret KEY]!")], "what is not stored yet is redacted");
    assert_eq!(sender.send(message("sk-123456789 s")).await, Sent::Yes);
    assert_eq!(ready(&receiver).await, [message("[secret KEY] s")]);
    assert_eq!(sender.send(message("o")).await, Sent::Yes);
    assert_eq!(ready(&receiver).await, [message("o")], "the mark of what is stored does not come again");
    assert_eq!(sender.send(message("is sk-")).await, Sent::Yes);
    assert_eq!(sender.send(EventBody::Thinking { text: "so".into() }).await, Sent::Yes);
    let began = Instant::now();
    assert_eq!(ready(&receiver).await.len(), 2, "the message has ended");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_held_event_is_bounded() {
    let (sender, receiver) = channel();
    assert_eq!(sender.send(message("sk-")).await, Sent::Yes);
    (0..MAX_HELD_EVENTS).for_each(|_| sender.say(line(LogStream::Log, "x")));
    let began = Instant::now();
    assert_eq!(ready(&receiver).await.len() as u64, MAX_HELD_EVENTS + 1);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_stored_at_once_with_what_stands_before_it() {
    let (sender, receiver) = channel();
    assert_eq!(sender.send(message("sk-")).await, Sent::Yes);
    let storing = tokio::spawn(async move { sender.store(EventBody::Session { id: "s-1".into() }).await });
    tokio::task::yield_now().await;
    let began = Instant::now();
    let mut batch = Vec::new();
    assert_eq!(receiver.recv_many(&mut batch, 100).await, 2);
    assert_eq!(began.elapsed(), Duration::ZERO);
    batch.into_iter().for_each(|queued| queued.receipt.stored());
    assert_eq!(storing.await.expect("it ends"), Sent::Yes);
}
