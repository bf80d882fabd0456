//! Amend: policy overrides of a kind, and overrides changed while a task lives.

use std::time::Duration;

use ostler_core::{ErrorClass, Outcome, Overrides, StateName};

use super::super::scene::{QUEUE, Scene, TRACE, failure, invalid};
use super::runner::cases;
use ostler_store::MAX_KINDS;
use ostler_store::calls::Amended;
use ostler_store::calls::{Finished, NewTask, QueueChange};

cases![
    a_kind_has_rules_of_its_own,
    the_rules_of_a_kind_stand_between_the_task_and_the_queue,
    the_rules_of_a_kind_can_be_taken_back,
    the_rules_of_a_kind_hold_for_attempts_that_run_already,
    a_queue_has_so_many_kinds_with_rules_and_no_more,
    a_task_that_waits_can_be_amended,
    an_amendment_holds_for_the_end_of_the_attempt_that_runs,
    an_amendment_can_take_attempts_away,
    an_amendment_leaves_what_it_does_not_name,
    what_has_ended_is_not_amended,
    an_amendment_that_no_attempt_can_keep_is_refused,
];

fn attempts(attempts: u32) -> Overrides {
    Overrides { attempts: Some(attempts), ..Overrides::NONE }
}

fn kind(name: &str, overrides: Overrides) -> QueueChange {
    QueueChange::KindOverrides(name.to_owned(), overrides)
}

async fn a_kind_has_rules_of_its_own(s: &Scene) {
    let node = s.join().await;
    s.configure(kind("send", attempts(1))).await;
    let lease = s.running(node).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Failed));
    s.enqueue(NewTask { kind: "sort".to_owned(), ..s.draft() }).await;
    let lease = s.run(node).await;
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Queued));
    let settings = s.store.queue_settings(QUEUE).await.expect("configure answers");
    assert_eq!(settings.kinds.get("send"), Some(&attempts(1)));
    let survey = s.store.survey().await.expect("survey answers");
    assert_eq!(survey.queues[0].settings, settings);
}

async fn the_rules_of_a_kind_stand_between_the_task_and_the_queue(s: &Scene) {
    let node = s.join().await;
    let (queue, of_kind) = (Duration::from_secs(7), Duration::from_secs(8));
    let timeout = |timeout| Overrides { timeout: Some(timeout), ..Overrides::NONE };
    s.configure(QueueChange::Overrides(Overrides { max_crashes: Some(9), ..timeout(queue) })).await;
    s.configure(kind("send", Overrides { attempts: Some(5), ..timeout(of_kind) })).await;
    s.add_with(|task| task.overrides = attempts(6)).await;
    let policy = s.claim(node, 1).await.remove(0).policy;
    assert_eq!((policy.retry.attempts, policy.timeout, policy.max_crashes), (6, of_kind, 9));
    s.enqueue(NewTask { kind: "sort".to_owned(), ..s.draft() }).await;
    let policy = s.claim(node, 1).await.remove(0).policy;
    assert_eq!((policy.retry.attempts, policy.timeout, policy.max_crashes), (4, queue, 9));
}

async fn the_rules_of_a_kind_can_be_taken_back(s: &Scene) {
    let node = s.join().await;
    s.configure(kind("send", attempts(1))).await;
    s.configure(kind("send", Overrides::NONE)).await;
    assert!(s.store.queue_settings(QUEUE).await.expect("configure answers").kinds.is_empty());
    s.add().await;
    assert_eq!(s.claim(node, 1).await[0].policy.retry.attempts, 4);
}

/// Cached settings of a queue must not outlive a change, whichever connection made it.
async fn the_rules_of_a_kind_hold_for_attempts_that_run_already(s: &Scene) {
    let node = s.join().await;
    let second = s.fixture.second().await;
    let lease = s.running(node).await;
    second.configure(QUEUE, vec![kind("send", attempts(1))]).await.expect("configure answers");
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Failed));
}

