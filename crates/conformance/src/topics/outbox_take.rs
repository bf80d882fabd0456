//! Taking outbox entries: each is delivered at least once, by one session at a time.

use ostler_core::{EndKind, EventBody, Outcome, SessionId, TaskId};

use super::super::scene::{QUEUE, Scene, TICK, TTL, heard, invalid};
use super::outbox::{SUBSCRIBER, ends, hear, subscription, tell};
use super::runner::cases;
use ostler_store::calls::{Claim, ClaimAnswer, NewTask, Prune, QueueChange};
use ostler_store::events::{Event, EventQuery};
use ostler_store::outbox::{Ack, MAX_SUBSCRIBERS, OutboxAnswer, OutboxEntry, OutboxFilter};
use ostler_store::{MAX_BATCH, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_PAGE};

cases![
    the_oldest_are_heard_first_and_only_of_one_queue,
    each_subscriber_hears_of_every_end_that_it_wants,
    an_entry_says_how_often_it_was_taken_before,
    a_subscriber_that_is_removed_leaves_nothing_behind,
    what_one_session_has_taken_no_other_hears,
    what_was_told_is_gone_and_its_number_with_it,
    only_who_has_taken_it_says_that_it_was_told,
    what_went_wrong_with_a_telling_is_a_warning_on_its_task,
    what_a_session_leaves_untold_the_next_one_hears,
    what_a_dead_session_leaves_untold_the_next_one_hears,
    a_session_that_is_over_hears_nothing,
    a_telling_goes_with_its_task,
    a_replayed_task_keeps_what_is_to_be_told_of_it,
    a_new_telling_wakes,
    bounds_of_hearing_and_telling,
];

async fn told(s: &Scene, session: SessionId, numbers: &[u64]) {
    let deliveries = numbers.iter().copied().map(Ack::from).collect();
    assert_eq!(s.store.ack_outbox(session, deliveries).await, Ok(()));
}

fn numbers(tellings: &[OutboxEntry]) -> Vec<u64> {
    tellings.iter().map(|telling| telling.number).collect()
}

async fn the_oldest_are_heard_first_and_only_of_one_queue(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    s.store
        .configure("other", vec![QueueChange::Subscribe(subscription(SUBSCRIBER, OutboxFilter::ALL))])
        .await
        .expect("configure answers");
    let node = s.join().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(s.completed(node).await);
        let theirs = s.draft();
        s.enqueue(NewTask { queue: "other".to_owned(), ..theirs }).await;
    }
    let asks = Claim { queue: "other".to_owned(), ..s.asks(node, 10) };
    let claimed = s.store.claim(asks).await.expect("claim answers");
    let ClaimAnswer::Tasks { tasks: theirs, .. } = claimed else { panic!("the session is alive") };
    for claimed in theirs {
        s.finish(claimed.lease, Outcome::Success).await;
    }
    assert_eq!(hear(s, node, 0).await, []);
    let first = hear(s, node, 3).await;
    assert_eq!(first.iter().map(|telling| telling.task).collect::<Vec<_>>(), ids[..3]);
    assert_eq!(numbers(&first), [1, 2, 3]);
    assert_eq!(ends(s, node).await, [(ids[3], EndKind::Completed)]);
    assert_eq!(ends(s, node).await, []);
    match s.store.take_outbox(node, "other", SUBSCRIBER, 10).await.expect("hear answers") {
        OutboxAnswer::Entries(theirs) => {
            assert_eq!(numbers(&theirs), [5, 6, 7, 8], "the numbers rise over the whole store");
            assert!(theirs.iter().all(|telling| telling.queue == "other"));
        }
        OutboxAnswer::SessionEnded => panic!("the session is alive"),
    }
}

async fn each_subscriber_hears_of_every_end_that_it_wants(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let failures = OutboxFilter::NONE.with(EndKind::Failed);
    s.configure(QueueChange::Subscribe(subscription("hooks", failures))).await;
    let [one, other] = [s.join().await, s.join().await];
    let completed = s.completed(one).await;
    let failed = s.dead_letter(one).await;
    let both = [(completed, EndKind::Completed), (failed, EndKind::Failed)];
    assert_eq!(ends(s, one).await, both);
    assert_eq!(ends_of(s, other, "hooks").await, [(failed, EndKind::Failed)], "whatever the other has taken");
    assert_eq!(ends_of(s, one, "hooks").await, []);
    assert_eq!(ends_of(s, one, "stranger").await, [], "nothing is kept for a name that never subscribed");
}

