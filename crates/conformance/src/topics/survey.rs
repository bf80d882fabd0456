//! Survey: the submitted count is always the sum of the six state counts, and totals only rise.

use std::time::Duration;

use ostler_core::{ErrorClass, OnConflict, Outcome, Seed, StateName};

use super::super::scene::{KIND, QUEUE, Scene, TICK, TTL, failure};
use super::runner::cases;
use ostler_store::Lease;
use ostler_store::RECENT_RUNS;
use ostler_store::calls::{NewTask, Prune, Retention};
use ostler_store::unique::Unique;
use ostler_store::views::{Counts, LaneRecord, Survey};
use ostler_store::{Stats, Totals};

cases![
    an_empty_store_has_nothing,
    lanes_are_shown_in_order_of_name,
    every_state_is_counted,
    the_high_water_is_the_most_that_waited,
    the_high_water_is_that_of_the_queue_whatever_the_kinds,
    a_replay_takes_nothing_from_the_totals,
    failed_attempts_that_are_queued_again_are_retries,
    how_long_runs_took_is_kept,
    only_the_last_runs_are_kept,
    runs_that_say_nothing_about_the_work_are_not_kept,
    submitted_is_the_sum_of_the_six_after_every_step,
];

async fn lane(s: &Scene) -> LaneRecord {
    let lanes = s.store.survey().await.expect("survey answers").lanes;
    assert_eq!(lanes.len(), 1);
    lanes.into_iter().next().expect("one lane")
}

/// The statistics of the one queue.
async fn stats(s: &Scene) -> Stats {
    Stats::of(&s.store.survey().await.expect("survey answers"), Some(QUEUE))
}

async fn an_empty_store_has_nothing(s: &Scene) {
    assert_eq!(s.store.survey().await, Ok(Survey::default()));
    assert_eq!(
        s.store.list(ostler_store::views::Filter::default(), None, 10).await.map(|page| page.tasks),
        Ok(vec![])
    );
}

async fn lanes_are_shown_in_order_of_name(s: &Scene) {
    for (queue, kind) in [("b", "x"), ("a", "y"), ("a", "x"), ("B", "x")] {
        s.add_with(|task| (task.queue, task.kind) = (queue.to_owned(), kind.to_owned())).await;
    }
    let lanes = s.store.survey().await.expect("survey answers").lanes;
    let names: Vec<_> = lanes.iter().map(|lane| (lane.queue.as_str(), lane.kind.as_str())).collect();
    assert_eq!(names, [("B", "x"), ("a", "x"), ("a", "y"), ("b", "x")]);
}

async fn every_state_is_counted(s: &Scene) {
    let node = s.join().await;
    s.completed(node).await;
    s.dead_letter(node).await;
    s.running(node).await;
    s.leased(node).await;
    let cancelled = s.add().await;
    s.cancel(cancelled).await;
    s.add().await;
    s.add_with(|task| task.run_at = Some(s.in_ms(5))).await;
    let lane = lane(s).await;
    assert_eq!((lane.queue.as_str(), lane.kind.as_str()), (QUEUE, KIND));
    let expected = Counts { queued: 2, claimed: 1, running: 1, completed: 1, failed: 1, cancelled: 1 };
    assert_eq!(lane.counts, expected);
    assert_eq!(lane.counts.submitted(), 7);
}

async fn the_high_water_is_the_most_that_waited(s: &Scene) {
    let node = s.join().await;
    s.store.enqueue(vec![s.draft(), s.draft(), s.draft()]).await.expect("enqueue answers");
    s.claim(node, 2).await;
    s.add().await;
    assert_eq!((stats(s).await.queue_high_water, s.counts().await.queued), (3, 2));
    s.pass(TTL + TICK);
    s.store.expire(100).await.expect("expire answers");
    assert_eq!(stats(s).await.queue_high_water, 4, "what comes back waits too");
}

