//! Holds: after "too many requests, retry after", the key or the queue waits.

use std::time::Duration;

use ostler_core::{
    AHEAD, ErrorClass, Failure, Outcome, Readiness, SessionId, StateName, TaskId, Timestamp, Wait,
};

use super::super::scene::{QUEUE, Scene, TICK, heard, quiet};
use super::runner::cases;
use ostler_store::calls::{ClaimAnswer, MadeReady, NewTask, Prune, QueueChange, ReplayAnswer};
use ostler_store::gates::{KeyRecord, MAX_KEYS_SHOWN, most_looked_at};

pub(super) const HELD: (Readiness, Wait) = (Readiness::Parked, Wait::RateLimited);

cases![
    a_task_without_a_key_holds_its_queue,
    a_hold_of_a_queue_is_no_hold_of_another,
    a_key_is_held_and_others_go_on,
    what_a_claim_meets_of_a_held_key_is_parked,
    what_arrives_at_a_held_key_is_parked_at_once,
    when_the_hold_is_over_the_best_rank_goes_first,
    a_claim_lets_in_what_is_due_by_itself,
    making_ready_lets_in_what_is_due_and_rings,
    what_is_let_in_keeps_to_the_cap,
    the_longer_hold_counts,
    a_hold_without_a_time_is_as_long_as_the_wait_of_its_task,
    a_claim_looks_at_so_many_and_no_more,
    a_long_line_is_let_in_little_by_little,
    a_held_task_cannot_be_hastened,
    a_held_task_can_be_cancelled,
    what_is_held_is_still_too_late_in_time,
    a_hold_can_be_ended_by_hand,
    a_hold_outlives_the_tasks_of_its_key,
    held_keys_are_shown_so_many_and_no_more,
];

/// The tasks of a claim, and the time it returns for the next one.
pub(super) async fn look(s: &Scene, session: SessionId, limit: usize) -> (Vec<TaskId>, Option<Timestamp>) {
    match s.store.claim(s.asks(session, limit)).await.expect("a claim is answered") {
        ClaimAnswer::Tasks { tasks, next } => {
            (tasks.iter().map(|claimed| claimed.lease.task()).collect(), next)
        }
        ClaimAnswer::SessionEnded => panic!("the session of {session} is over, and should not be"),
    }
}

pub(super) fn too_many(ms: u64) -> Outcome {
    let failure = Failure::new(ErrorClass::RateLimited, "too many requests");
    Outcome::Failed(Failure { retry_after: Some(Duration::from_millis(ms)), ..failure })
}

/// Runs a task of this key that is rate limited for `ms` milliseconds.
async fn hold(s: &Scene, node: SessionId, key: &str, ms: u64) -> TaskId {
    let id = s.add_keyed(key).await;
    let lease = s.run(node).await;
    assert_eq!(lease.task(), id);
    s.finish(lease, too_many(ms)).await;
    id
}

async fn make_ready(s: &Scene) -> MadeReady {
    s.store.make_ready(100).await.expect("make_ready answers")
}

async fn keys(s: &Scene) -> Vec<KeyRecord> {
    s.store.survey().await.expect("survey answers").keys
}

async fn held_until(s: &Scene) -> Option<Timestamp> {
    s.store.survey().await.expect("survey answers").queues[0].held_until
}

async fn a_task_without_a_key_holds_its_queue(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let (limited, until) = (lease.task(), s.in_ms(50));
    s.finish(lease, too_many(50)).await;
    assert_eq!(s.waits(limited).await, (Readiness::Waiting, Wait::RateLimited));
    let other = s.add_keyed("k").await;
    assert_eq!(held_until(s).await, Some(until));
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    s.pass(Duration::from_millis(49));
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    assert_eq!(s.waits(other).await.0, Readiness::Ready, "a held queue is not looked at");
    s.pass(TICK);
    assert_eq!(held_until(s).await, None);
    assert_eq!(look(s, node, 10).await, (vec![other], None));
    make_ready(s).await;
    assert_eq!(s.claim_ids(node, 10).await, [limited]);
}

async fn a_hold_of_a_queue_is_no_hold_of_another(s: &Scene) {
    let node = s.join().await;
    let elsewhere = s.add_with(|task| task.queue = "parcels".to_owned()).await;
    let lease = s.running(node).await;
    s.finish(lease, too_many(50)).await;
    let asked = ostler_store::calls::Claim { queue: "parcels".to_owned(), ..s.asks(node, 10) };
    let Ok(ClaimAnswer::Tasks { tasks, next }) = s.store.claim(asked).await else { panic!("it is alive") };
    assert_eq!((tasks[0].lease.task(), next), (elsewhere, None));
}

async fn a_key_is_held_and_others_go_on(s: &Scene) {
    let node = s.join().await;
    let until = s.in_ms(50);
    hold(s, node, "k", 50).await;
    let [held, other, plain] = [s.add_keyed("k").await, s.add_keyed("other").await, s.add().await];
    let (mut taken, next) = look(s, node, 10).await;
    taken.sort_unstable();
    let mut expected = vec![other, plain];
    expected.sort_unstable();
    assert_eq!((taken, next), (expected, Some(until)));
    assert_eq!(s.waits(held).await, HELD);
    assert_eq!(held_until(s).await, None, "the queue is not held");
    let shown = keys(s).await;
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].queue.as_str(), shown[0].key.as_str()), (QUEUE, "k"));
    assert_eq!(
        (shown[0].shut.until, shown[0].held_until, shown[0].breaker),
        (Some(until), Some(until), None)
    );
}

