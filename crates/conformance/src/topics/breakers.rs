//! Circuit breakers: while the service behind them fails, tasks wait, and one probe finds out whether it has recovered.

use std::time::Duration;

use ostler_core::{
    BreakerPolicy, BreakerState, ErrorClass, Outcome, Readiness, SessionId, TaskId, Trip, Wait,
};

use super::super::scene::{Scene, TICK, TTL, failure, heard, invalid, one};
use super::holds::{look, too_many};
use super::runner::cases;
use ostler_store::Lease;
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting, KeyRecord};
use ostler_store::views::QueueRecord;

cases![
    failures_in_a_row_open_the_breaker_of_the_queue,
    a_success_between_starts_the_count_again,
    a_share_of_failures_opens_it_too,
    while_it_is_open_tasks_wait_and_do_not_fail,
    half_open_one_goes_through_and_its_success_closes_it,
    a_probe_that_fails_opens_it_again,
    a_probe_that_says_nothing_makes_way_for_another,
    a_dead_node_takes_its_probe_with_it,
    only_the_probe_decides,
    a_long_probe_stays_the_only_one,
    each_key_has_a_breaker_of_its_own,
    a_key_lets_one_probe_through,
    what_arrives_at_an_open_key_is_parked_at_once,
    tasks_without_a_key_have_no_breaker_of_a_key,
    a_success_whose_start_was_not_written_counts_too,
    by_hand_it_opens_until_a_moment_or_a_reset,
    by_hand_a_key_opens_until_a_moment_or_a_reset,
    by_hand_it_works_without_a_policy_too,
    a_reset_rings,
    a_closing_breaker_rings,
    another_scope_begins_anew,
    another_policy_keeps_the_state,
    breakers_that_cannot_work_are_refused,
];

const RESET: Duration = Duration::from_secs(10);
const OPEN: (Readiness, Wait) = (Readiness::Parked, Wait::BreakerOpen);

const fn after(failures: u32) -> BreakerPolicy {
    BreakerPolicy { trip: Trip::Consecutive(failures), reset: RESET }
}

async fn set(s: &Scene, failures: u32, scope: BreakerScope) {
    s.configure(QueueChange::Breaker(Some(BreakerSetting { policy: after(failures), scope }))).await;
}

async fn queue(s: &Scene) -> QueueRecord {
    one(s.store.survey().await.expect("survey answers").queues)
}

async fn keys(s: &Scene) -> Vec<KeyRecord> {
    s.store.survey().await.expect("survey answers").keys
}

/// Runs the one ready task and fails it.
async fn fail(s: &Scene, node: SessionId) {
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Transient)).await;
}

/// A queue whose breaker has just opened.
async fn opened(s: &Scene, node: SessionId) {
    set(s, 1, BreakerScope::Queue).await;
    s.add_with(|task| task.overrides.attempts = Some(1)).await;
    fail(s, node).await;
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Open { until: s.now().after(RESET) }));
}

/// A key whose breaker has just opened.
async fn opened_key(s: &Scene, node: SessionId, key: &str) {
    set(s, 1, BreakerScope::Key).await;
    s.add_with(|task| (task.limit_key, task.overrides.attempts) = (Some(key.to_owned()), Some(1))).await;
    fail(s, node).await;
    assert_eq!(keys(s).await.len(), 1);
}

async fn failures_in_a_row_open_the_breaker_of_the_queue(s: &Scene) {
    let node = s.join().await;
    assert_eq!(s.store.survey().await.expect("survey answers").queues.len(), 0);
    set(s, 2, BreakerScope::Queue).await;
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed));
    for class in [ErrorClass::Crash, ErrorClass::Permanent, ErrorClass::Timeout] {
        assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed), "before {class:?}");
        let lease = s.running(node).await;
        s.finish(lease, failure(class)).await;
    }
    let until = s.now().after(RESET);
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Open { until }));
    s.add().await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
}

async fn a_success_between_starts_the_count_again(s: &Scene) {
    let node = s.join().await;
    set(s, 2, BreakerScope::Queue).await;
    for _ in 0..5 {
        let lease = s.running(node).await;
        s.finish(lease, failure(ErrorClass::Transient)).await;
        s.completed(node).await;
    }
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed));
}