async fn a_queue_has_so_many_kinds_with_rules_and_no_more(s: &Scene) {
    let kinds = |count: usize| (0..count).map(|number| kind(&format!("k{number}"), attempts(2))).collect();
    invalid("too many kinds", s.store.configure(QUEUE, kinds(MAX_KINDS + 1)).await);
    assert!(s.store.survey().await.expect("survey answers").queues.is_empty(), "nothing was written");
    s.store.configure(QUEUE, kinds(MAX_KINDS)).await.expect("as many as there may be");
    invalid("one more", s.store.configure(QUEUE, vec![kind("another", attempts(2))]).await);
    s.configure(kind("k0", attempts(3))).await;
    invalid("a kind without a name", s.store.configure(QUEUE, vec![kind("", attempts(2))]).await);
    invalid("no attempt at all", s.store.configure(QUEUE, vec![kind("k1", attempts(0))]).await);
}

async fn a_task_that_waits_can_be_amended(s: &Scene) {
    let id = s.add().await;
    assert_eq!(s.store.amend(id, attempts(2)).await, Ok(Amended::Done));
    assert_eq!(s.task(id).await.overrides, attempts(2));
    for expected in [StateName::Queued, StateName::Failed] {
        let node = s.join().await;
        let lease = s.run(node).await;
        assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(expected));
        s.pass(Duration::from_secs(600));
        s.store.make_ready(10).await.expect("make_ready answers");
    }
}

async fn an_amendment_holds_for_the_end_of_the_attempt_that_runs(s: &Scene) {
    let node = s.join().await;
    let id = s.add_with(|task| task.overrides = attempts(1)).await;
    let lease = s.run(node).await;
    assert_eq!(s.store.amend(id, attempts(2)).await, Ok(Amended::Done));
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Queued));
}

async fn an_amendment_can_take_attempts_away(s: &Scene) {
    let node = s.join().await;
    s.add().await;
    let lease = s.lease(node).await;
    assert_eq!(s.store.amend(lease.task(), attempts(1)).await, Ok(Amended::Done), "one that is only claimed");
    assert_eq!(s.finish(lease, failure(ErrorClass::Transient)).await, Finished::Recorded(StateName::Failed));
}

async fn an_amendment_leaves_what_it_does_not_name(s: &Scene) {
    let timeout = Some(Duration::from_secs(9));
    let (not_after, deadline) = (Some(s.in_ms(70)), Some(s.in_ms(60)));
    let id = s
        .add_with(|task| {
            task.overrides = Overrides { timeout, ..attempts(3) };
            (task.not_after, task.deadline) = (not_after, deadline);
            task.folder = Some("/tmp/here".to_owned());
            task.traceparent = TRACE.parse().ok();
        })
        .await;
    let rank = s.task(id).await.rank;
    assert_eq!(s.store.amend(id, attempts(8)).await, Ok(Amended::Done));
    let task = s.task(id).await;
    assert_eq!(task.overrides, Overrides { timeout, ..attempts(8) });
    assert_eq!((task.not_after, task.deadline, task.rank), (not_after, deadline, rank));
    assert_eq!(task.folder.as_deref(), Some("/tmp/here"));
    assert_eq!(task.traceparent.map(|trace| trace.to_string()).as_deref(), Some(TRACE));
    let before = s.picture().await;
    assert_eq!(s.store.amend(id, Overrides::NONE).await, Ok(Amended::Done));
    assert_eq!(s.picture().await, before, "nothing said changes nothing");
}

async fn what_has_ended_is_not_amended(s: &Scene) {
    let node = s.join().await;
    let done = s.completed(node).await;
    let dead = s.dead_letter(node).await;
    let cancelled = s.add().await;
    s.cancel(cancelled).await;
    let before = s.picture().await;
    for (id, state) in
        [(done, StateName::Completed), (dead, StateName::Failed), (cancelled, StateName::Cancelled)]
    {
        assert_eq!(s.store.amend(id, attempts(9)).await, Ok(Amended::Ended(state)));
    }
    assert_eq!(s.store.amend(s.task_id(), attempts(9)).await, Ok(Amended::NotFound));
    assert_eq!(s.picture().await, before);
}

async fn an_amendment_that_no_attempt_can_keep_is_refused(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let before = s.picture().await;
    let no_time = Overrides { timeout: Some(Duration::ZERO), ..Overrides::NONE };
    for wrong in [attempts(0), no_time] {
        invalid("a policy that no attempt can keep", s.store.amend(lease.task(), wrong).await);
    }
    assert_eq!(s.picture().await, before);
    assert_eq!(s.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
}