async fn an_entry_says_how_often_it_was_taken_before(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let mut node = s.join().await;
    s.completed(node).await;
    for earlier in 0..3 {
        let taken = hear(s, node, 10).await;
        assert_eq!(taken.iter().map(|entry| entry.earlier).collect::<Vec<_>>(), [earlier]);
        s.store.leave(node).await.expect("leave answers");
        node = s.join().await;
    }
}

async fn a_subscriber_that_is_removed_leaves_nothing_behind(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    s.configure(QueueChange::Subscribe(subscription("hooks", OutboxFilter::ALL))).await;
    let node = s.join().await;
    let id = s.completed(node).await;
    s.configure(QueueChange::Unsubscribe("hooks".to_owned())).await;
    s.completed(node).await;
    s.configure(QueueChange::Subscribe(subscription("hooks", OutboxFilter::ALL))).await;
    assert_eq!(ends_of(s, node, "hooks").await, []);
    assert_eq!(ends(s, node).await[0], (id, EndKind::Completed), "others keep theirs");
    let many = |count| {
        (0..count)
            .map(|at| QueueChange::Subscribe(subscription(&at.to_string(), OutboxFilter::ALL)))
            .collect()
    };
    invalid("too many subscribers", s.store.configure("full", many(MAX_SUBSCRIBERS + 1)).await);
    s.store.configure("full", many(MAX_SUBSCRIBERS)).await.expect("what fits is taken");
}

/// The ends that a session takes for a subscriber.
async fn ends_of(s: &Scene, session: SessionId, subscriber: &str) -> Vec<(TaskId, EndKind)> {
    match s.store.take_outbox(session, QUEUE, subscriber, 10).await.expect("take_outbox answers") {
        OutboxAnswer::Entries(entries) => entries.into_iter().map(|entry| (entry.task, entry.what)).collect(),
        OutboxAnswer::SessionEnded => panic!("the session is alive"),
    }
}

async fn what_one_session_has_taken_no_other_hears(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [one, other] = [s.join().await, s.join().await];
    let id = s.completed(one).await;
    assert_eq!(ends(s, one).await, [(id, EndKind::Completed)]);
    let second = s.fixture.second().await;
    assert_eq!(second.take_outbox(other, QUEUE, SUBSCRIBER, 10).await, Ok(OutboxAnswer::Entries(vec![])));
    assert_eq!(ends(s, one).await, [], "nor the same one again");
}

async fn what_was_told_is_gone_and_its_number_with_it(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    s.completed(node).await;
    assert_eq!(numbers(&hear(s, node, 10).await), [1]);
    told(s, node, &[1, 1, 77, u64::MAX]).await;
    told(s, node, &[1]).await;
    s.completed(node).await;
    s.store.leave(node).await.expect("leave answers");
    let next = s.join().await;
    assert_eq!(numbers(&hear(s, next, 10).await), [2], "no number comes twice");
}

async fn only_who_has_taken_it_says_that_it_was_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [one, other] = [s.join().await, s.join().await];
    s.completed(one).await;
    s.completed(one).await;
    assert_eq!(numbers(&hear(s, one, 1).await), [1]);
    for session in [other, s.session_id()] {
        told(s, session, &[1, 2]).await;
    }
    told(s, one, &[2]).await;
    assert_eq!(numbers(&hear(s, other, 10).await), [2], "no session had taken it");
    s.store.leave(one).await.expect("leave answers");
    assert_eq!(numbers(&hear(s, other, 10).await), [1]);
}

async fn what_went_wrong_with_a_telling_is_a_warning_on_its_task(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [one, other] = [s.join().await, s.join().await];
    let lease = s.running(one).await;
    let id = lease.task();
    let line = EventBody::line("a line");
    s.store.append(lease.as_ref(), vec![line]).await.expect("append answers");
    s.finish(lease, Outcome::Success).await;
    assert_eq!(numbers(&hear(s, one, 10).await), [1]);
    let wrong = |warning: &str| vec![Ack { number: 1, warning: Some(warning.to_owned()) }];
    assert_eq!(s.store.ack_outbox(other, wrong("not mine")).await, Ok(()));
    s.pass(TICK);
    assert_eq!(s.store.ack_outbox(one, wrong("the hook failed")).await, Ok(()));
    assert_eq!(s.store.ack_outbox(one, wrong("twice")).await, Ok(()), "it is acknowledged already");
    let events = s.store.read_events(id, EventQuery::default().after(1)).await.expect("events are read");
    let (at, body) = (s.now(), EventBody::warning("the hook failed"));
    assert_eq!(events, [Event { number: 2, at, token: 1, body, cut: None }]);
}

