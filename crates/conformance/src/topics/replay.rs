//! Replay: queues failed and cancelled tasks again, and makes waiting tasks ready.

use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, EventKind, Outcome, Overrides, Readiness, State, StateName, Wait};

use super::super::scene::{Scene, TICK, failure, invalid, one};
use super::runner::cases;
use ostler_store::calls::{Finished, NewStep, QueueChange, Replay, ReplayAnswer, StepsOnReplay};
use ostler_store::{Lease, LeaseRef};

cases![
    a_dead_letter_is_queued_again,
    a_cancelled_task_is_queued_again,
    its_troubles_start_at_zero_and_its_history_stays,
    a_replay_lifts_the_times_that_are_over,
    a_replayed_cancel_is_forgotten,
    a_waiting_task_is_hastened,
    what_is_ready_leased_or_completed_is_refused,
    an_unknown_task_is_not_found,
    nothing_to_replay_is_nothing_done,
    replays_are_answered_one_by_one,
    another_payload_is_taken_by_what_is_replayed_only,
    the_former_payload_stays_on_record_byte_for_byte,
    steps_stay_or_go_as_asked,
    a_conversation_is_resumed_unless_the_replay_is_from_scratch,
    a_waiting_task_can_begin_from_scratch_too,
    a_full_queue_does_not_stop_a_replay,
    a_replay_goes_to_the_end_of_the_queue,
    a_replayed_task_keeps_its_token_rising,
    a_lease_of_the_former_life_is_lost,
];

async fn a_dead_letter_is_queued_again(s: &Scene) {
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    s.pass(TICK);
    assert_eq!(s.replay(id).await, ReplayAnswer::Requeued);
    let (readiness, why) = (Readiness::Ready, Wait::Replayed);
    assert_eq!(s.task(id).await.state, State::Queued { readiness, why, run_at: s.now() });
    assert_eq!((s.counts().await.failed, s.counts().await.queued), (0, 1));
    assert_eq!(s.claim_ids(node, 10).await, vec![id]);
}

async fn a_cancelled_task_is_queued_again(s: &Scene) {
    let id = s.add().await;
    s.cancel(id).await;
    assert_eq!(s.replay(id).await, ReplayAnswer::Requeued);
    assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::Replayed));
}

async fn its_troubles_start_at_zero_and_its_history_stays(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    let event = EventBody::line("a");
    s.store.append(lease.as_ref(), vec![event]).await.expect("append answers");
    s.finish(lease, Outcome::NodeDied).await;
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Crash)).await;
    let task = s.task(id).await;
    assert_eq!((task.failures, task.crashes, task.node_deaths), (1, 1, 1));
    s.cancel(id).await;
    s.replay(id).await;
    let shown = s.show(id).await;
    let task = &shown.task;
    assert_eq!((task.failures, task.crashes, task.node_deaths), (0, 0, 0));
    assert_eq!((task.runs, task.token, shown.attempts.len()), (2, 2, 2), "attempts are numbered on");
    assert!(task.last_failure.is_some() && task.first_failure_at.is_some());
    let kinds: Vec<EventKind> = s.events(id).await.iter().map(|event| event.body.kind()).collect();
    let told = EventKind::Transition;
    assert_eq!(
        kinds,
        [EventKind::Log, told, told, told, told],
        "a dead node, a crash, a cancellation, a replay"
    );
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!((claimed.attempt, claimed.lease.as_ref().token), (3, 3));
}

async fn a_replay_lifts_the_times_that_are_over(s: &Scene) {
    let node = s.join().await;
    let id = s
        .add_with(|task| {
            task.not_after = Some(s.in_ms(5));
            task.deadline = Some(s.in_ms(5));
        })
        .await;
    s.pass(Duration::from_millis(6));
    s.store.make_ready(10).await.expect("make_ready answers");
    assert_eq!(s.replay(id).await, ReplayAnswer::Requeued);
    let task = s.task(id).await;
    assert_eq!((task.not_after, task.deadline), (None, None));
    assert_eq!(s.claim_ids(node, 10).await, vec![id]);
}