async fn a_share_of_failures_opens_it_too(s: &Scene) {
    let node = s.join().await;
    let trip = Trip::Rate { failures_percent: 50, at_least: 4, window: Duration::from_secs(60) };
    let policy = BreakerPolicy { trip, reset: RESET };
    s.configure(QueueChange::Breaker(Some(BreakerSetting { policy, scope: BreakerScope::Queue }))).await;
    for round in 0..2 {
        assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed), "round {round}");
        s.completed(node).await;
        let lease = s.running(node).await;
        s.finish(lease, failure(ErrorClass::Transient)).await;
    }
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Open { until: s.now().after(RESET) }));
}

async fn while_it_is_open_tasks_wait_and_do_not_fail(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let id = s.add().await;
    for _ in 0..5 {
        assert!(s.claim(node, 10).await.is_empty());
        s.pass(Duration::from_secs(1));
    }
    let task = s.task(id).await;
    assert_eq!((task.token, task.runs, task.failures), (0, 0, 0));
    assert_eq!(s.waits(id).await.0, Readiness::Ready, "the queue is not looked at");
}

async fn half_open_one_goes_through_and_its_success_closes_it(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let ids = [s.add().await, s.add().await, s.add().await];
    s.pass(RESET);
    let lease = s.lease_first(node, &ids[..1]).await;
    assert!(matches!(queue(s).await.breaker, Some(BreakerState::HalfOpen { .. })));
    assert_eq!(look(s, node, 10).await, (vec![], None), "one, and not one more");
    s.finish(lease, Outcome::Success).await;
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed));
    assert_eq!(look(s, node, 10).await, (ids[1..].to_vec(), None));
}

async fn a_probe_that_fails_opens_it_again(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let ids = [s.add().await, s.add().await];
    s.pass(RESET);
    let lease = s.lease_first(node, &ids[..1]).await;
    let mut bell = s.store.wakeups();
    bell.arm();
    s.finish(lease, failure(ErrorClass::Transient)).await;
    heard("another moment to come back", &mut bell).await;
    let until = s.now().after(RESET);
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
}

async fn a_probe_that_says_nothing_makes_way_for_another(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let id = s.add().await;
    s.pass(RESET);
    let nothing = [
        Outcome::HandedBack,
        failure(ErrorClass::Permanent),
        Outcome::Cancelled,
        failure(ErrorClass::QueueStop),
        too_many(0),
    ];
    for outcome in nothing {
        let probe = s.claim(node, 10).await;
        assert_eq!(probe.len(), 1, "before {outcome:?}");
        assert!(s.claim(node, 10).await.is_empty());
        for claimed in probe {
            s.finish(claimed.lease, outcome.clone()).await;
        }
        s.configure(QueueChange::Resume).await;
        s.cancel(id).await;
        s.add().await;
    }
    assert_eq!(s.claim(node, 10).await.len(), 1);
}

async fn a_dead_node_takes_its_probe_with_it(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let id = s.add().await;
    s.pass(RESET);
    assert_eq!(s.claim_ids(node, 10).await, [id]);
    s.pass(TTL + TICK);
    let other = s.join().await;
    assert!(s.claim(other, 10).await.is_empty(), "it is not known yet");
    s.store.expire(10).await.expect("expire answers");
    assert_eq!(s.claim_ids(other, 10).await, [id], "the next one is the probe");
    assert!(matches!(queue(s).await.breaker, Some(BreakerState::HalfOpen { .. })));
}

async fn only_the_probe_decides(s: &Scene) {
    let node = s.join().await;
    for scope in BreakerScope::ALL {
        set(s, 1, scope).await;
        for _ in 0..5 {
            s.add_keyed("k").await;
        }
        let mut old: Vec<Lease> = s.claim(node, 3).await.into_iter().map(|claimed| claimed.lease).collect();
        s.finish(old.remove(0), failure(ErrorClass::Permanent)).await;
        s.finish(old.remove(0), failure(ErrorClass::Crash)).await;
        s.pass(RESET);
        let probe = s.claim(node, 1).await;
        assert_eq!(probe.len(), 1, "{scope:?}");
        s.finish(old.remove(0), Outcome::Success).await;
        assert!(s.claim(node, 10).await.is_empty(), "{scope:?}: old news closes nothing");
        for claimed in probe {
            s.finish(claimed.lease, Outcome::Success).await;
        }
        s.store.make_ready(100).await.expect("make_ready answers");
        let rest = s.claim(node, 10).await;
        assert_eq!(rest.len(), 2, "{scope:?}: the last one, and the retry");
        for claimed in rest {
            s.finish(claimed.lease, Outcome::Success).await;
        }
    }
}