async fn what_a_session_leaves_untold_the_next_one_hears(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [one, other] = [s.join().await, s.join().await];
    for _ in 0..3 {
        s.completed(one).await;
    }
    hear(s, one, 10).await;
    told(s, one, &[2]).await;
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.store.leave(one).await.expect("leave answers");
    heard("what was left untold", &mut wakeups).await;
    assert_eq!(numbers(&hear(s, other, 10).await), [1, 3]);
    told(s, one, &[1, 3]).await;
    s.store.leave(other).await.expect("leave answers");
    let third = s.join().await;
    assert_eq!(numbers(&hear(s, third, 10).await), [1, 3], "who left says nothing any more");
}

async fn what_a_dead_session_leaves_untold_the_next_one_hears(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let dead = s.join().await;
    let id = s.completed(dead).await;
    hear(s, dead, 10).await;
    s.pass(TTL + TICK);
    let next = s.join().await;
    assert_eq!(ends(s, next).await, [], "it is late, and it has not been ended yet");
    s.store.expire(10).await.expect("expire answers");
    told(s, dead, &[1]).await;
    assert_eq!(ends(s, next).await, [(id, EndKind::Completed)]);
}

async fn a_session_that_is_over_hears_nothing(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [late, gone] = [s.join().await, s.join().await];
    s.completed(late).await;
    s.store.leave(gone).await.expect("leave answers");
    s.pass(TTL + TICK);
    for session in [late, gone, s.session_id()] {
        assert_eq!(s.store.take_outbox(session, QUEUE, SUBSCRIBER, 10).await, Ok(OutboxAnswer::SessionEnded));
        assert_eq!(
            s.store.take_outbox(session, "nowhere", SUBSCRIBER, 10).await,
            Ok(OutboxAnswer::SessionEnded)
        );
    }
    let alive = s.join().await;
    assert_eq!(numbers(&hear(s, alive, 10).await), [1], "and has taken nothing");
}

async fn a_telling_goes_with_its_task(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let [first, second, third] = [s.completed(node).await, s.completed(node).await, s.completed(node).await];
    hear(s, node, 1).await;
    s.store.prune(Prune::Tasks(vec![first, second])).await.expect("prune answers");
    told(s, node, &[1]).await;
    s.store.leave(node).await.expect("leave answers");
    let next = s.join().await;
    assert_eq!(ends(s, next).await, [(third, EndKind::Completed)]);
}

async fn a_replayed_task_keeps_what_is_to_be_told_of_it(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    s.replay(id).await;
    let lease = s.run(node).await;
    s.finish(lease, Outcome::Success).await;
    assert_eq!(ends(s, node).await, [(id, EndKind::Failed), (id, EndKind::Completed)]);
}

async fn a_new_telling_wakes(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let second = s.fixture.second().await;
    let lease = s.running(node).await;
    let (mut here, mut there) = (s.store.wakeups(), second.wakeups());
    here.arm();
    there.arm();
    s.finish(lease, Outcome::Success).await;
    heard("an end", &mut here).await;
    heard("an end through the first connection", &mut there).await;
}

async fn bounds_of_hearing_and_telling(s: &Scene) {
    let node = s.join().await;
    invalid("a large hearing", s.store.take_outbox(node, QUEUE, SUBSCRIBER, MAX_PAGE + 1).await);
    for queue in ["", "a\nb", &"x".repeat(MAX_NAME_BYTES + 1)] {
        invalid("a queue's name", s.store.take_outbox(node, queue, SUBSCRIBER, 1).await);
    }
    invalid("too many deliveries", s.store.ack_outbox(node, vec![Ack::from(1); MAX_BATCH + 1]).await);
    for warning in ["a\0b".to_owned(), "x".repeat(MAX_MESSAGE_BYTES + 1)] {
        let delivery = Ack { number: 1, warning: Some(warning) };
        invalid("a warning", s.store.ack_outbox(node, vec![delivery]).await);
    }
    assert_eq!(
        s.store.take_outbox(node, QUEUE, SUBSCRIBER, MAX_PAGE).await,
        Ok(OutboxAnswer::Entries(vec![]))
    );
    told(s, node, &vec![1; MAX_BATCH]).await;
    told(s, node, &[]).await;
}