async fn a_replayed_cancel_is_forgotten(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.cancel(id).await;
    s.finish(lease, Outcome::Cancelled).await;
    s.replay(id).await;
    assert_eq!(s.task(id).await.cancel_requested_at, None);
    let lease = s.run(node).await;
    assert_eq!(s.finish(lease, Outcome::HandedBack).await, Finished::Recorded(StateName::Queued));
}

async fn a_waiting_task_is_hastened(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let retry = lease.task();
    s.finish(lease, failure(ErrorClass::Transient)).await;
    let scheduled = s.add_with(|task| task.run_at = Some(s.in_ms(50_000))).await;
    s.pass(TICK);
    for id in [retry, scheduled] {
        let rank = s.task(id).await.rank;
        assert_eq!(s.replay(id).await, ReplayAnswer::Hastened);
        let task = s.task(id).await;
        let (readiness, why) = (Readiness::Ready, Wait::Replayed);
        assert_eq!(task.state, State::Queued { readiness, why, run_at: s.now() });
        assert_eq!(task.rank, rank, "its place stays as it was");
    }
    assert_eq!(s.task(retry).await.failures, 1, "it is the same life");
}

async fn what_is_ready_leased_or_completed_is_refused(s: &Scene) {
    let node = s.join().await;
    let completed = s.completed(node).await;
    let running = s.running(node).await.task();
    let claimed = s.leased(node).await.task();
    let ready = s.add().await;
    let before = s.picture().await;
    let how = Replay { steps: StepsOnReplay::Drop, payload: Some("1".to_owned()) };
    let answers = s.store.replay(vec![completed, running, claimed, ready], how).await;
    let states = [StateName::Completed, StateName::Running, StateName::Claimed, StateName::Queued];
    assert_eq!(answers, Ok(states.map(ReplayAnswer::Refused).to_vec()));
    assert_eq!(s.picture().await, before);
}

async fn an_unknown_task_is_not_found(s: &Scene) {
    assert_eq!(s.replay(s.task_id()).await, ReplayAnswer::NotFound);
}

async fn nothing_to_replay_is_nothing_done(s: &Scene) {
    assert_eq!(s.store.replay(Vec::new(), Replay::default()).await, Ok(Vec::new()));
}

async fn replays_are_answered_one_by_one(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    let answers = s.store.replay(vec![dead, s.task_id(), dead], Replay::default()).await;
    let expected =
        vec![ReplayAnswer::Requeued, ReplayAnswer::NotFound, ReplayAnswer::Refused(StateName::Queued)];
    assert_eq!(answers, Ok(expected), "the second time it is ready already");
}

async fn another_payload_is_taken_by_what_is_replayed_only(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    let completed = s.completed(node).await;
    let how = Replay { payload: Some("{\"new\":1}".to_owned()), ..Replay::default() };
    s.store.replay(vec![dead, completed], how).await.expect("replay answers");
    assert_eq!(s.task(dead).await.payload, "{\"new\":1}");
    assert_eq!(s.task(completed).await.payload, "{}");
    assert_eq!(s.claim(node, 1).await.remove(0).payload, "{\"new\":1}");
    let again = Replay { payload: Some("\0".to_owned()), ..Replay::default() };
    invalid("a payload with a NUL", s.store.replay(vec![dead], again).await);
}

async fn the_former_payload_stays_on_record_byte_for_byte(s: &Scene) {
    let node = s.join().await;
    let exact = r#"{"n":9007199254740993, "x":1.10,"u":"\u0001"}"#.to_owned();
    let long = format!("\"{}\"", "\u{e4}".repeat(200_000));
    let (given, kept) = (exact.clone(), long.clone());
    let id = s.add_with(|task| task.payload = given).await;
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    for payload in [kept, exact.clone(), exact.clone()] {
        let how = Replay { payload: Some(payload.clone()), ..Replay::default() };
        assert_eq!(s.store.replay(vec![id], how).await, Ok(vec![ReplayAnswer::Requeued]));
        assert_eq!(s.task(id).await.payload, payload);
        s.cancel(id).await;
    }
    let former = |event: ostler_store::events::Event| {
        if let EventBody::FormerPayload { text } = event.body {
            return Some(text);
        }
        assert_eq!(event.body.kind(), EventKind::Transition);
        None
    };
    let kept: Vec<String> = s.events(id).await.into_iter().filter_map(former).collect();
    assert_eq!(kept, [exact, long], "none for a replay with the same one");
}