async fn a_long_probe_stays_the_only_one(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    let ids = [s.add().await, s.add().await];
    s.pass(RESET);
    let lease = s.lease_first(node, &ids[..1]).await;
    for _ in 0..5 {
        s.pass(RESET);
        s.store.renew(node, &[lease.as_ref()]).await.expect("renew answers");
        assert_eq!(look(s, node, 10).await, (vec![], None));
    }
    s.finish(lease, Outcome::Success).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[1..]);
}

async fn each_key_has_a_breaker_of_its_own(s: &Scene) {
    let node = s.join().await;
    opened_key(s, node, "bad").await;
    let until = s.now().after(RESET);
    let [bad, good] = [s.add_keyed("bad").await, s.add_keyed("good").await];
    assert_eq!(look(s, node, 10).await, (vec![good], Some(until)));
    assert_eq!(s.waits(bad).await, OPEN);
    let shown = one(keys(s).await);
    assert_eq!((shown.key.as_str(), shown.shut.until), ("bad", Some(until)));
    assert_eq!((shown.shut.why, shown.breaker), (Wait::BreakerOpen, Some(BreakerState::Open { until })));
    assert_eq!(queue(s).await.breaker, None);
}

async fn a_key_lets_one_probe_through(s: &Scene) {
    let node = s.join().await;
    opened_key(s, node, "k").await;
    let ids = [s.add_keyed("k").await, s.add_keyed("k").await, s.add_keyed("k").await];
    s.pass(RESET);
    for again in [true, false] {
        let lease = s.lease_first(node, &ids[..1]).await;
        assert!(s.claim(node, 10).await.is_empty(), "one, and not one more");
        assert_eq!(s.waits(ids[1]).await, OPEN);
        if again {
            s.finish(lease, Outcome::HandedBack).await;
        } else {
            s.finish(lease, Outcome::Success).await;
        }
    }
    assert_eq!(s.claim_ids(node, 10).await, ids[1..]);
    assert!(keys(s).await.is_empty());
}

async fn what_arrives_at_an_open_key_is_parked_at_once(s: &Scene) {
    let node = s.join().await;
    opened_key(s, node, "k").await;
    assert_eq!(s.waits(s.add_keyed("k").await).await, OPEN);
}

async fn tasks_without_a_key_have_no_breaker_of_a_key(s: &Scene) {
    let node = s.join().await;
    set(s, 1, BreakerScope::Key).await;
    for _ in 0..3 {
        let lease = s.running(node).await;
        s.finish(lease, failure(ErrorClass::Transient)).await;
    }
    let id = s.add().await;
    assert_eq!(look(s, node, 10).await, (vec![id], None));
}

async fn a_success_whose_start_was_not_written_counts_too(s: &Scene) {
    let node = s.join().await;
    for scope in BreakerScope::ALL {
        set(s, 1, scope).await;
        s.add_with(|task| (task.limit_key, task.overrides.attempts) = (Some("k".to_owned()), Some(1))).await;
        fail(s, node).await;
        let ids: [TaskId; 2] = [s.add_keyed("k").await, s.add_keyed("k").await];
        s.pass(RESET);
        let lease = s.lease_first(node, &ids[..1]).await;
        s.finish_run(lease, Outcome::Success, TICK).await;
        let mut rest = s.claim(node, 10).await;
        assert_eq!(rest.len(), 1, "{scope:?}: it is closed");
        s.finish_run(rest.remove(0).lease, Outcome::Success, TICK).await;
    }
}

async fn by_hand_it_opens_until_a_moment_or_a_reset(s: &Scene) {
    let node = s.join().await;
    set(s, 5, BreakerScope::Queue).await;
    let ids = [s.add().await, s.add().await];
    let until = s.in_ms(50);
    s.configure(QueueChange::OpenBreaker(Some(until))).await;
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Open { until }));
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    s.pass(Duration::from_millis(50));
    let probe = s.lease_first(node, &ids[..1]).await;
    s.configure(QueueChange::OpenBreaker(None)).await;
    s.finish(probe, Outcome::Success).await;
    s.pass(Duration::from_secs(50));
    assert_eq!(look(s, node, 10).await, (vec![], None), "it was opened again meanwhile");
    s.configure(QueueChange::ResetBreaker).await;
    assert_eq!(s.claim_ids(node, 10).await, ids[1..]);
}

