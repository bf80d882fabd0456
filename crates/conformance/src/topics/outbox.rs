//! Outbox entries: those a queue asks for are written in the transaction that ends the attempt, whichever verb that is.

use std::time::Duration;

use ostler_core::{EndKind, ErrorClass, Failure, Outcome, Overrides, SessionId, StateName, TaskId};

use super::super::scene::{KIND, QUEUE, Scene, TICK, TTL, failure};
use super::runner::cases;
use ostler_store::Lease;
use ostler_store::MAX_PAGE;
use ostler_store::calls::{Finished, QueueChange, Report};
use ostler_store::outbox::{OutboxAnswer, OutboxEntry, OutboxFilter, Subscription};

cases![
    nothing_is_told_unless_the_queue_wants_it,
    a_completed_task_is_told,
    a_dead_letter_is_told_with_its_failure,
    a_retry_is_told_with_its_next_moment,
    every_failure_that_leads_back_is_a_retry,
    what_only_moved_is_not_told,
    what_was_cancelled_or_came_too_late_is_not_told,
    a_task_that_dies_with_its_nodes_is_told,
    a_task_past_its_deadline_is_told,
    a_queue_tells_what_it_wants_and_no_more,
    a_change_counts_for_attempts_that_run_already,
    a_report_without_a_right_tells_nothing,
    what_is_told_too_takes_nothing_from_others,
];

/// A failure whose every field must come through intact.
fn long_story() -> Failure {
    Failure {
        class: ErrorClass::Permanent,
        message: "the post office is closed".to_owned(),
        details: Some("a long\nstory".to_owned()),
        step: Some("knock".to_owned()),
        hint: Some("try on Monday".to_owned()),
        retry_after: Some(Duration::from_millis(1_500)),
        exit_code: Some(255),
    }
}

/// The subscriber of most cases.
pub(super) const SUBSCRIBER: &str = "callbacks";

pub(super) fn subscription(name: &str, wants: OutboxFilter) -> Subscription {
    Subscription { name: name.to_owned(), wants }
}

pub(super) async fn tell(s: &Scene, tell: OutboxFilter) {
    s.configure(QueueChange::Subscribe(subscription(SUBSCRIBER, tell))).await;
}

pub(super) async fn hear(s: &Scene, session: SessionId, limit: usize) -> Vec<OutboxEntry> {
    match s.store.take_outbox(session, QUEUE, SUBSCRIBER, limit).await.expect("hear answers") {
        OutboxAnswer::Entries(tellings) => tellings,
        OutboxAnswer::SessionEnded => panic!("{session} is over, and should not be"),
    }
}

/// The task and the kind of each outbox entry that is taken now.
pub(super) async fn ends(s: &Scene, session: SessionId) -> Vec<(TaskId, EndKind)> {
    hear(s, session, MAX_PAGE).await.into_iter().map(|telling| (telling.task, telling.what)).collect()
}

async fn nothing_is_told_unless_the_queue_wants_it(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.dead_letter(node).await;
    assert_eq!(hear(s, node, 10).await, []);
    tell(s, OutboxFilter::ALL).await;
    assert_eq!(hear(s, node, 10).await, [], "what was not noted then is not told now");
    assert_eq!(s.store.take_outbox(node, "nowhere", SUBSCRIBER, 10).await, Ok(OutboxAnswer::Entries(vec![])));
}

async fn a_completed_task_is_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let started = s.completed(node).await;
    s.pass(TICK);
    let lease = s.leased(node).await;
    let lazy = lease.task();
    s.finish_run(lease, Outcome::Success, TICK).await;
    let lease = s.leased(node).await;
    let never = lease.task();
    s.finish(lease, Outcome::Success).await;
    let heard = hear(s, node, 10).await;
    let expected = |number, task, attempt, at| OutboxEntry {
        earlier: 0,
        number,
        queue: QUEUE.to_owned(),
        task,
        kind: KIND.to_owned(),
        attempt,
        what: EndKind::Completed,
        at,
        failure: None,
        run_at: None,
    };
    let (then, now) = (s.now().before(TICK), s.now());
    assert_eq!(
        heard,
        [expected(1, started, 1, then), expected(2, lazy, 1, now), expected(3, never, 0, now)],
        "whether its start was written or not"
    );
}

