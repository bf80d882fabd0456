//! Events: append-only, numbered from one for each task.

use ostler_core::{
    Conversation, Cost, ErrorClass, EventBody, EventKind, EventKinds, Outcome, PROMPT_SHOWN, PromptRef, Role,
    StateName, TaskId, Usage, beginning,
};

use super::super::sample_events::one_of_each;
use super::super::scene::{Scene, TICK, TTL, failure, with_token};
use super::runner::cases;
use ostler_store::calls::{Appended, Finished, Ran, Report};
use ostler_store::events::{Event, EventQuery, TextRef};
use ostler_store::{Lease, LeaseRef, MAX_READ_BYTES};

cases![
    events_are_kept_in_order_and_numbered_from_one,
    numbers_go_on_with_the_next_attempt,
    each_task_counts_for_itself,
    nothing_to_append_answers_with_the_last_number,
    events_are_read_from_a_number_on,
    events_of_some_kinds_are_read_alone,
    an_unknown_task_has_no_events,
    a_claimed_task_takes_events,
    events_with_another_token_are_lost,
    events_for_an_unknown_task_are_lost,
    events_for_a_task_that_is_not_leased_are_lost,
    a_long_text_is_read_whole_cut_and_in_parts,
    a_page_of_long_texts_is_bounded_and_goes_on,
    a_long_output_is_read_whole_and_in_parts,
    what_is_not_there_has_no_text,
    prompt_session_and_usage_stay_with_their_attempt,
    a_conversation_is_kept_when_the_node_dies,
    the_session_to_resume_is_the_last_one_of_an_earlier_lease,
    a_long_prompt_is_shown_from_its_beginning,
];

fn lines(texts: &[&str]) -> Vec<EventBody> {
    texts.iter().copied().map(EventBody::line).collect()
}

async fn append(s: &Scene, lease: LeaseRef, events: Vec<EventBody>) -> Appended {
    s.store.append(lease, events).await.expect("append answers")
}

async fn events_are_kept_in_order_and_numbered_from_one(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let all = one_of_each("a line\n\u{1f40e}");
    let last = all.len() as u64;
    assert_eq!(append(s, lease, all.clone()).await, Appended::Recorded { last });
    let first = s.now();
    s.pass(TICK);
    assert_eq!(append(s, lease, lines(&[""])).await, Appended::Recorded { last: last + 1 });
    let expected: Vec<Event> = all
        .into_iter()
        .map(|event| (event, first))
        .chain([(EventBody::line(""), s.now())])
        .zip(1..)
        .map(|((body, at), number)| Event { number, at, token: 1, body, cut: None })
        .collect();
    assert_eq!(s.events(lease.task).await, expected);
}

async fn numbers_go_on_with_the_next_attempt(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    append(s, lease.as_ref(), lines(&["a", "b"])).await;
    s.finish(lease, Outcome::HandedBack).await;
    let lease = s.run(node).await;
    // The hand-back is an event, too.
    assert_eq!(append(s, lease.as_ref(), lines(&["c"])).await, Appended::Recorded { last: 4 });
    let events = s.events(id).await.into_iter();
    let lines = events.filter(|event| event.body.kind() == EventKind::Log);
    let seen: Vec<_> = lines.map(|event| (event.number, event.token, event.body)).collect();
    assert_eq!(
        seen,
        [(1, 1, EventBody::line("a")), (2, 1, EventBody::line("b")), (4, 2, EventBody::line("c"))]
    );
}

async fn each_task_counts_for_itself(s: &Scene) {
    let node = s.join().await;
    let one = s.running(node).await.as_ref();
    let other = s.running(node).await.as_ref();
    append(s, one, lines(&["a"])).await;
    assert_eq!(append(s, other, lines(&["b"])).await, Appended::Recorded { last: 1 });
    assert_eq!(append(s, one, lines(&["c"])).await, Appended::Recorded { last: 2 });
    assert_eq!(s.events(other.task).await.len(), 1);
}

