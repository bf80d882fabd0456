//! Costs: added up when attempts report them, and kept when the tasks are gone.

use std::time::Duration;

use ostler_core::{Cost, EventBody, Outcome, Usage, UsageSource, day_of};

use super::super::scene::{QUEUE, Scene, failure, invalid};
use super::runner::cases;
use ostler_core::ErrorClass;
use ostler_store::calls::{Prune, QueueChange, Retention};
use ostler_store::costs::{CostBy, CostKey, CostQuery, CostRecord, CostSums, MAX_COST_DAYS};
use ostler_store::{LeaseRef, MAX_PAGE};

cases![
    costs_are_added_up_by_every_dimension,
    costs_outlive_tasks_and_are_kept_for_years,
    a_span_of_days_and_a_queue_narrow_them,
    costs_of_tasks_and_attempts_are_those_of_stored_tasks,
    an_estimated_cost_is_marked,
    a_page_is_bounded,
];

const DAY: Duration = Duration::from_secs(86_400);

fn usage(model: &str, tokens: u64, nanos: Option<u64>) -> Usage {
    let model = Some(model.to_owned());
    Usage {
        model,
        input_tokens: tokens,
        output_tokens: 1,
        cost: nanos.map(Cost::from_nanos),
        ..Usage::default()
    }
}

async fn spend(s: &Scene, lease: LeaseRef, all: Vec<Usage>) {
    let events = all.into_iter().map(EventBody::Usage).collect();
    s.store.append(lease, events).await.expect("append answers");
}

const fn all(by: CostBy) -> CostQuery {
    CostQuery { by, since: None, until: None, queue: None, limit: MAX_PAGE }
}

async fn costs(s: &Scene, query: CostQuery) -> Vec<CostRecord> {
    s.store.costs(query).await.expect("costs answers")
}

/// What is asked by name, with runs and cost.
async fn named(s: &Scene, by: CostBy) -> Vec<(String, u64, u64)> {
    let name = |record: CostRecord| {
        let CostKey::Name(name) = record.key else { panic!("a name, not {:?}", record.key) };
        (name, record.sums.runs, record.sums.cost.nanos())
    };
    costs(s, all(by)).await.into_iter().map(name).collect()
}

fn row(name: &str, runs: u64, nanos: u64) -> (String, u64, u64) {
    (name.to_owned(), runs, nanos)
}

async fn costs_are_added_up_by_every_dimension(s: &Scene) {
    let node = s.join().await;
    assert_eq!(costs(s, all(CostBy::Day)).await, []);
    s.configure(QueueChange::ServedBy(Some("agents".to_owned()))).await;
    let lease = s.running(node).await;
    spend(s, lease.as_ref(), vec![usage("big", 10, Some(500)), usage("small", 2, Some(7))]).await;
    spend(s, lease.as_ref(), vec![usage("small", 3, None)]).await;
    s.finish(lease, Outcome::Success).await;
    s.pass(DAY);
    let node = s.join().await;
    s.add_with(|task| "other".clone_into(&mut task.queue)).await;
    let claim = ostler_store::calls::Claim { queue: "other".to_owned(), ..s.asks(node, 1) };
    let answer = s.store.claim(claim).await.expect("claim answers");
    let ostler_store::calls::ClaimAnswer::Tasks { mut tasks, .. } = answer else { panic!("it is alive") };
    let lease = tasks.remove(0).lease;
    spend(s, lease.as_ref(), vec![usage("small", 1, Some(3))]).await;
    s.finish(lease, Outcome::Success).await;
    assert_eq!(named(s, CostBy::Queue).await, [row(QUEUE, 1, 507), row("other", 1, 3)]);
    assert_eq!(named(s, CostBy::Pool).await, [row("agents", 1, 507), row("other", 1, 3)]);
    assert_eq!(named(s, CostBy::Model).await, [row("big", 1, 500), row("small", 1, 10)]);
    assert_eq!(named(s, CostBy::Account).await, [row("", 2, 510)]);
    let today = day_of(s.now());
    let days = costs(s, all(CostBy::Day)).await;
    let shown: Vec<_> = days.iter().map(|record| (record.key.clone(), record.sums.cost.nanos())).collect();
    assert_eq!(shown, [(CostKey::Day(today - 1), 507), (CostKey::Day(today), 3)]);
    let first = CostSums {
        runs: 1,
        input_tokens: 15,
        output_tokens: 3,
        cost: Cost::from_nanos(507),
        ..CostSums::default()
    };
    assert_eq!(days[0].sums, first);
}