async fn a_dead_letter_is_told_with_its_failure(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let lease = s.running(node).await;
    let task = lease.task();
    s.pass(TICK);
    s.finish(lease, Outcome::Failed(long_story())).await;
    let expected = OutboxEntry {
        earlier: 0,
        number: 1,
        queue: QUEUE.to_owned(),
        task,
        kind: KIND.to_owned(),
        attempt: 1,
        what: EndKind::Failed,
        at: s.now(),
        failure: Some(long_story()),
        run_at: None,
    };
    assert_eq!(hear(s, node, 10).await, [expected]);
}

async fn a_retry_is_told_with_its_next_moment(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let lease = s.leased(node).await;
    let id = lease.task();
    s.finish_run(lease, failure(ErrorClass::Transient), TICK).await;
    let heard = hear(s, node, 10).await;
    assert_eq!(heard.len(), 1);
    let ostler_core::State::Queued { run_at, .. } = s.task(id).await.state else {
        panic!("{id} waits for its next try")
    };
    assert_eq!((heard[0].what, heard[0].attempt, heard[0].run_at), (EndKind::Retry, 1, Some(run_at)));
    assert!(run_at > s.now(), "it backs off");
    assert_eq!(heard[0].failure.as_ref().map(|failure| failure.class), Some(ErrorClass::Transient));
}

async fn every_failure_that_leads_back_is_a_retry(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    for class in ErrorClass::ALL {
        let lease = s.running(node).await;
        let id = lease.task();
        let expected = match s.finish(lease, failure(class)).await {
            Finished::Recorded(StateName::Queued) => EndKind::Retry,
            Finished::Recorded(_) => EndKind::Failed,
            Finished::LeaseLost => panic!("the lease is not lost"),
        };
        assert_eq!(ends(s, node).await, [(id, expected)], "{class:?}");
        // Some classes pause or hold the queue, and some tasks are ready at once: clear both before the next class.
        s.configure(QueueChange::Resume).await;
        s.configure(QueueChange::EndHold).await;
        s.cancel(id).await;
    }
}

async fn what_only_moved_is_not_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let [node, doomed] = [s.join().await, s.join().await];
    let lease = s.running(node).await;
    s.finish(lease, Outcome::HandedBack).await;
    let lease = s.lease(node).await;
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    s.run(doomed).await;
    s.fixture.kill(doomed).await;
    assert_eq!(s.store.expire(10).await.map(|expired| expired.tasks), Ok(1));
    s.run(node).await;
    s.store.leave(node).await.expect("leave answers");
    let other = s.join().await;
    assert_eq!(ends(s, other).await, []);
}

async fn what_was_cancelled_or_came_too_late_is_not_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let queued = s.add().await;
    s.cancel(queued).await;
    for outcome in [Outcome::Cancelled, failure(ErrorClass::Transient), failure(ErrorClass::Permanent)] {
        let lease = s.running(node).await;
        s.cancel(lease.task()).await;
        assert_eq!(s.finish(lease, outcome).await, Finished::Recorded(StateName::Cancelled));
    }
    let in_a_moment = s.in_ms(1);
    s.add_with(|task| task.not_after = Some(in_a_moment)).await;
    let lease = s.run(node).await;
    s.add_with(|task| task.not_after = Some(in_a_moment)).await;
    s.pass(2 * TICK);
    assert_eq!(
        s.finish(lease, failure(ErrorClass::Transient)).await,
        Finished::Recorded(StateName::Cancelled)
    );
    assert_eq!(s.store.make_ready(10).await.map(|made| made.expired), Ok(1));
    assert_eq!(ends(s, node).await, []);
}

async fn a_task_that_dies_with_its_nodes_is_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let overrides = Overrides { max_node_deaths: Some(1), ..Overrides::NONE };
    let node = s.join().await;
    let id = s.add_with(|task| task.overrides = overrides).await;
    s.run(node).await;
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    assert_eq!(s.state(id).await, StateName::Failed);
    let other = s.join().await;
    let heard = hear(s, other, 10).await;
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].task, heard[0].what, heard[0].attempt), (id, EndKind::Failed, 1));
    assert_eq!((&heard[0].failure, heard[0].at), (&None, s.now()), "what was wrong is unknown");
}

