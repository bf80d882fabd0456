//! Release: leases are handed back.

use ostler_core::{Ending, Outcome, Readiness, State, StateName, Wait};

use super::super::scene::{Scene, TICK, with_token};
use super::runner::cases;
use ostler_store::calls::{Finished, Report};
use ostler_store::{Lease, LeaseRef};

const QUEUED: Finished = Finished::Recorded(StateName::Queued);

cases![
    a_task_that_was_given_back_is_ready_at_once,
    a_hand_back_keeps_the_place_in_the_queue,
    a_hand_back_of_a_run_ends_its_attempt,
    nothing_to_give_back_is_nothing_done,
    a_hand_back_with_another_token_is_lost,
    a_hand_back_of_an_unknown_task_is_lost,
    a_hand_back_twice_is_lost,
    hand_backs_are_answered_one_by_one,
];

async fn a_task_that_was_given_back_is_ready_at_once(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await;
    let id = lease.task();
    s.pass(TICK);
    assert_eq!(s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers"), vec![QUEUED]);
    let shown = s.show(id).await;
    let (readiness, why) = (Readiness::Ready, Wait::HandedBack);
    assert_eq!(shown.task.state, State::Queued { readiness, why, run_at: s.now() });
    assert_eq!((shown.task.runs, shown.task.failures, shown.task.token), (0, 0, 1));
    assert!(shown.attempts.is_empty() && !shown.task.suspect, "it never ran");
}

async fn a_hand_back_keeps_the_place_in_the_queue(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await;
    let first = lease.task();
    s.pass(TICK);
    let second = s.add().await;
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    assert_eq!(s.claim_ids(node, 10).await, vec![first, second]);
}

async fn a_hand_back_of_a_run_ends_its_attempt(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.pass(TICK);
    assert_eq!(s.finish(lease, Outcome::HandedBack).await, QUEUED);
    let shown = s.show(id).await;
    let end = shown.attempts[0].end.as_ref().expect("the attempt has ended");
    assert_eq!((end.ending, end.finished_at, end.failure.as_ref()), (Ending::HandedBack, s.now(), None));
    assert_eq!((shown.task.runs, shown.task.failures), (1, 0));
}

async fn nothing_to_give_back_is_nothing_done(s: &Scene) {
    assert_eq!(s.store.finish(Report::hand_backs(Vec::new())).await.expect("finish answers"), Vec::new());
}

async fn a_hand_back_with_another_token_is_lost(s: &Scene) {
    let node = s.join().await;
    let first = s.leased(node).await.as_ref();
    s.store.finish(Report::hand_backs(vec![Lease::granted(first)])).await.expect("finish answers");
    let now = s.lease(node).await.as_ref();
    let before = s.picture().await;
    for token in [0, first.token, now.token + 1] {
        let answer = s.store.finish(Report::hand_backs(vec![Lease::granted(with_token(now, token))])).await;
        assert_eq!(answer.expect("finish answers"), vec![Finished::LeaseLost], "token {token}");
    }
    assert_eq!(s.picture().await, before, "the task stays with the one who has it");
}

async fn a_hand_back_of_an_unknown_task_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await.as_ref();
    let before = s.picture().await;
    let foreign = Lease::granted(LeaseRef { task: s.task_id(), ..lease });
    assert_eq!(
        s.store.finish(Report::hand_backs(vec![foreign])).await.expect("finish answers"),
        vec![Finished::LeaseLost]
    );
    assert_eq!(s.picture().await, before);
}

async fn a_hand_back_twice_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await.as_ref();
    let twice = vec![Lease::granted(lease), Lease::granted(lease)];
    let answers = s.store.finish(Report::hand_backs(twice)).await.expect("finish answers");
    assert_eq!(answers, vec![QUEUED, Finished::LeaseLost]);
    assert_eq!(s.counts().await.queued, 1);
}

async fn hand_backs_are_answered_one_by_one(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    s.add().await;
    let mut leases: Vec<Lease> = s.claim(node, 2).await.into_iter().map(|claimed| claimed.lease).collect();
    let wrong = Lease::granted(with_token(leases[0].as_ref(), 7));
    leases.insert(1, wrong);
    let answers = s.store.finish(Report::hand_backs(leases)).await.expect("finish answers");
    assert_eq!(answers, vec![QUEUED, Finished::LeaseLost, QUEUED]);
}
