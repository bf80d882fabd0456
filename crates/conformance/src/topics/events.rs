//! Events: append-only, numbered from one for each task.

use ostler_core::Outcome;

use super::super::scene::{Scene, TICK, with_token};
use super::runner::cases;
use ostler_store::calls::{Appended, EventKind, NewEvent};
use ostler_store::views::Event;
use ostler_store::{Lease, LeaseRef};

cases![
    events_are_kept_in_order_and_numbered_from_one,
    numbers_go_on_with_the_next_attempt,
    each_task_counts_for_itself,
    nothing_to_append_answers_with_the_last_number,
    events_are_read_from_a_number_on,
    events_of_one_kind_are_read_alone,
    an_unknown_task_has_no_events,
    a_claimed_task_takes_events,
    events_with_another_token_are_lost,
    events_for_an_unknown_task_are_lost,
    events_for_a_task_that_is_not_leased_are_lost,
];

fn event(kind: EventKind, data: &str) -> NewEvent {
    NewEvent { kind, data: data.to_owned() }
}

fn lines(texts: &[&str]) -> Vec<NewEvent> {
    texts.iter().map(|text| event(EventKind::Log, text)).collect()
}

async fn append(s: &Scene, lease: LeaseRef, events: Vec<NewEvent>) -> Appended {
    s.store.append(lease, events).await.expect("append answers")
}

async fn events_are_kept_in_order_and_numbered_from_one(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let all: Vec<NewEvent> =
        EventKind::ALL.into_iter().map(|kind| event(kind, &format!("{kind:?}\n\u{1f40e}"))).collect();
    assert_eq!(append(s, lease, all.clone()).await, Appended::Recorded { last: 7 });
    let first = s.now();
    s.pass(TICK);
    assert_eq!(append(s, lease, lines(&[""])).await, Appended::Recorded { last: 8 });
    let expected: Vec<Event> = all
        .into_iter()
        .map(|event| (event, first))
        .chain([(event(EventKind::Log, ""), s.now())])
        .zip(1..)
        .map(|((NewEvent { kind, data }, at), number)| Event { number, at, token: 1, kind, data })
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
    assert_eq!(append(s, lease.as_ref(), lines(&["c"])).await, Appended::Recorded { last: 3 });
    let seen: Vec<_> =
        s.events(id).await.into_iter().map(|event| (event.number, event.token, event.data)).collect();
    assert_eq!(seen, [(1, 1, "a".to_owned()), (2, 1, "b".to_owned()), (3, 2, "c".to_owned())]);
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
        let read = s.store.read_events(lease.task, None, after, limit).await.expect("events are read");
        let numbers: Vec<u64> = read.iter().map(|event| event.number).collect();
        assert_eq!(numbers, expected, "after {after}, at most {limit}");
    }
    assert_eq!(s.store.read_events(lease.task, None, u64::MAX, 10).await, Ok(Vec::new()));
}

async fn events_of_one_kind_are_read_alone(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let other = s.running(node).await.as_ref();
    append(s, other, vec![event(EventKind::File, "of another task")]).await;
    let kinds = [EventKind::Log, EventKind::File, EventKind::Progress, EventKind::File, EventKind::Log];
    append(s, lease, kinds.into_iter().map(|kind| event(kind, "x")).collect()).await;
    for kind in EventKind::ALL {
        for (after, limit) in [(0, 10), (2, 10), (0, 1), (9, 10)] {
            let all = s.events(lease.task).await.into_iter();
            let wanted: Vec<Event> =
                all.filter(|event| event.kind == kind && event.number > after).take(limit).collect();
            let read = s.store.read_events(lease.task, Some(kind), after, limit).await;
            assert_eq!(read, Ok(wanted), "{kind:?} after {after}, at most {limit}");
        }
    }
    assert_eq!(s.store.read_events(s.task_id(), Some(EventKind::Log), 0, 10).await, Ok(Vec::new()));
}

async fn an_unknown_task_has_no_events(s: &Scene) {
    assert_eq!(s.store.read_events(s.task_id(), None, 0, 10).await, Ok(Vec::new()));
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
