//! Expiry: leases of dead nodes are taken back, and no others.

use ostler_core::{CancelReason, Ending, FailReason, Outcome, Overrides, Readiness, State, StateName, Wait};

use super::super::scene::{Scene, TICK, TTL};
use super::runner::cases;
use ostler_store::calls::{ClaimAnswer, Expired, Fenced, Finished, Renewed};

cases![
    nothing_is_taken_from_the_living,
    an_overdue_session_ends_and_its_tasks_are_queued,
    a_known_death_needs_no_waiting,
    expiring_twice_is_once,
    a_bite_takes_so_many_tasks,
    a_bite_of_nothing_ends_sessions_only,
    a_running_task_counts_the_death_and_a_claimed_one_does_not,
    too_many_deaths_end_in_quarantine,
    a_cancelled_task_of_a_dead_node_is_cancelled,
    the_dead_cannot_finish,
    a_finish_before_the_expiry_counts,
    what_a_node_held_that_stopped_on_purpose_is_handed_back,
    a_node_that_departed_goes_on_until_it_is_found_dead,
    a_session_that_is_over_cannot_depart,
];

async fn expire(s: &Scene, batch: usize) -> Expired {
    s.store.expire(batch).await.expect("expire answers")
}

async fn nothing_is_taken_from_the_living(s: &Scene) {
    let node = s.join().await;
    s.leased(node).await;
    s.running(node).await;
    s.pass(TTL);
    let before = s.picture().await;
    assert_eq!(expire(s, 100).await, Expired::default());
    assert_eq!(s.picture().await, before);
}

async fn an_overdue_session_ends_and_its_tasks_are_queued(s: &Scene) {
    let [dead, alive] = [s.join().await, s.join().await];
    let lost = s.running(dead).await.task();
    let kept = s.running(alive).await.task();
    s.pass(TTL);
    s.store.renew(alive, &[]).await.expect("renew answers");
    s.pass(TICK);
    assert_eq!(expire(s, 100).await, Expired { sessions: vec![dead], tasks: 1, more: false });
    let shown = s.show(lost).await;
    let (readiness, why) = (Readiness::Ready, Wait::LeaseExpired);
    assert_eq!(shown.task.state, State::Queued { readiness, why, run_at: s.now() });
    assert_eq!((shown.task.failures, shown.task.suspect, shown.task.token), (0, true, 1));
    let end = shown.attempts[0].end.as_ref().expect("the attempt has ended");
    assert_eq!((end.ending, end.finished_at, end.failure.as_ref()), (Ending::NodeDied, s.now(), None));
    assert_eq!(s.state(kept).await, StateName::Running);
    let nodes = s.store.survey().await.expect("survey answers").nodes;
    assert_eq!(nodes.iter().map(|node| node.session).collect::<Vec<_>>(), [alive]);
    assert_eq!(s.claim_ids(alive, 10).await, vec![lost]);
}

async fn a_known_death_needs_no_waiting(s: &Scene) {
    let [dead, alive] = [s.join().await, s.join().await];
    let id = s.running(dead).await.task();
    s.fixture.kill(dead).await;
    assert_eq!(expire(s, 100).await, Expired { sessions: vec![dead], tasks: 1, more: false });
    assert_eq!(s.claim_ids(alive, 10).await, vec![id]);
    assert_eq!(s.store.claim(s.asks(dead, 10)).await, Ok(ClaimAnswer::SessionEnded));
}

async fn expiring_twice_is_once(s: &Scene) {
    let node = s.join().await;
    s.running(node).await;
    s.pass(TTL + TICK);
    expire(s, 100).await;
    let before = s.picture().await;
    assert_eq!(expire(s, 100).await, Expired::default());
    assert_eq!(s.picture().await, before);
}

async fn a_bite_takes_so_many_tasks(s: &Scene) {
    let [one, other] = [s.join().await, s.join().await];
    let mut ids = Vec::new();
    for node in [one, other, one, other, one] {
        ids.push(s.leased(node).await.task());
    }
    s.pass(TTL + TICK);
    let first = expire(s, 2).await;
    assert_eq!((first.sessions.len(), first.tasks, first.more), (2, 2, true));
    let mut states = Vec::new();
    for id in &ids {
        states.push(s.state(*id).await);
    }
    let (queued, claimed) = (StateName::Queued, StateName::Claimed);
    assert_eq!(states, [queued, queued, claimed, claimed, claimed], "the oldest tasks first");
    assert_eq!(expire(s, 2).await, Expired { sessions: Vec::new(), tasks: 2, more: true });
    assert_eq!(expire(s, 1).await, Expired { sessions: Vec::new(), tasks: 1, more: false });
    assert_eq!(s.counts().await.queued, 5);
}

async fn a_bite_of_nothing_ends_sessions_only(s: &Scene) {
    let node = s.join().await;
    let id = s.leased(node).await.task();
    s.pass(TTL + TICK);
    assert_eq!(expire(s, 0).await, Expired { sessions: vec![node], tasks: 0, more: true });
    assert_eq!(s.state(id).await, StateName::Claimed);
}