async fn by_hand_a_key_opens_until_a_moment_or_a_reset(s: &Scene) {
    let node = s.join().await;
    let key = || "k".to_owned();
    s.configure(QueueChange::OpenKeyBreaker { key: key(), until: None }).await;
    let [id, other] = [s.add_keyed("k").await, s.add_keyed("other").await];
    assert_eq!(look(s, node, 10).await, (vec![other], None));
    assert_eq!(s.waits(id).await, OPEN);
    assert_eq!(one(keys(s).await).shut.until, None);
    let until = s.in_ms(50);
    s.configure(QueueChange::OpenKeyBreaker { key: key(), until: Some(until) }).await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    s.configure(QueueChange::ResetKeyBreaker(key())).await;
    assert_eq!(s.claim_ids(node, 10).await, [id]);
    assert!(keys(s).await.is_empty());
}

async fn by_hand_it_works_without_a_policy_too(s: &Scene) {
    let node = s.join().await;
    let ids = [s.add().await, s.add().await];
    let until = s.in_ms(50);
    s.configure(QueueChange::OpenBreaker(Some(until))).await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(until)));
    s.pass(Duration::from_millis(50));
    assert_eq!(s.claim_ids(node, 10).await, ids, "no probe was asked for");
}

async fn a_reset_rings(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    s.add().await;
    let mut bell = s.store.wakeups();
    bell.arm();
    s.configure(QueueChange::ResetBreaker).await;
    heard("a reset", &mut bell).await;
    assert_eq!(s.claim(node, 10).await.len(), 1);
    opened_key(s, node, "k").await;
    s.add_keyed("k").await;
    bell.arm();
    s.configure(QueueChange::ResetKeyBreaker("k".to_owned())).await;
    heard("a reset of a key", &mut bell).await;
}

async fn a_closing_breaker_rings(s: &Scene) {
    let node = s.join().await;
    let mut bell = s.store.wakeups();
    opened(s, node).await;
    let ids = [s.add().await, s.add().await];
    s.pass(RESET);
    let lease = s.lease_first(node, &ids[..1]).await;
    bell.arm();
    s.finish(lease, Outcome::Success).await;
    heard("a breaker that closes", &mut bell).await;
}

async fn another_scope_begins_anew(s: &Scene) {
    let node = s.join().await;
    opened_key(s, node, "k").await;
    let id = s.add_keyed("k").await;
    set(s, 1, BreakerScope::Queue).await;
    assert_eq!(queue(s).await.breaker, Some(BreakerState::Closed));
    assert_eq!(s.claim_ids(node, 10).await, [id]);
    s.configure(QueueChange::OpenBreaker(None)).await;
    let id = s.add().await;
    s.configure(QueueChange::Breaker(None)).await;
    assert_eq!((queue(s).await.breaker, s.claim_ids(node, 10).await), (None, vec![id]));
}

async fn another_policy_keeps_the_state(s: &Scene) {
    let node = s.join().await;
    opened(s, node).await;
    s.add().await;
    set(s, 5, BreakerScope::Queue).await;
    assert_eq!(look(s, node, 10).await, (vec![], Some(s.now().after(RESET))));
}

async fn breakers_that_cannot_work_are_refused(s: &Scene) {
    let before = s.picture().await;
    let share = |failures_percent, at_least, window| BreakerPolicy {
        trip: Trip::Rate { failures_percent, at_least, window },
        reset: RESET,
    };
    let wrong = [
        ("no failures", after(0)),
        ("no time", BreakerPolicy { reset: Duration::ZERO, ..after(1) }),
        ("too long", BreakerPolicy { reset: Duration::MAX, ..after(1) }),
        ("no share", share(0, 1, RESET)),
        ("more than all", share(101, 1, RESET)),
        ("no ends", share(50, 0, RESET)),
        ("no window", share(50, 1, Duration::ZERO)),
    ];
    for (what, policy) in wrong {
        let breaker = BreakerSetting { policy, scope: BreakerScope::Queue };
        invalid(what, s.store.configure("mail", vec![QueueChange::Breaker(Some(breaker))]).await);
    }
    for change in [
        QueueChange::ResetKeyBreaker(String::new()),
        QueueChange::EndKeyHold(String::new()),
        QueueChange::OpenKeyBreaker { key: "x".repeat(1_000), until: None },
    ] {
        invalid("a key", s.store.configure("mail", vec![change]).await);
    }
    assert_eq!(s.picture().await, before, "what was refused changed nothing");
}