async fn nothing_to_append_answers_with_the_last_number(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    assert_eq!(append(s, lease, Vec::new()).await, Appended::Recorded { last: 0 });
    append(s, lease, lines(&["a"])).await;
    assert_eq!(append(s, lease, Vec::new()).await, Appended::Recorded { last: 1 });
    assert_eq!(append(s, with_token(lease, 9), Vec::new()).await, Appended::LeaseLost);
}

async fn events_are_read_from_a_number_on(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    append(s, lease, lines(&["a", "b", "c", "d"])).await;
    for (after, limit, expected) in
        [(0, 10, vec![1, 2, 3, 4]), (2, 10, vec![3, 4]), (1, 2, vec![2, 3]), (4, 10, vec![]), (0, 0, vec![])]
    {
        let query = EventQuery { after, limit, ..EventQuery::default() };
        let read = s.store.read_events(lease.task, query).await.expect("events are read");
        let numbers: Vec<u64> = read.iter().map(|event| event.number).collect();
        assert_eq!(numbers, expected, "after {after}, at most {limit}");
    }
    let beyond = EventQuery::default().after(u64::MAX);
    assert_eq!(s.store.read_events(lease.task, beyond).await, Ok(Vec::new()));
}

async fn events_of_some_kinds_are_read_alone(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let other = s.running(node).await.as_ref();
    append(s, other, one_of_each("of another task")).await;
    for _ in 0..3 {
        append(s, lease, one_of_each("x")).await;
    }
    let all = s.events(lease.task).await;
    let sets = EventKind::ALL.iter().map(|kind| EventKinds::only(*kind)).chain([
        EventKinds::only(EventKind::File).with(EventKind::Usage),
        EventKinds::only(EventKind::Log).with(EventKind::Message),
        EventKinds::NONE,
    ]);
    for kinds in sets {
        for (after, limit) in [(0, 100), (16, 100), (0, 1), (90, 100)] {
            let wanted = |event: &&Event| kinds.has(event.body.kind()) && event.number > after;
            let wanted: Vec<Event> = all.iter().filter(wanted).take(limit).cloned().collect();
            let query = EventQuery { kinds, after, limit, ..EventQuery::default() };
            let read = s.store.read_events(lease.task, query).await;
            assert_eq!(read, Ok(wanted), "{kinds:?} after {after}, at most {limit}");
        }
    }
}

async fn an_unknown_task_has_no_events(s: &Scene) {
    assert_eq!(s.store.read_events(s.task_id(), EventQuery::default()).await, Ok(Vec::new()));
}

async fn a_claimed_task_takes_events(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await.as_ref();
    assert_eq!(append(s, lease, lines(&["a"])).await, Appended::Recorded { last: 1 });
}

async fn events_with_another_token_are_lost(s: &Scene) {
    let node = s.join().await;
    let first = s.leased(node).await.as_ref();
    s.finish(Lease::granted(first), Outcome::HandedBack).await;
    let now = s.run(node).await.as_ref();
    for token in [0, first.token, now.token + 1] {
        assert_eq!(
            append(s, with_token(now, token), lines(&["x"])).await,
            Appended::LeaseLost,
            "token {token}"
        );
    }
    assert_eq!(s.events(now.task).await, Vec::new());
}

async fn events_for_an_unknown_task_are_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let foreign = LeaseRef { task: s.task_id(), ..lease };
    assert_eq!(append(s, foreign, lines(&["x"])).await, Appended::LeaseLost);
    assert_eq!((s.events(lease.task).await, s.events(foreign.task).await), (Vec::new(), Vec::new()));
}

async fn events_for_a_task_that_is_not_leased_are_lost(s: &Scene) {
    let node = s.join().await;
    for outcome in [Outcome::HandedBack, Outcome::Success] {
        s.add().await;
        let lease = s.claim(node, 1).await.remove(0).lease;
        let kept = lease.as_ref();
        s.finish(lease, outcome.clone()).await;
        assert_eq!(append(s, kept, lines(&["x"])).await, Appended::LeaseLost, "after {outcome:?}");
        assert_eq!(s.events(kept.task).await, Vec::new());
    }
}