async fn what_a_claim_meets_of_a_held_key_is_parked(s: &Scene) {
    let node = s.join().await;
    let lease = {
        s.add_keyed("k").await;
        s.run(node).await
    };
    let before = [s.add_keyed("k").await, s.add_keyed("k").await];
    s.finish(lease, too_many(50)).await;
    for id in before {
        assert_eq!(s.waits(id).await.0, Readiness::Ready, "no claim has asked yet");
    }
    assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(50))));
    for id in before {
        let task = s.task(id).await;
        assert_eq!(s.waits(id).await, HELD);
        assert_eq!((task.token, task.runs, task.failures), (0, 0, 0), "no attempt is used up");
    }
}

async fn what_arrives_at_a_held_key_is_parked_at_once(s: &Scene) {
    let node = s.join().await;
    let limited = hold(s, node, "k", 50).await;
    let new = s.add_keyed("k").await;
    assert_eq!(s.waits(new).await, HELD);
    let scheduled = s.in_ms(20);
    let later =
        s.add_with(|task| (task.limit_key, task.run_at) = (Some("k".to_owned()), Some(scheduled))).await;
    assert_eq!(s.waits(later).await, (Readiness::Waiting, Wait::Scheduled));
    s.pass(Duration::from_millis(20));
    assert_eq!(make_ready(s).await.due, 1);
    assert_eq!(s.waits(later).await, HELD);
    assert_eq!(s.waits(limited).await, (Readiness::Waiting, Wait::RateLimited), "it waits for its own time");
    s.cancel(new).await;
    assert_eq!(s.replay(new).await, ReplayAnswer::Requeued);
    assert_eq!(s.waits(new).await, HELD);
}

async fn when_the_hold_is_over_the_best_rank_goes_first(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let ids = [s.add_keyed("k").await, s.add_keyed("k").await, s.add_keyed("k").await];
    s.pass(Duration::from_millis(50));
    assert_eq!(s.claim_ids(node, 2).await, ids[..2]);
    assert_eq!(s.claim_ids(node, 2).await, ids[2..]);
    assert!(keys(s).await.is_empty());
}

async fn a_claim_lets_in_what_is_due_by_itself(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let id = s.add_keyed("k").await;
    s.pass(Duration::from_millis(49));
    assert!(s.claim(node, 10).await.is_empty());
    s.pass(TICK);
    assert_eq!(look(s, node, 10).await, (vec![id], None));
}

async fn making_ready_lets_in_what_is_due_and_rings(s: &Scene) {
    let node = s.join().await;
    let limited = hold(s, node, "k", 50).await;
    s.cancel(limited).await;
    let id = s.add_keyed("k").await;
    let until = s.in_ms(50);
    assert_eq!(make_ready(s).await, MadeReady { due: 0, expired: 0, freed: 0, next: Some(until) });
    s.pass(Duration::from_millis(50));
    let mut bell = s.store.wakeups();
    bell.arm();
    quiet("nothing yet", &mut bell).await;
    assert_eq!(make_ready(s).await, MadeReady { due: 1, expired: 0, freed: 0, next: None });
    heard("a hold that is over", &mut bell).await;
    assert_eq!(s.waits(id).await.0, Readiness::Ready);
}

async fn what_is_let_in_keeps_to_the_cap(s: &Scene) {
    let node = s.join().await;
    s.configure(QueueChange::KeyConcurrency(Some(2))).await;
    hold(s, node, "k", 50).await;
    let ids = [s.add_keyed("k").await, s.add_keyed("k").await, s.add_keyed("k").await];
    s.pass(Duration::from_millis(50));
    make_ready(s).await;
    // The rate-limited task has the best rank of all.
    assert_eq!(s.claim(node, 10).await.len(), 2);
    assert!(s.claim(node, 10).await.is_empty());
    assert_eq!(s.waits(ids[1]).await.0, Readiness::Parked);
}

async fn the_longer_hold_counts(s: &Scene) {
    let node = s.join().await;
    for _ in 0..3 {
        s.add_keyed("k").await;
    }
    let leases: Vec<_> = s.claim(node, 3).await.into_iter().map(|claimed| claimed.lease).collect();
    let until = s.in_ms(90);
    for (lease, ms) in leases.into_iter().zip([50, 90, 10]) {
        s.finish(lease, too_many(ms)).await;
    }
    let id = s.add_keyed("k").await;
    s.pass(Duration::from_millis(89));
    make_ready(s).await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    assert_eq!(s.waits(id).await, HELD);
    s.pass(TICK);
    make_ready(s).await;
    assert_eq!(s.claim(node, 10).await.len(), 4);
}