async fn a_task_past_its_deadline_is_told(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let deadline = s.in_ms(1);
    let untried = s.add_with(|task| task.deadline = Some(deadline)).await;
    s.pass(2 * TICK);
    assert!(s.claim(node, 10).await.is_empty());
    let deadline = s.in_ms(1);
    let tried = s.add_with(|task| task.deadline = Some(deadline)).await;
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Transient)).await;
    let deadline = s.in_ms(1);
    let unserved = s.add_with(|task| task.deadline = Some(deadline)).await;
    s.pass(2 * TICK);
    s.store.make_ready(10).await.expect("make_ready answers");
    assert_eq!(
        ends(s, node).await,
        [(untried, EndKind::Failed), (tried, EndKind::Failed), (unserved, EndKind::Failed)],
        "all are dead letters"
    );
}

async fn a_queue_tells_what_it_wants_and_no_more(s: &Scene) {
    let node = s.join().await;
    for wanted in EndKind::ALL {
        tell(s, OutboxFilter::NONE.with(wanted)).await;
        s.completed(node).await;
        s.dead_letter(node).await;
        let lease = s.running(node).await;
        s.finish(lease, failure(ErrorClass::Transient)).await;
        let whats: Vec<EndKind> = ends(s, node).await.into_iter().map(|(_, what)| what).collect();
        assert_eq!(whats, [wanted]);
    }
}

/// Cached settings of a queue must not outlive a change, whichever connection made it.
async fn a_change_counts_for_attempts_that_run_already(s: &Scene) {
    let node = s.join().await;
    let second = s.fixture.second().await;
    for (wanted, expected) in [(OutboxFilter::ALL, 1), (OutboxFilter::NONE, 0), (OutboxFilter::ALL, 1)] {
        s.completed(node).await;
        let lease = s.leased(node).await;
        ends(s, node).await;
        second
            .configure(QUEUE, vec![QueueChange::Subscribe(subscription(SUBSCRIBER, wanted))])
            .await
            .expect("configure answers");
        s.finish_run(lease, Outcome::Success, TICK).await;
        assert_eq!(ends(s, node).await.len(), expected);
        let lease = s.leased(node).await;
        let other = if wanted == OutboxFilter::ALL { OutboxFilter::NONE } else { OutboxFilter::ALL };
        tell(s, other).await;
        s.finish_run(lease, Outcome::Success, TICK).await;
        assert_eq!(ends(s, node).await.len(), 1 - expected);
    }
}

async fn a_report_without_a_right_tells_nothing(s: &Scene) {
    tell(s, OutboxFilter::ALL).await;
    let node = s.join().await;
    let lease = s.running(node).await;
    let old = lease.as_ref();
    s.finish(lease, Outcome::HandedBack).await;
    for outcome in [Outcome::Success, failure(ErrorClass::Permanent), failure(ErrorClass::Transient)] {
        assert_eq!(s.finish(Lease::granted(old), outcome).await, Finished::LeaseLost);
    }
    assert_eq!(ends(s, node).await, []);
}

async fn what_is_told_too_takes_nothing_from_others(s: &Scene) {
    let second = s.fixture.second().await;
    let [completed, failed] = [EndKind::Completed, EndKind::Failed].map(|what| OutboxFilter::NONE.with(what));
    // Callers that add to the filter do not know of each other: in either order, neither addition is lost.
    for store in [s.store.as_ref(), second.as_ref()] {
        tell(s, OutboxFilter::NONE).await;
        store
            .configure(QUEUE, vec![QueueChange::AlsoSubscribe(subscription(SUBSCRIBER, completed))])
            .await
            .expect("configure answers");
        let settings = s
            .store
            .configure(QUEUE, vec![QueueChange::AlsoSubscribe(subscription(SUBSCRIBER, failed))])
            .await;
        assert_eq!(
            settings.expect("configure answers").subscribers.wants_of(SUBSCRIBER),
            completed.with(EndKind::Failed)
        );
        let again = store
            .configure(QUEUE, vec![QueueChange::AlsoSubscribe(subscription(SUBSCRIBER, OutboxFilter::NONE))])
            .await;
        assert_eq!(
            again.expect("configure answers").subscribers.wants_of(SUBSCRIBER),
            completed.with(EndKind::Failed)
        );
    }
    let node = s.join().await;
    s.completed(node).await;
    s.dead_letter(node).await;
    let whats: Vec<EndKind> = ends(s, node).await.into_iter().map(|(_, what)| what).collect();
    assert_eq!(whats, [EndKind::Completed, EndKind::Failed]);
}