/// A text of this many bytes that no repetition compresses away, with characters of two bytes.
fn text_of(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 24);
    for number in 0_u64.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("é{:x} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    text.truncate(beginning(&text, bytes).len());
    text
}

async fn a_long_text_is_read_whole_cut_and_in_parts(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let text = text_of(3 << 20);
    let message = |text: &str| EventBody::Message { role: Role::Assistant, text: text.to_owned() };
    append(s, lease, vec![EventBody::line("before"), message(&text), EventBody::line("after")]).await;
    let bodies: Vec<EventBody> = s.events(lease.task).await.into_iter().map(|event| event.body).collect();
    assert!(bodies == [EventBody::line("before"), message(&text), EventBody::line("after")]);
    for most in [0, 1, 1_000, 65_535, 65_536, 200_001, text.len() - 1] {
        let query = EventQuery { text_bytes: most, ..EventQuery::default().after(1) };
        let read = s.store.read_events(lease.task, query).await.expect("events are read");
        let size = text.len() as u64;
        assert!(read[0].body == message(beginning(&text, most)), "cut to {most}");
        assert_eq!(read[0].cut, Some(size), "cut to {most}");
    }
    for (from, most) in
        [(0, 10), (65_530, 20), (131_072, 65_536), (1, 1 << 20), (text.len() - 3, 10), (text.len(), 10)]
    {
        let part = s.store.read_text(lease.task, TextRef::Event(2), from as u64, most).await;
        let part = part.expect("parts are read").expect("there is a text");
        let end = (from + most).min(text.len());
        assert!(part.bytes == text.as_bytes()[from..end], "{most} bytes from {from}");
        assert_eq!(part.size, text.len() as u64);
    }
}

async fn a_page_of_long_texts_is_bounded_and_goes_on(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let text = text_of(MAX_READ_BYTES / 5 * 2);
    for number in 0..7 {
        append(s, lease, vec![EventBody::Prompt { text: format!("{number}{text}") }]).await;
    }
    let page = s.store.read_events(lease.task, EventQuery::default()).await.expect("events are read");
    assert_eq!(page.len(), 2, "a third one is more than a page may have");
    let firsts: String =
        s.events(lease.task).await.iter().filter_map(|event| event.body.text()?.chars().next()).collect();
    assert_eq!(firsts, "0123456");
    let short = EventQuery { text_bytes: 10, ..EventQuery::default() };
    let page = s.store.read_events(lease.task, short).await.expect("events are read");
    assert_eq!(page.len(), 7, "what is cut short fits");
}

async fn a_long_output_is_read_whole_and_in_parts(s: &Scene) {
    let node = s.join().await;
    for durable in [StartOf::Written, StartOf::Told] {
        let output = format!("\"{}\"", text_of(300_000));
        let lease = match durable {
            StartOf::Written => s.running(node).await,
            StartOf::Told => s.leased(node).await,
        };
        let id = lease.task();
        let ran = match durable {
            StartOf::Written => None,
            StartOf::Told => Some(Ran { worker: s.worker(), took: TICK }),
        };
        let report =
            Report { lease, ran, outcome: Outcome::Success, output: Some(output.clone()), reading: None };
        let finished = s.store.finish(vec![report]).await.expect("finish answers");
        assert_eq!(finished, [Finished::Recorded(StateName::Completed)]);
        assert!(s.task(id).await.output.as_ref() == Some(&output));
        let part = s.store.read_text(id, TextRef::Output, 65_530, 12).await;
        let part = part.expect("parts are read").expect("there is an output");
        assert_eq!(
            (part.bytes.as_slice(), part.size),
            (&output.as_bytes()[65_530..65_542], output.len() as u64)
        );
    }
}

/// When the start of an attempt is written.
#[derive(Clone, Copy)]
enum StartOf {
    /// Before the attempt.
    Written,
    /// With its end.
    Told,
}

async fn what_is_not_there_has_no_text(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    append(s, lease, vec![EventBody::Thinned { lines: 1 }]).await;
    for (task, which) in [
        (lease.task, TextRef::Event(1)),
        (lease.task, TextRef::Event(2)),
        (lease.task, TextRef::Output),
        (s.task_id(), TextRef::Event(1)),
        (s.task_id(), TextRef::Output),
    ] {
        assert_eq!(s.store.read_text(task, which, 0, 10).await, Ok(None), "{which:?}");
    }
}