async fn a_hold_without_a_time_is_as_long_as_the_wait_of_its_task(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.finish(lease, Outcome::Failed(Failure::new(ErrorClass::RateLimited, "slow down"))).await;
    let ostler_core::State::Queued { run_at, .. } = s.task(id).await.state else { panic!("it is queued") };
    assert_eq!((run_at > s.now(), held_until(s).await), (true, Some(run_at)));
}

async fn a_claim_looks_at_so_many_and_no_more(s: &Scene) {
    let node = s.join().await;
    s.add_keyed("k").await;
    let lease = s.run(node).await;
    let most = most_looked_at(1);
    let many: Vec<NewTask> =
        (0..=most).map(|_| NewTask { limit_key: Some("k".to_owned()), ..s.draft() }).collect();
    let last = many.last().map(|task| task.id).expect("there are some");
    s.store.enqueue(many).await.expect("enqueue answers");
    s.finish(lease, too_many(60_000)).await;
    assert_eq!(look(s, node, 1).await, (vec![], Some(s.now())), "it asks to be asked again");
    assert_eq!(s.waits(last).await.0, Readiness::Ready, "it did not look that far");
    assert_eq!(look(s, node, 1).await, (vec![], Some(s.in_ms(60_000))));
    assert_eq!(s.waits(last).await, HELD);
}

async fn a_long_line_is_let_in_little_by_little(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let many: Vec<NewTask> =
        (0..AHEAD + 10).map(|_| NewTask { limit_key: Some("k".to_owned()), ..s.draft() }).collect();
    let ids: Vec<TaskId> = many.iter().map(|task| task.id).collect();
    s.store.enqueue(many).await.expect("enqueue answers");
    s.pass(Duration::from_millis(50));
    assert_eq!(s.claim_ids(node, 2).await, ids[..2]);
    assert_eq!(s.waits(ids[AHEAD + 1]).await.0, Readiness::Ready, "whatever is taken is made up for");
    assert_eq!(s.waits(ids[AHEAD + 2]).await.0, Readiness::Parked);
    assert_eq!(s.claim_ids(node, 1_000).await, ids[2..AHEAD + 2]);
    assert_eq!(s.claim_ids(node, 1_000).await, ids[AHEAD + 2..]);
    assert!(keys(s).await.is_empty());
}

async fn a_held_task_cannot_be_hastened(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let id = s.add_keyed("k").await;
    let before = s.picture().await;
    assert_eq!(s.replay(id).await, ReplayAnswer::Refused(StateName::Queued));
    assert_eq!(s.picture().await, before);
}

async fn a_held_task_can_be_cancelled(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let ids = [s.add_keyed("k").await, s.add_keyed("k").await];
    s.cancel(ids[0]).await;
    s.pass(Duration::from_millis(50));
    assert_eq!(s.claim_ids(node, 10).await, ids[1..]);
    assert_eq!(s.state(ids[0]).await, StateName::Cancelled);
}

async fn what_is_held_is_still_too_late_in_time(s: &Scene) {
    let node = s.join().await;
    hold(s, node, "k", 50).await;
    let end = s.in_ms(5);
    let id = s.add_with(|task| (task.limit_key, task.not_after) = (Some("k".to_owned()), Some(end))).await;
    s.pass(Duration::from_millis(6));
    assert_eq!(make_ready(s).await.expired, 1);
    assert_eq!(s.state(id).await, StateName::Cancelled);
}

async fn a_hold_can_be_ended_by_hand(s: &Scene) {
    let node = s.join().await;
    let limited = hold(s, node, "k", 60_000).await;
    s.cancel(limited).await;
    let id = s.add_keyed("k").await;
    let mut bell = s.store.wakeups();
    bell.arm();
    s.configure(QueueChange::EndKeyHold("k".to_owned())).await;
    heard("the end of a hold", &mut bell).await;
    assert_eq!(s.claim_ids(node, 10).await, [id]);
    let lease = s.running(node).await;
    s.finish(lease, too_many(60_000)).await;
    let id = s.add().await;
    bell.arm();
    s.configure(QueueChange::EndHold).await;
    heard("the end of a hold", &mut bell).await;
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn a_hold_outlives_the_tasks_of_its_key(s: &Scene) {
    let node = s.join().await;
    let limited = hold(s, node, "k", 50).await;
    s.cancel(limited).await;
    s.store.prune(Prune::Tasks(vec![limited])).await.expect("prune answers");
    let id = s.add_keyed("k").await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(s.in_ms(50))));
    s.pass(Duration::from_millis(50));
    assert_eq!(s.claim_ids(node, 10).await, [id]);
}

async fn held_keys_are_shown_so_many_and_no_more(s: &Scene) {
    let node = s.join().await;
    let mut expected = Vec::new();
    for number in 0..MAX_KEYS_SHOWN + 3 {
        let key = format!("key {number:03}");
        hold(s, node, &key, 1_000 - number as u64).await;
        expected.push(key);
    }
    expected.reverse();
    let shown: Vec<String> = keys(s).await.into_iter().map(|record| record.key).collect();
    assert_eq!(shown, expected[..MAX_KEYS_SHOWN], "the soonest over first");
}