async fn the_high_water_is_that_of_the_queue_whatever_the_kinds(s: &Scene) {
    let node = s.join().await;
    let of_kind = |kind: &str| NewTask { kind: kind.to_owned(), ..s.draft() };
    let ids = s.store.enqueue(vec![of_kind("b"), of_kind("a"), of_kind("b")]).await.expect("enqueue answers");
    s.add_with(|task| task.queue = "other".to_owned()).await;
    assert_eq!(stats(s).await.queue_high_water, 3);
    s.claim(node, 2).await;
    s.enqueue(of_kind("a")).await;
    assert_eq!(stats(s).await.queue_high_water, 3, "two wait now");
    s.store.enqueue(vec![of_kind("c"), of_kind("a")]).await.expect("enqueue answers");
    assert_eq!((ids.len(), stats(s).await.queue_high_water), (3, 4));
    // A task that replaces one of another kind counts once.
    let keyed = |kind: &str, on_conflict| {
        let unique = Some(Unique { on_conflict, ..Unique::new("one") });
        NewTask { unique, ..of_kind(kind) }
    };
    s.enqueue(keyed("c", OnConflict::Keep)).await;
    assert_eq!(stats(s).await.queue_high_water, 5);
    s.store.enqueue(vec![keyed("a", OnConflict::Replace)]).await.expect("enqueue answers");
    s.store.enqueue(vec![keyed("b", OnConflict::Replace)]).await.expect("enqueue answers");
    assert_eq!((stats(s).await.queue_high_water, stats(s).await.totals.submitted), (5, 7));
}

async fn a_replay_takes_nothing_from_the_totals(s: &Scene) {
    let node = s.join().await;
    let id = s.dead_letter(node).await;
    let cancelled = s.add_with(|task| task.run_at = Some(s.in_ms(5))).await;
    s.cancel(cancelled).await;
    let before = stats(s).await;
    assert_eq!((before.tasks.failed, before.tasks.cancelled), (1, 1));
    let expected = Totals { submitted: 2, failed: 1, cancelled: 1, attempts: 1, ..Totals::default() };
    assert_eq!(before.totals, expected);
    s.replay(cancelled).await;
    s.cancel(cancelled).await;
    s.replay(id).await;
    assert_eq!(stats(s).await.tasks.failed, 0, "nothing is in that state");
    assert_eq!(stats(s).await.totals, Totals { cancelled: 2, replayed: 2, ..expected });
    let lease = s.run(node).await;
    s.finish(lease, failure(ErrorClass::Permanent)).await;
    let failed_again = Totals { failed: 2, cancelled: 2, replayed: 2, attempts: 2, ..expected };
    assert_eq!((stats(s).await.tasks.failed, stats(s).await.totals), (1, failed_again));
    s.replay(id).await;
    let lease = s.lease(node).await;
    s.finish_run(lease, Outcome::Success, TICK).await;
    let over = Totals { completed: 1, replayed: 3, attempts: 3, ..failed_again };
    assert_eq!(stats(s).await.totals, over);
    s.store.prune(Prune::Tasks(vec![id, cancelled])).await.expect("prune answers");
    assert_eq!(stats(s).await.totals, over, "what is dropped stays counted");
}

async fn failed_attempts_that_are_queued_again_are_retries(s: &Scene) {
    let node = s.join().await;
    s.add_with(|task| task.overrides.attempts = Some(3)).await;
    // Not failures of the task: neither a retry nor its last attempt.
    for outcome in [Outcome::HandedBack, failure(ErrorClass::RateLimited), Outcome::NodeDied] {
        let lease = s.run(node).await;
        s.finish(lease, outcome).await;
        s.pass(TTL / 2);
        s.store.renew(node, &[]).await.expect("renew answers");
        s.store.make_ready(100).await.expect("make_ready answers");
    }
    assert_eq!((stats(s).await.totals.attempts, stats(s).await.totals.retried), (3, 0));
    for (class, retried, failed) in
        [(ErrorClass::Transient, 1, 0), (ErrorClass::Crash, 2, 0), (ErrorClass::Timeout, 2, 1)]
    {
        let lease = s.lease(node).await;
        s.finish_run(lease, failure(class), TICK).await;
        let totals = stats(s).await.totals;
        assert_eq!((totals.retried, totals.failed), (retried, failed), "{class:?}");
        s.pass(TTL / 2);
        s.store.renew(node, &[]).await.expect("renew answers");
        s.store.make_ready(100).await.expect("make_ready answers");
    }
    assert_eq!(stats(s).await.totals.attempts, 6);
}