async fn costs_outlive_tasks_and_are_kept_for_years(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    spend(s, lease.as_ref(), vec![usage("big", 10, Some(500))]).await;
    s.finish(lease, Outcome::Success).await;
    s.store.prune(Prune::Tasks(vec![id])).await.expect("prune answers");
    assert_eq!(named(s, CostBy::Queue).await, [row(QUEUE, 1, 500)]);
    assert_eq!(costs(s, all(CostBy::Task)).await, []);
    s.pass(DAY * u32::try_from(MAX_COST_DAYS).expect("some years"));
    s.store.prune(Prune::Retention(Retention::default())).await.expect("prune answers");
    assert_eq!(named(s, CostBy::Queue).await, [row(QUEUE, 1, 500)]);
    s.pass(DAY);
    s.store.prune(Prune::Retention(Retention::default())).await.expect("prune answers");
    assert_eq!(named(s, CostBy::Queue).await, []);
}

async fn a_span_of_days_and_a_queue_narrow_them(s: &Scene) {
    let began = s.now();
    for _ in 0..3 {
        let node = s.join().await;
        let lease = s.running(node).await;
        spend(s, lease.as_ref(), vec![usage("big", 1, Some(10))]).await;
        s.finish(lease, Outcome::Success).await;
        s.pass(DAY);
    }
    let sum = async |query: CostQuery| {
        costs(s, query).await.into_iter().map(|record| record.sums.cost.nanos()).sum::<u64>()
    };
    let second = Some(began.after(DAY));
    for by in [CostBy::Queue, CostBy::Day, CostBy::Task, CostBy::Attempt] {
        assert_eq!(sum(CostQuery { since: second, ..all(by) }).await, 20, "{by:?}");
        assert_eq!(sum(CostQuery { until: second, ..all(by) }).await, 20, "{by:?}");
        assert_eq!(sum(CostQuery { since: second, until: second, ..all(by) }).await, 10, "{by:?}");
        assert_eq!(sum(CostQuery { queue: Some(QUEUE.to_owned()), ..all(by) }).await, 30, "{by:?}");
        assert_eq!(sum(CostQuery { queue: Some("other".to_owned()), ..all(by) }).await, 0, "{by:?}");
        let newest_or_first = costs(s, CostQuery { limit: 1, ..all(by) }).await;
        assert_eq!(newest_or_first.len(), 1, "{by:?}");
    }
}

async fn costs_of_tasks_and_attempts_are_those_of_stored_tasks(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let id = lease.task();
    spend(s, lease.as_ref(), vec![usage("big", 1, Some(10))]).await;
    s.finish(lease, failure(ErrorClass::Transient)).await;
    s.pass(super::super::scene::TTL);
    s.store.make_ready(10).await.expect("make_ready answers");
    let node = s.join().await;
    let lease = s.lease(node).await;
    spend(s, lease.as_ref(), vec![usage("big", 1, Some(5)), usage("small", 1, Some(1))]).await;
    // Its start and its end are one write.
    s.finish_run(lease, Outcome::Success, Duration::ZERO).await;
    let attempts = costs(s, all(CostBy::Attempt)).await;
    let shown: Vec<_> =
        attempts.iter().map(|record| (record.key.clone(), record.sums.cost.nanos())).collect();
    let attempt = |number| CostKey::Attempt { task: id, number };
    assert_eq!(shown, [(attempt(2), 6), (attempt(1), 10)]);
    let tasks = costs(s, all(CostBy::Task)).await;
    assert_eq!((tasks.len(), &tasks[0].key), (1, &CostKey::Task(id)));
    assert_eq!((tasks[0].sums.runs, tasks[0].sums.cost.nanos()), (2, 16));
}

async fn an_estimated_cost_is_marked(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let guessed = Usage { source: UsageSource::Estimated, ..usage("big", 1, Some(5)) };
    spend(s, lease.as_ref(), vec![usage("big", 1, Some(10)), guessed]).await;
    let sums = costs(s, all(CostBy::Queue)).await.remove(0).sums;
    assert_eq!((sums.cost.nanos(), sums.estimated.nanos()), (15, 5));
    let shown = s.show(lease.task()).await.attempts.remove(0).conversation.usage;
    assert_eq!(shown[0].source, UsageSource::Estimated, "a sum is estimated if a part of it is");
}

async fn a_page_is_bounded(s: &Scene) {
    let query = CostQuery { limit: MAX_PAGE + 1, ..all(CostBy::Day) };
    invalid("too many costs", s.store.costs(query).await);
}
