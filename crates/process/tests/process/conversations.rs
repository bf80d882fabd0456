//! Conversations of workers: what they report is kept whole, and a store that is slower slows them down.

use std::time::Duration;

use ostler_core::{Cost, ErrorClass, EventBody, EventKind, Outcome, Role, ToolStatus, Usage};
use ostler_exec::{AttemptResult, Control, EventReceiver, Work, WorkerFate, event_channel};

use crate::bench::SOON;
use crate::desk::{Desk, heard, output, task};

/// Stores every event, as a node does.
pub(crate) async fn store_all(events: EventReceiver) -> Vec<EventBody> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while events.recv_many(&mut batch, 7).await > 0 {
        for queued in batch.drain(..) {
            all.push(queued.body);
            queued.receipt.stored();
        }
    }
    all
}

#[tokio::test]
async fn each_part_of_a_conversation_is_recorded() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, events) = event_channel();
    let storing = tokio::spawn(store_all(events));
    let ended = desk.run_with(worker, task("converse", "1"), Control::new(sender)).await;
    assert_eq!(output(ended), "1");
    let usage = Usage {
        model: Some("m".into()),
        input_tokens: 3,
        output_tokens: 4,
        cost: Cost::from_usd(0.25),
        ..Usage::default()
    };
    let output = "no such file".to_owned();
    assert_eq!(
        storing.await.expect("it stores"),
        [
            EventBody::Session { id: "s-1".into() },
            EventBody::Prompt { text: "Review it.".into() },
            EventBody::Message { role: Role::User, text: "Hello".into() },
            EventBody::Thinking { text: "Hm".into() },
            EventBody::ToolCall { call: "c1".into(), tool: "Read".into(), input: r#"{"path":"a"}"#.into() },
            EventBody::ToolResult { call: "c1".into(), tool: None, status: ToolStatus::Error, output },
            EventBody::Usage(usage),
        ]
    );
}

#[tokio::test]
async fn a_worker_that_says_more_than_is_stored_waits_and_loses_no_message() {
    const MESSAGES: usize = 5_000;
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, events) = event_channel();
    let storing = tokio::spawn(store_all(events));
    let ended =
        desk.run_with(worker, task("flood-messages", &MESSAGES.to_string()), Control::new(sender)).await;
    assert_eq!(ended, AttemptResult::success(None));
    let (mut messages, mut lines) = (Vec::new(), 0);
    for event in storing.await.expect("it stores") {
        if let EventBody::Message { text, .. } = event {
            messages.push(text);
        } else if let EventBody::Thinned { lines: thinned } = event {
            lines += thinned;
        } else {
            assert_eq!(event.kind(), EventKind::Log);
            lines += 1;
        }
    }
    assert_eq!(messages, (0..MESSAGES).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(lines, MESSAGES as u64, "each line is there or counted");
}

#[tokio::test]
async fn a_worker_waits_while_nothing_is_stored_and_its_timeout_counts_on() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, events) = event_channel();
    let work = Work { timeout: Duration::from_secs(2), ..task("flood-messages", "100000") };
    let ended = desk.run_with(worker, work, Control::new(sender)).await;
    let Outcome::Failed(failure) = ended.outcome else { panic!("{ended:?}") };
    assert_eq!(failure.class, ErrorClass::Timeout);
    assert!(heard(&events).len() < 10_000, "the buffer is bounded");
}

#[tokio::test]
async fn a_worker_does_not_go_on_before_its_session_is_stored() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (sender, events) = event_channel();
    let work = Work { timeout: Duration::from_secs(2), ..task("converse", "1") };
    let ended = desk.run_with(worker, work, Control::new(sender)).await;
    let Outcome::Failed(failure) = ended.outcome else { panic!("{ended:?}") };
    assert_eq!(failure.class, ErrorClass::Timeout);
    let mut heard = heard(&events);
    heard.retain(|event| event.kind() != EventKind::Log);
    assert_eq!(heard, [EventBody::Session { id: "s-1".into() }], "nothing was said after it");
}

#[tokio::test]
async fn what_a_worker_said_before_it_died_is_kept() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let (ended, events) = desk.run(worker, task("message-and-die", "null")).await;
    assert_eq!(ended.slot, WorkerFate::Dead);
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    let message = EventBody::Message { role: Role::Assistant, text: "last words".into() };
    assert_eq!(heard(&events), [message, EventBody::Usage(usage)]);
}

#[tokio::test]
async fn a_worker_whose_time_is_up_is_asked_to_stop_before_it_gets_a_signal() {
    let desk = Desk::well().await;
    let worker = desk.open().await;
    let work = Work { timeout: Duration::from_millis(100), grace: SOON, ..task("stop-when-asked", "null") };
    let (ended, _) = desk.run(worker, work).await;
    let Outcome::Failed(failure) = &ended.outcome else { panic!("{ended:?}") };
    assert_eq!((failure.class, ended.slot), (ErrorClass::Timeout, WorkerFate::Reusable));
    desk.still_works(worker).await;
}