async fn a_running_task_counts_the_death_and_a_claimed_one_does_not(s: &Scene) {
    let node = s.join().await;
    let claimed = s.leased(node).await.task();
    let running = s.running(node).await.task();
    s.pass(TTL + TICK);
    expire(s, 100).await;
    let [claimed, running] = [s.show(claimed).await, s.show(running).await];
    assert_eq!((claimed.task.node_deaths, claimed.task.suspect, claimed.attempts.len()), (0, true, 0));
    assert_eq!((running.task.node_deaths, running.task.suspect, running.attempts.len()), (1, true, 1));
}

async fn too_many_deaths_end_in_quarantine(s: &Scene) {
    let overrides = Overrides { max_node_deaths: Some(2), ..Overrides::NONE };
    let id = s.add_with(|task| task.overrides = overrides).await;
    for _ in 0..2 {
        let node = s.join().await;
        s.run(node).await;
        s.fixture.kill(node).await;
        expire(s, 100).await;
    }
    let task = s.task(id).await;
    assert_eq!(task.state, State::Failed { finished_at: s.now(), reason: FailReason::NodeDeaths });
    assert_eq!((task.node_deaths, task.runs, task.failures), (2, 2, 0));
}

async fn a_cancelled_task_of_a_dead_node_is_cancelled(s: &Scene) {
    let node = s.join().await;
    let id = s.running(node).await.task();
    s.cancel(id).await;
    s.pass(TTL + TICK);
    expire(s, 100).await;
    let state = s.task(id).await.state;
    assert_eq!(state, State::Cancelled { finished_at: s.now(), reason: CancelReason::Requested });
}

async fn the_dead_cannot_finish(s: &Scene) {
    let [node, other] = [s.join().await, s.join().await];
    let lease = s.running(node).await;
    let late = lease.as_ref();
    s.pass(TTL);
    s.store.renew(other, &[]).await.expect("renew answers");
    s.pass(TICK);
    expire(s, 100).await;
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::LeaseLost);
    let next = s.run(other).await;
    let before = s.picture().await;
    let answer = s.finish(ostler_store::Lease::granted(late), Outcome::Success).await;
    assert_eq!(answer, Finished::LeaseLost);
    assert_eq!(s.picture().await, before, "another node speaks for the task now");
    assert_eq!(s.finish(next, Outcome::Success).await, Finished::Recorded(StateName::Completed));
}

async fn a_finish_before_the_expiry_counts(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    s.pass(TTL + TICK);
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
    assert_eq!(expire(s, 100).await, Expired { sessions: vec![node], tasks: 0, more: false });
    assert_eq!(s.counts().await.completed, 1);
}

async fn what_a_node_held_that_stopped_on_purpose_is_handed_back(s: &Scene) {
    let [gone, late, dead] = [s.join().await, s.join().await, s.join().await];
    let held = [s.running(gone).await.task(), s.leased(gone).await.task(), s.running(late).await.task()];
    let lost = s.running(dead).await.task();
    for node in [gone, late] {
        assert_eq!(s.store.depart(node).await, Ok(Fenced::Recorded));
    }
    s.fixture.kill(gone).await;
    // Whatever the batch: the same as if the node had left.
    assert_eq!(expire(s, 0).await, Expired { sessions: vec![gone], tasks: 2, more: false });
    s.pass(TTL + TICK);
    assert_eq!(expire(s, 100).await, Expired { sessions: vec![late, dead], tasks: 2, more: false });
    for id in held {
        assert_eq!(s.waits(id).await, (Readiness::Ready, Wait::HandedBack));
        let task = s.task(id).await;
        assert_eq!((task.failures, task.node_deaths, task.suspect), (0, 0, false), "no death counts");
    }
    let ending = s.show(held[0]).await.attempts[0].end.as_ref().map(|end| end.ending);
    assert_eq!(ending, Some(Ending::HandedBack));
    assert_eq!(s.task(lost).await.node_deaths, 1, "a node that did not announce its exit has died");
}

async fn a_node_that_departed_goes_on_until_it_is_found_dead(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    assert_eq!(s.store.depart(node).await, Ok(Fenced::Recorded));
    s.pass(TTL);
    assert_eq!(expire(s, 100).await, Expired::default());
    assert!(matches!(s.store.renew(node, &[lease.as_ref()]).await, Ok(Renewed::Held { .. })));
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
    assert_eq!(s.store.leave(node).await, Ok(Fenced::Recorded));
}

async fn a_session_that_is_over_cannot_depart(s: &Scene) {
    assert_eq!(s.store.depart(s.session_id()).await, Ok(Fenced::Lost));
    let node = s.join().await;
    s.store.leave(node).await.expect("leave answers");
    assert_eq!(s.store.depart(node).await, Ok(Fenced::Lost));
}