async fn how_long_runs_took_is_kept(s: &Scene) {
    let node = s.join().await;
    for (ms, outcome) in [(30, Outcome::Success), (10, failure(ErrorClass::Permanent)), (0, Outcome::Success)]
    {
        let lease = s.running(node).await;
        s.pass(Duration::from_millis(ms));
        s.finish(lease, outcome).await;
    }
    let lease = s.leased(node).await;
    s.finish_run(lease, Outcome::Success, Duration::from_millis(77)).await;
    assert_eq!(lane(s).await.recent_ms, [30, 10, 0, 77]);
}

async fn only_the_last_runs_are_kept(s: &Scene) {
    let node = s.join().await;
    for ms in 0..RECENT_RUNS as u64 + 5 {
        let lease = s.leased(node).await;
        s.finish_run(lease, Outcome::Success, Duration::from_millis(ms)).await;
    }
    let expected: Vec<u32> = (5..RECENT_RUNS as u32 + 5).collect();
    assert_eq!(lane(s).await.recent_ms, expected);
}

async fn runs_that_say_nothing_about_the_work_are_not_kept(s: &Scene) {
    let node = s.join().await;
    for outcome in [Outcome::Cancelled, Outcome::HandedBack, Outcome::NodeDied] {
        s.add().await;
        let lease = s.claim(node, 1).await.remove(0).lease;
        s.start(&lease).await;
        s.finish(lease, outcome).await;
    }
    assert_eq!(lane(s).await.recent_ms, Vec::<u32>::new());
}

async fn submitted_is_the_sum_of_the_six_after_every_step(s: &Scene) {
    let node = s.join().await;
    let mut chance = Seed::new(11);
    let mut submitted = 0;
    let mut ids = Vec::new();
    let mut held: Vec<Lease> = Vec::new();
    let mut before = Totals::default();
    let keep = Retention { completed: Duration::ZERO, failed: Duration::ZERO, most: 2, batch: 3 };
    for _ in 0..120 {
        s.pass(TICK);
        match chance.below(8) {
            0 | 1 => {
                ids.push(s.add().await);
                submitted += 1;
            }
            2 => held.extend(s.claim(node, 2).await.into_iter().map(|claimed| claimed.lease)),
            3 if !held.is_empty() => {
                s.finish(held.remove(0), Outcome::Success).await;
            }
            4 if !held.is_empty() => {
                s.finish(held.remove(0), failure(ErrorClass::Permanent)).await;
            }
            5 if !ids.is_empty() => {
                let at = usize::try_from(chance.below(ids.len() as u64)).unwrap_or(0);
                s.cancel(ids[at]).await;
            }
            6 if !ids.is_empty() => {
                let at = usize::try_from(chance.below(ids.len() as u64)).unwrap_or(0);
                s.replay(ids[at]).await;
            }
            7 => {
                s.store.prune(Prune::Retention(keep)).await.expect("prune answers");
            }
            _ => {}
        }
        let mut counts = s.counts().await;
        assert_eq!(counts.submitted(), submitted, "{counts:?}");
        let totals = stats(s).await.totals;
        assert_eq!(totals.submitted, submitted);
        assert!(rises(&before, &totals), "totals only rise: {before:?}, then {totals:?}");
        before = totals;
        let listed = s.picture().await.tasks;
        for state in [StateName::Queued, StateName::Claimed, StateName::Running] {
            let seen = listed.iter().filter(|(detail, _)| detail.task.state.name() == state).count() as u64;
            assert_eq!(*counts.of(state), seen, "{state:?}");
        }
    }
}

/// Whether no total has fallen.
fn rises(before: &Totals, after: &Totals) -> bool {
    let numbers = |totals: &Totals| {
        let Totals { submitted, completed, failed, cancelled, attempts, retried, replayed } = *totals;
        [submitted, completed, failed, cancelled, attempts, retried, replayed]
    };
    numbers(before).iter().zip(numbers(after)).all(|(before, after)| *before <= after)
}
