//! Counts: what was submitted is always the sum of the six, whatever happens.

use std::time::Duration;

use ostler_core::{ErrorClass, Outcome, Seed, StateName};

use super::super::scene::{KIND, QUEUE, Scene, TICK, TTL, failure};
use super::runner::cases;
use crate::bounds::RECENT_RUNS;
use crate::calls::{Prune, Retention};
use crate::lease::Lease;
use crate::views::{Counts, LaneRecord, Survey};

cases![
    an_empty_store_has_nothing,
    lanes_are_shown_in_order_of_name,
    every_state_is_counted,
    the_high_water_is_the_most_that_waited,
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

async fn an_empty_store_has_nothing(s: &Scene) {
    assert_eq!(s.store.survey().await, Ok(Survey::default()));
    assert_eq!(
        s.store.list(crate::views::Filter::default(), None, 10).await.map(|page| page.tasks),
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
    assert_eq!((lane(s).await.high_water, s.counts().await.queued), (3, 2));
    s.pass(TTL + TICK);
    s.store.expire(100).await.expect("expire answers");
    assert_eq!(lane(s).await.high_water, 4, "what comes back waits too");
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
    let keep = Retention { completed: Duration::ZERO, failed: Duration::ZERO, most: 2, bite: 3 };
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
        let listed = s.picture().await.tasks;
        for state in [StateName::Queued, StateName::Claimed, StateName::Running] {
            let seen = listed.iter().filter(|(detail, _)| detail.task.state.name() == state).count() as u64;
            assert_eq!(*counts.of(state), seen, "{state:?}");
        }
    }
}
