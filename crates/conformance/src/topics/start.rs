//! Start: attempts begin.

use ostler_core::{Outcome, State, StateName};

use super::super::scene::{Scene, TICK, with_token};
use super::runner::cases;
use ostler_store::LeaseRef;
use ostler_store::calls::{Fenced, Report, Start};

cases![
    a_start_makes_an_attempt,
    a_start_twice_is_once,
    nothing_to_start_is_nothing_done,
    a_start_with_another_token_is_lost,
    a_start_of_an_unknown_task_is_lost,
    a_start_of_a_task_that_was_given_back_is_lost,
    a_start_of_a_finished_task_is_lost,
    starts_are_answered_one_by_one,
    a_second_attempt_has_the_next_number,
];

async fn a_start_makes_an_attempt(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await;
    let id = lease.task();
    s.pass(TICK);
    let worker = s.worker();
    let start = Start { lease: lease.as_ref(), worker };
    assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    let shown = s.show(id).await;
    assert_eq!(shown.task.state, State::Running { session: node, started_at: s.now() });
    assert_eq!((shown.task.runs, shown.task.token, shown.attempts.len()), (1, 1, 1));
    let attempt = &shown.attempts[0];
    assert_eq!((attempt.number, attempt.token, attempt.session, attempt.worker), (1, 1, node, worker));
    assert_eq!((attempt.started_at, attempt.end.is_none()), (s.now(), true));
}

async fn a_start_twice_is_once(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let before = s.picture().await;
    s.pass(TICK);
    s.start(&lease).await;
    assert_eq!(s.picture().await.tasks, before.tasks, "the first start stands");
}

async fn nothing_to_start_is_nothing_done(s: &Scene) {
    assert_eq!(s.store.start(Vec::new()).await, Ok(Vec::new()));
}

async fn a_start_with_another_token_is_lost(s: &Scene) {
    let node = s.join().await;
    let first = s.leased(node).await.as_ref();
    s.store
        .finish(Report::hand_backs(vec![ostler_store::Lease::granted(first)]))
        .await
        .expect("finish answers");
    let now = s.lease(node).await.as_ref();
    let before = s.picture().await;
    for token in [0, first.token, now.token + 1, u64::MAX >> 1] {
        let start = Start { lease: with_token(now, token), worker: s.worker() };
        assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Lost]), "token {token}");
    }
    assert_eq!(s.picture().await, before);
}

async fn a_start_of_an_unknown_task_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await.as_ref();
    let before = s.picture().await;
    // The row belongs to another task: the id decides.
    let foreign = LeaseRef { task: s.task_id(), ..lease };
    let start = Start { lease: foreign, worker: s.worker() };
    assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Lost]));
    assert_eq!(s.picture().await, before);
}

async fn a_start_of_a_task_that_was_given_back_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.leased(node).await;
    let kept = lease.as_ref();
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    let before = s.picture().await;
    let start = Start { lease: kept, worker: s.worker() };
    assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Lost]));
    assert_eq!(s.picture().await, before);
}

async fn a_start_of_a_finished_task_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let kept = lease.as_ref();
    s.finish(lease, Outcome::Success).await;
    let before = s.picture().await;
    let start = Start { lease: kept, worker: s.worker() };
    assert_eq!(s.store.start(vec![start]).await, Ok(vec![Fenced::Lost]));
    assert_eq!(s.picture().await, before);
}

async fn starts_are_answered_one_by_one(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    s.add().await;
    let leases: Vec<LeaseRef> = s.claim(node, 2).await.iter().map(|claimed| claimed.lease.as_ref()).collect();
    let worker = s.worker();
    let starts =
        [leases[0], with_token(leases[0], 9), leases[1], leases[1]].map(|lease| Start { lease, worker });
    let expected = vec![Fenced::Recorded, Fenced::Lost, Fenced::Recorded, Fenced::Recorded];
    assert_eq!(s.store.start(starts.to_vec()).await, Ok(expected));
    for lease in leases {
        assert_eq!(
            (s.state(lease.task).await, s.show(lease.task).await.attempts.len()),
            (StateName::Running, 1)
        );
    }
}

async fn a_second_attempt_has_the_next_number(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    s.finish(lease, Outcome::HandedBack).await;
    let claimed = s.claim(node, 1).await.remove(0);
    assert_eq!((claimed.attempt, claimed.failures), (2, 0));
    s.start(&claimed.lease).await;
    let shown = s.show(id).await;
    let seen: Vec<_> = shown.attempts.iter().map(|attempt| (attempt.number, attempt.token)).collect();
    assert_eq!((shown.task.runs, seen), (2, vec![(1, 1), (2, 2)]));
}
