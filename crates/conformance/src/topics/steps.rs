//! Steps: a later attempt does not repeat a saved step.

use ostler_core::{ErrorClass, Failure, Outcome, StateName};

use super::super::scene::{Scene, TICK, TTL, failure, with_token};
use super::runner::cases;
use ostler_store::MAX_STEPS;
use ostler_store::calls::{Finished, NewStep, Saved};
use ostler_store::{Lease, LeaseRef};

cases![
    steps_are_kept_in_order,
    a_step_that_was_saved_stays_as_it_is,
    steps_outlive_their_attempt,
    steps_outlive_a_partial_failure_and_the_death_of_a_node,
    each_task_has_its_own_steps,
    a_task_has_at_most_so_many_steps,
    a_step_needs_a_name,
    a_step_with_another_token_is_lost,
    a_step_of_an_unknown_task_is_lost,
    a_step_of_a_task_that_is_not_leased_is_lost,
];

async fn save(s: &Scene, lease: LeaseRef, name: &str, value: &str) -> Saved {
    let step = NewStep { name: name.to_owned(), value: value.to_owned() };
    s.store.save_step(lease, step).await.expect("save_step answers")
}

async fn names(s: &Scene, lease: LeaseRef) -> Vec<String> {
    s.show(lease.task).await.steps.into_iter().map(|step| step.name).collect()
}

async fn steps_are_kept_in_order(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    assert_eq!(save(s, lease, "z", "{\"n\":1}").await, Saved::Recorded);
    let first = s.now();
    s.pass(TICK);
    assert_eq!(save(s, lease, "a", "null").await, Saved::Recorded);
    let steps = s.show(lease.task).await.steps;
    let seen: Vec<_> = steps
        .iter()
        .map(|step| (step.name.as_str(), step.value.as_str(), step.saved_at, step.token))
        .collect();
    assert_eq!(seen, [("z", "{\"n\":1}", first, 1), ("a", "null", s.now(), 1)]);
}

async fn a_step_that_was_saved_stays_as_it_is(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    save(s, lease, "fetched", "1").await;
    let before = s.picture().await;
    s.pass(TICK);
    assert_eq!(save(s, lease, "fetched", "2").await, Saved::AlreadySaved);
    assert_eq!(s.picture().await, before);
    assert_eq!(save(s, lease, "Fetched", "2").await, Saved::Recorded, "another case is another name");
}

async fn steps_outlive_their_attempt(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    save(s, lease.as_ref(), "fetched", "1").await;
    s.finish(lease, Outcome::HandedBack).await;
    let lease = s.run(node).await.as_ref();
    assert_eq!(save(s, lease, "fetched", "2").await, Saved::AlreadySaved);
    assert_eq!(save(s, lease, "sent", "3").await, Saved::Recorded);
    let seen: Vec<_> =
        s.show(lease.task).await.steps.into_iter().map(|step| (step.value, step.token)).collect();
    assert_eq!(seen, [("1".to_owned(), 1), ("3".to_owned(), 2)]);
    s.finish(Lease::granted(lease), failure(ErrorClass::Permanent)).await;
    assert_eq!(names(s, lease).await, ["fetched", "sent"]);
}

async fn steps_outlive_a_partial_failure_and_the_death_of_a_node(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    save(s, lease.as_ref(), "fetched", "1").await;
    let partial =
        Failure { step: Some("moved".to_owned()), ..Failure::new(ErrorClass::Partial, "it is locked") };
    let finished = s.finish(lease, Outcome::Failed(partial)).await;
    assert_eq!(finished, Finished::Recorded(StateName::Queued), "the rest is tried again");
    assert_eq!(s.task(id).await.last_failure.and_then(|failure| failure.step).as_deref(), Some("moved"));
    s.pass(TTL / 2);
    s.store.renew(node, &[]).await.expect("renew answers");
    s.store.make_ready(10).await.expect("make_ready answers");
    let second = s.run(node).await.as_ref();
    assert_eq!(names(s, second).await, ["fetched"]);
    assert_eq!(save(s, second, "moved", "2").await, Saved::Recorded);
    s.fixture.kill(node).await;
    s.store.expire(10).await.expect("expire answers");
    let other = s.join().await;
    let third = s.run(other).await.as_ref();
    assert_eq!((third.task, third.token), (id, 3));
    assert_eq!(names(s, third).await, ["fetched", "moved"], "the next attempt goes on after them");
    assert_eq!(save(s, third, "moved", "3").await, Saved::AlreadySaved);
}

async fn each_task_has_its_own_steps(s: &Scene) {
    let node = s.join().await;
    let one = s.running(node).await.as_ref();
    let other = s.running(node).await.as_ref();
    assert_eq!(save(s, one, "a", "1").await, Saved::Recorded);
    assert_eq!(save(s, other, "a", "2").await, Saved::Recorded);
    assert_eq!(s.show(other.task).await.steps.len(), 1);
}

async fn a_task_has_at_most_so_many_steps(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    for step in 0..MAX_STEPS {
        assert_eq!(save(s, lease, &format!("step {step}"), "0").await, Saved::Recorded);
    }
    assert_eq!(save(s, lease, "one more", "0").await, Saved::TooMany);
    assert_eq!(save(s, lease, "step 0", "0").await, Saved::AlreadySaved);
    assert_eq!(s.show(lease.task).await.steps.len(), MAX_STEPS);
}

async fn a_step_needs_a_name(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    for name in ["", "a\nb", "a\0b"] {
        let step = NewStep { name: name.to_owned(), value: "1".to_owned() };
        super::super::scene::invalid("a step's name", s.store.save_step(lease, step).await);
    }
    assert!(s.show(lease.task).await.steps.is_empty());
}

async fn a_step_with_another_token_is_lost(s: &Scene) {
    let node = s.join().await;
    let first = s.leased(node).await.as_ref();
    s.finish(Lease::granted(first), Outcome::HandedBack).await;
    let now = s.run(node).await.as_ref();
    for token in [0, first.token, now.token + 1] {
        assert_eq!(save(s, with_token(now, token), "a", "1").await, Saved::LeaseLost, "token {token}");
    }
    assert!(s.show(now.task).await.steps.is_empty());
}

async fn a_step_of_an_unknown_task_is_lost(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await.as_ref();
    let foreign = LeaseRef { task: s.task_id(), ..lease };
    assert_eq!(save(s, foreign, "a", "1").await, Saved::LeaseLost);
    assert!(s.show(lease.task).await.steps.is_empty());
}

async fn a_step_of_a_task_that_is_not_leased_is_lost(s: &Scene) {
    let node = s.join().await;
    for outcome in [Outcome::HandedBack, Outcome::Success] {
        s.add().await;
        let lease = s.claim(node, 1).await.remove(0).lease;
        let kept = lease.as_ref();
        s.finish(lease, outcome.clone()).await;
        assert_eq!(save(s, kept, "a", "1").await, Saved::LeaseLost, "after {outcome:?}");
        assert!(s.show(kept.task).await.steps.is_empty());
    }
}