fn spent(model: &str, tokens: u64, nanos: Option<u64>) -> Usage {
    Usage {
        model: Some(model.to_owned()),
        input_tokens: tokens,
        cost: nanos.map(Cost::from_nanos),
        ..Usage::default()
    }
}

fn session(id: &str) -> EventBody {
    EventBody::Session { id: id.to_owned() }
}

async fn conversations(s: &Scene, id: TaskId) -> Vec<Conversation> {
    s.show(id).await.attempts.into_iter().map(|attempt| attempt.conversation).collect()
}

async fn prompt_session_and_usage_stay_with_their_attempt(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    let prompt = |text: &str| EventBody::Prompt { text: text.to_owned() };
    append(s, lease.as_ref(), vec![session("s-1"), EventBody::line("a line"), prompt("Review it.")]).await;
    append(s, lease.as_ref(), vec![EventBody::Usage(spent("big", 10, Some(500)))]).await;
    append(
        s,
        lease.as_ref(),
        vec![EventBody::Usage(spent("small", 1, None)), EventBody::Usage(spent("big", 5, Some(7)))],
    )
    .await;
    let first = Conversation {
        session: Some("s-1".to_owned()),
        prompt: Some(PromptRef { event: 3, bytes: 10, text: "Review it.".to_owned() }),
        usage: vec![spent("big", 15, Some(507)), spent("small", 1, None)],
    };
    assert_eq!(conversations(s, id).await, std::slice::from_ref(&first), "while it runs");
    s.finish(lease, failure(ErrorClass::Transient)).await;
    s.pass(TTL);
    s.store.make_ready(10).await.expect("make_ready answers");
    let lease = s.run(node).await;
    append(s, lease.as_ref(), vec![session("s-2"), session("s-3")]).await;
    s.finish(lease, Outcome::Success).await;
    let second = Conversation { session: Some("s-3".to_owned()), ..Conversation::default() };
    assert_eq!(conversations(s, id).await, [first, second]);
}

async fn a_conversation_is_kept_when_the_node_dies(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    append(s, lease, vec![session("s-1"), EventBody::Usage(spent("big", 1, Some(2)))]).await;
    s.fixture.kill(node).await;
    s.store.expire(10).await.expect("expire answers");
    let kept = conversations(s, lease.task).await;
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].session.as_deref(), kept[0].cost()), (Some("s-1"), Some(Cost::from_nanos(2))));
}

async fn the_session_to_resume_is_the_last_one_of_an_earlier_lease(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    append(s, lease.as_ref(), vec![session("s-0"), session("s-1")]).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), None, "it is this attempt's own");
    s.finish(lease, failure(ErrorClass::Transient)).await;
    s.pass(TTL);
    s.store.make_ready(10).await.expect("make_ready answers");
    // An attempt without one, and one whose start was not written before its node died.
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), Some("s-1"));
    s.finish(lease, failure(ErrorClass::Transient)).await;
    s.pass(TTL);
    s.store.make_ready(10).await.expect("make_ready answers");
    let other = s.join().await;
    let lost = s.lease(other).await.as_ref();
    assert_eq!(s.show(id).await.session_before(lost.token), Some("s-1"));
    append(s, lost, vec![session("s-2")]).await;
    s.fixture.kill(other).await;
    s.store.expire(10).await.expect("expire answers");
    let node = s.join().await;
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), Some("s-2"));
}

async fn a_long_prompt_is_shown_from_its_beginning(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let text = text_of(PROMPT_SHOWN * 3 + 1);
    append(s, lease, vec![EventBody::Prompt { text: text.clone() }]).await;
    let kept = conversations(s, lease.task).await.remove(0).prompt.expect("it has a prompt");
    assert_eq!((kept.event, kept.bytes), (1, text.len() as u64));
    assert!(kept.text == beginning(&text, PROMPT_SHOWN));
}