async fn steps_stay_or_go_as_asked(s: &Scene) {
    let node = s.join().await;
    for (steps, expected) in [(StepsOnReplay::Keep, 1), (StepsOnReplay::Drop, 0)] {
        let lease = s.running(node).await;
        let id = lease.task();
        let step = NewStep { name: "fetched".to_owned(), value: "1".to_owned() };
        s.store.save_step(lease.as_ref(), step).await.expect("save_step answers");
        s.finish(lease, failure(ErrorClass::Permanent)).await;
        let answers = s.store.replay(vec![id], Replay { steps, payload: None }).await;
        assert_eq!(one(answers.expect("replay answers")), ReplayAnswer::Requeued);
        assert_eq!(s.show(id).await.steps.len(), expected, "{steps:?}");
        s.cancel(id).await;
    }
}

/// Fails the task of a lease that has a conversation.
async fn failed_talk(s: &Scene, lease: Lease, session: &str, class: ErrorClass) {
    let session = EventBody::Session { id: session.to_owned() };
    s.store.append(lease.as_ref(), vec![session]).await.expect("append answers");
    s.finish(lease, failure(class)).await;
}

async fn a_conversation_is_resumed_unless_the_replay_is_from_scratch(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    failed_talk(s, lease, "s-1", ErrorClass::Permanent).await;
    s.replay(id).await;
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), Some("s-1"));
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    let from_scratch = Replay { steps: StepsOnReplay::Drop, payload: None };
    let answers = s.store.replay(vec![id], from_scratch).await;
    assert_eq!(answers, Ok(vec![ReplayAnswer::Requeued]));
    let lease = s.run(node).await;
    let shown = s.show(id).await;
    assert_eq!(shown.session_before(lease.as_ref().token), None);
    assert_eq!(shown.talks.len(), 1, "what was said stays known");
    // Its next life has conversations of its own, over a plain replay and an amendment.
    failed_talk(s, lease, "s-2", ErrorClass::Permanent).await;
    s.replay(id).await;
    let overrides = Overrides { attempts: Some(9), ..Overrides::NONE };
    s.store.amend(id, overrides).await.expect("amend answers");
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), Some("s-2"));
    s.finish(lease, Outcome::HandedBack).await;
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), Some("s-2"));
}

async fn a_waiting_task_can_begin_from_scratch_too(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    failed_talk(s, lease, "s-1", ErrorClass::Transient).await;
    let from_scratch = Replay { steps: StepsOnReplay::Drop, payload: None };
    assert_eq!(s.store.replay(vec![id], from_scratch).await, Ok(vec![ReplayAnswer::Hastened]));
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), None);
    // A claim that ends without an attempt changes nothing of it.
    s.finish(lease, Outcome::HandedBack).await;
    let lease = s.run(node).await;
    assert_eq!(s.show(id).await.session_before(lease.as_ref().token), None);
}

async fn a_full_queue_does_not_stop_a_replay(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    s.configure(QueueChange::Limit(Some(1))).await;
    s.add().await;
    assert_eq!(s.replay(dead).await, ReplayAnswer::Requeued);
    assert_eq!(s.counts().await.queued, 2);
}

async fn a_replay_goes_to_the_end_of_the_queue(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    s.pass(TICK);
    let waiting = s.add().await;
    s.pass(TICK);
    s.replay(dead).await;
    assert_eq!(s.claim_ids(node, 10).await, vec![waiting, dead]);
}

async fn a_replayed_task_keeps_its_token_rising(s: &Scene) {
    let node = s.join().await;
    let dead = s.dead_letter(node).await;
    let before = s.task(dead).await.token;
    s.replay(dead).await;
    assert_eq!(s.lease(node).await.as_ref().token, before + 1);
}

async fn a_lease_of_the_former_life_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let kept: LeaseRef = lease.as_ref();
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    s.replay(kept.task).await;
    let before = s.picture().await;
    let answer = s.finish(Lease::granted(kept), Outcome::Success).await;
    assert_eq!(answer, Finished::LeaseLost);
    assert_eq!(s.picture().await, before);
}
