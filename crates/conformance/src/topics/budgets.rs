//! Budgets: reserved by claims, spent by attempts, settled by their ends.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    Budget, Charging, Closed, Cost, ErrorClass, EventBody, JobId, Outcome, SessionId, Spending, TaskId,
    Timestamp, Usage, Wait, day_of, day_start,
};

use super::super::scene::{QUEUE, Scene, failure, heard, invalid, one};
use super::runner::cases;
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, QueueChange, Report};
use ostler_store::jobs::{JobChange, NewJob, queue_of};
use ostler_store::views::QueueRecord;
use ostler_store::{Lease, LeaseRef, Store};

cases![
    the_first_task_runs_alone_and_then_the_median_is_reserved,
    a_reserve_holds_until_a_task_has_ended_and_then_the_median_is_reserved,
    fifty_tasks_of_ten_cents_spend_one_dollar_with_eight_workers,
    unequal_costs_pass_a_budget_by_the_excess_of_what_is_in_flight,
    a_reached_budget_pauses_the_queue_and_a_larger_one_resumes_it,
    a_pause_by_hand_outlives_a_larger_budget,
    every_end_of_an_attempt_frees_what_is_reserved,
    what_a_dead_node_spent_stays_spent,
    a_day_that_is_used_up_waits_for_the_next,
    a_task_that_costs_more_than_a_day_pauses_the_queue,
    tasks_of_a_job_are_charged_to_the_pool_that_serves_it,
    two_stores_do_not_pass_a_budget_together,
    a_settlement_wakes_claims,
    a_removed_budget_is_forgotten,
    another_pool_is_charged_for_what_comes_after,
    a_removed_job_leaves_nothing_behind,
    a_budget_that_limits_nothing_is_refused,
];

const fn cents(cents: u64) -> Cost {
    Cost::from_nanos(cents * 10_000_000)
}

const fn total(limit: Cost) -> Budget {
    Budget { total: Some(limit), per_day: None, reserve: None }
}

async fn set(s: &Scene, queue: &str, budget: Option<Budget>) {
    s.store.configure(queue, vec![QueueChange::Budget(budget)]).await.expect("configure answers");
}

async fn record(s: &Scene, queue: &str) -> QueueRecord {
    let survey = s.store.survey().await.expect("survey answers");
    survey.queues.into_iter().find(|record| record.name == queue).expect("there is such a queue")
}

async fn spending(s: &Scene, queue: &str) -> Spending {
    record(s, queue).await.spending.expect("the queue has a budget")
}

async fn spend(store: &dyn Store, lease: LeaseRef, cost: Cost) {
    let usage = Usage { model: Some("big".to_owned()), cost: Some(cost), ..Usage::default() };
    store.append(lease, vec![EventBody::Usage(usage)]).await.expect("append answers");
}

/// Runs a task that costs this, and ends it.
async fn run(s: &Scene, lease: Lease, cost: Cost, outcome: Outcome) {
    s.start(&lease).await;
    spend(s.store.as_ref(), lease.as_ref(), cost).await;
    s.finish(lease, outcome).await;
}

async fn leases(s: &Scene, node: SessionId, limit: usize) -> Vec<Lease> {
    s.claim(node, limit).await.into_iter().map(|claimed| claimed.lease).collect()
}

async fn add(s: &Scene, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(s.add().await);
    }
    ids
}

/// Claims tasks of a queue: their leases, and when there may be more.
pub(super) async fn claim_in(
    store: &dyn Store,
    node: SessionId,
    queue: &str,
    limit: usize,
) -> (Vec<Lease>, Option<Timestamp>) {
    let claim = Claim { session: node, queue: queue.to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("a claim is answered") {
        ClaimAnswer::Tasks { tasks, next } => {
            (tasks.into_iter().map(|claimed| claimed.lease).collect(), next)
        }
        ClaimAnswer::SessionEnded => panic!("the session is alive"),
    }
}

async fn the_first_task_runs_alone_and_then_the_median_is_reserved(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(total(cents(100)))).await;
    add(s, 10).await;
    let first = one(leases(s, node, 8).await);
    assert_eq!(leases(s, node, 8).await, [], "the first one runs alone");
    let (shut, none) = (record(s, QUEUE).await.shut, Kinds::Any);
    assert_eq!(shut, Some(Closed { why: Wait::Budget, until: None }));
    assert_eq!(s.store.backlog(QUEUE, &none, 8).await, Ok(0));
    run(s, first, cents(30), Outcome::Success).await;
    let kept =
        Spending { spent: cents(30), spent_today: cents(30), recent: vec![cents(30)], ..Spending::default() };
    assert_eq!(spending(s, QUEUE).await, Spending { day: day_of(s.now()), ..kept });
    assert_eq!(leases(s, node, 8).await.len(), 2, "thirty cents each are reserved of seventy");
    let now = spending(s, QUEUE).await;
    assert_eq!((now.reserved, now.in_flight), (cents(60), 2));
}

async fn a_reserve_holds_until_a_task_has_ended_and_then_the_median_is_reserved(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(Budget { reserve: Some(cents(10)), ..total(cents(100)) })).await;
    add(s, 20).await;
    let first = s.claim(node, 2).await;
    assert_eq!((first.len(), spending(s, QUEUE).await.reserved), (2, cents(20)));
    for claimed in first {
        assert_eq!(claimed.charging, Charging::Charged);
        run(s, claimed.lease, cents(20), Outcome::Success).await;
    }
    assert_eq!(leases(s, node, 8).await.len(), 3, "twenty cents each are reserved of sixty");
}

async fn fifty_tasks_of_ten_cents_spend_one_dollar_with_eight_workers(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(total(cents(100)))).await;
    add(s, 50).await;
    let mut flying: Vec<Lease> = Vec::new();
    let mut done = 0;
    loop {
        flying.extend(leases(s, node, 8 - flying.len()).await);
        assert!(flying.len() <= 8);
        if flying.is_empty() {
            break;
        }
        run(s, flying.remove(0), cents(10), Outcome::Success).await;
        done += 1;
    }
    assert_eq!((done, spending(s, QUEUE).await.spent), (10, cents(100)));
    let paused = record(s, QUEUE).await.settings.paused.expect("it is paused");
    assert_eq!(paused, "its budget of $1.00 is reached: $1.00 spent, and one task is expected to cost $0.10");
}

async fn unequal_costs_pass_a_budget_by_the_excess_of_what_is_in_flight(s: &Scene) {
    let node = s.join().await;
    let budget = Budget { reserve: Some(cents(20)), ..total(cents(100)) };
    set(s, QUEUE, Some(budget)).await;
    add(s, 10).await;
    let flying = leases(s, node, 8).await;
    assert_eq!(flying.len(), 5, "five times twenty cents are reserved");
    for (lease, cost) in flying.into_iter().zip([10, 20, 30, 70, 20]) {
        run(s, lease, cents(cost), Outcome::Success).await;
    }
    assert_eq!(leases(s, node, 8).await, []);
    let now = spending(s, QUEUE).await;
    assert_eq!((now.spent, now.reserved, now.in_flight), (cents(150), cents(0), 0));
    assert_eq!(now.excess(&budget), cents(50), "ten and fifty cents above what was reserved, ten below");
}

async fn a_reached_budget_pauses_the_queue_and_a_larger_one_resumes_it(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(total(cents(10)))).await;
    add(s, 3).await;
    run(s, s.lease(node).await, cents(10), Outcome::Success).await;
    assert!(record(s, QUEUE).await.settings.paused.is_none(), "no claim has asked yet");
    assert_eq!(leases(s, node, 8).await, []);
    assert!(record(s, QUEUE).await.settings.paused.is_some());
    set(s, QUEUE, Some(total(cents(15)))).await;
    assert!(record(s, QUEUE).await.settings.paused.is_some(), "too little for another task");
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    set(s, QUEUE, Some(total(cents(20)))).await;
    heard("a larger budget", &mut wakeups).await;
    assert!(record(s, QUEUE).await.settings.paused.is_none());
    run(s, one(leases(s, node, 8).await), cents(10), Outcome::Success).await;
    assert_eq!(spending(s, QUEUE).await.spent, cents(20), "it goes on from what was spent");
}

async fn a_pause_by_hand_outlives_a_larger_budget(s: &Scene) {
    set(s, QUEUE, Some(total(cents(10)))).await;
    s.configure(QueueChange::Pause("lunch".to_owned())).await;
    set(s, QUEUE, Some(total(cents(20)))).await;
    assert_eq!(record(s, QUEUE).await.settings.paused.as_deref(), Some("lunch"));
}

async fn every_end_of_an_attempt_frees_what_is_reserved(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(Budget { reserve: Some(cents(10)), ..total(cents(1_000)) })).await;
    add(s, 7).await;
    let mut held = leases(s, node, 7).await.into_iter();
    let mut next = || held.next().expect("seven tasks are leased");
    assert_eq!(spending(s, QUEUE).await.reserved, cents(70));
    let free = async |count: u64| {
        let now = spending(s, QUEUE).await;
        assert_eq!((now.reserved, now.in_flight), (cents(10 * count), count));
    };
    s.finish_run(next(), Outcome::Success, Duration::ZERO).await;
    free(6).await;
    run(s, next(), cents(1), failure(ErrorClass::Transient)).await;
    free(5).await;
    run(s, next(), cents(1), failure(ErrorClass::Crash)).await;
    free(4).await;
    let handed_back = next();
    s.store.finish(vec![Report::hand_back(handed_back)]).await.expect("finish answers");
    free(3).await;
    let cancelled = next();
    s.cancel(cancelled.task()).await;
    s.finish(cancelled, Outcome::Cancelled).await;
    free(2).await;
    s.store.leave(node).await.expect("leave answers");
    free(0).await;
    let now = spending(s, QUEUE).await;
    assert_eq!((now.spent, now.recent), (cents(2), vec![cents(0), cents(1), cents(1)]));
}

async fn what_a_dead_node_spent_stays_spent(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(Budget { reserve: Some(cents(10)), ..total(cents(50)) })).await;
    add(s, 5).await;
    let flying = leases(s, node, 3).await;
    for (lease, cost) in flying.iter().zip([4, 25]) {
        s.start(lease).await;
        spend(s.store.as_ref(), lease.as_ref(), cents(cost)).await;
    }
    let now = spending(s, QUEUE).await;
    assert_eq!((now.spent, now.reserved), (cents(29), cents(16)), "six are left of one, ten of the third");
    s.fixture.kill(node).await;
    s.store.expire(10).await.expect("expire answers");
    let now = spending(s, QUEUE).await;
    assert_eq!((now.spent, now.reserved, now.in_flight), (cents(29), cents(0), 0));
    let other = s.join().await;
    assert_eq!(leases(s, other, 5).await.len(), 2, "twenty-one cents are left");
}

async fn a_day_that_is_used_up_waits_for_the_next(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(Budget { per_day: Some(cents(25)), ..Budget::default() })).await;
    add(s, 5).await;
    for _ in 0..2 {
        run(s, one(leases(s, node, 1).await), cents(10), Outcome::Success).await;
    }
    let midnight = day_start(day_of(s.now()) + 1);
    let (none, next) = claim_in(s.store.as_ref(), node, QUEUE, 5).await;
    assert_eq!((none, next), (Vec::new(), Some(midnight)));
    let record = record(s, QUEUE).await;
    assert_eq!(record.shut, Some(Closed { why: Wait::Budget, until: Some(midnight) }));
    assert_eq!(record.settings.paused, None, "it goes on by itself");
    s.pass(midnight.since(s.now()));
    let other = s.join().await;
    assert_eq!(leases(s, other, 5).await.len(), 2, "a new day has twenty-five cents again");
}

async fn a_task_that_costs_more_than_a_day_pauses_the_queue(s: &Scene) {
    let node = s.join().await;
    let budget = Budget { per_day: Some(cents(5)), reserve: Some(cents(10)), total: None };
    set(s, QUEUE, Some(budget)).await;
    s.add().await;
    assert_eq!(leases(s, node, 1).await, []);
    let reason = "its budget of $0.05 a day is too small: one task is expected to cost $0.10";
    assert_eq!(record(s, QUEUE).await.settings.paused.as_deref(), Some(reason));
}

const POOL: &str = "agents";

async fn serve(s: &Scene, queue: &str, pool: Option<&str>) {
    let change = QueueChange::ServedBy(pool.map(str::to_owned));
    s.store.configure(queue, vec![change]).await.expect("configure answers");
}

async fn add_to(s: &Scene, queue: &str, count: usize) {
    for _ in 0..count {
        s.add_with(|task| queue.clone_into(&mut task.queue)).await;
    }
}

async fn tasks_of_a_job_are_charged_to_the_pool_that_serves_it(s: &Scene) {
    let node = s.join().await;
    let reserve = Some(cents(10));
    set(s, POOL, Some(Budget { reserve, ..total(cents(50)) })).await;
    set(s, "job a", Some(Budget { reserve, ..total(cents(20)) })).await;
    for job in ["job a", "job b"] {
        serve(s, job, Some(POOL)).await;
        add_to(s, job, 10).await;
    }
    add_to(s, POOL, 10).await;
    let store = s.store.as_ref();
    let first = claim_in(store, node, "job a", 8).await.0;
    assert_eq!(first.len(), 2, "as its own budget allows");
    assert_eq!(claim_in(store, node, "job b", 8).await.0.len(), 3, "as the pool's allows");
    assert_eq!(claim_in(store, node, POOL, 8).await.0, []);
    assert_eq!(record(s, "job b").await.shut, Some(Closed { why: Wait::Budget, until: None }));
    for lease in first {
        run(s, lease, cents(40), Outcome::Success).await;
    }
    assert_eq!((spending(s, POOL).await.spent, spending(s, "job a").await.spent), (cents(80), cents(80)));
    assert_eq!(record(s, "job b").await.spending, None, "it has no budget of its own");
    s.store.leave(node).await.expect("leave answers");
    let other = s.join().await;
    assert_eq!(claim_in(store, other, "job b", 8).await.0, []);
    assert!(record(s, POOL).await.settings.paused.is_some(), "the pool's budget is reached");
    assert_eq!(record(s, "job b").await.settings.paused, None);
    set(s, POOL, Some(Budget { reserve, ..total(cents(160)) })).await;
    assert_eq!(claim_in(store, other, "job b", 8).await.0.len(), 2, "a larger one is for all that it serves");
}

async fn two_stores_do_not_pass_a_budget_together(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(Budget { reserve: Some(cents(10)), ..total(cents(100)) })).await;
    add(s, 40).await;
    let second = s.fixture.second().await;
    let claims = |store: Arc<dyn Store>| async move {
        let mut taken = Vec::new();
        for _ in 0..6 {
            taken.extend(claim_in(store.as_ref(), node, QUEUE, 2).await.0);
        }
        taken
    };
    let (one, other) = tokio::join!(claims(Arc::clone(&s.store)), claims(Arc::clone(&second)));
    assert_eq!(one.len() + other.len(), 10, "{} and {}", one.len(), other.len());
    let spends = |store: Arc<dyn Store>, leases: Vec<Lease>| async move {
        for lease in leases {
            spend(store.as_ref(), lease.as_ref(), cents(10)).await;
            store
                .finish(vec![Report {
                    lease,
                    ran: None,
                    outcome: Outcome::Success,
                    output: None,
                    reading: None,
                }])
                .await
                .expect("finish answers");
        }
    };
    tokio::join!(spends(Arc::clone(&s.store), one), spends(second, other));
    let now = spending(s, QUEUE).await;
    assert_eq!((now.spent, now.reserved, now.in_flight), (cents(100), cents(0), 0));
}

async fn a_settlement_wakes_claims(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(total(cents(100)))).await;
    add(s, 2).await;
    let first = one(leases(s, node, 8).await);
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    run(s, first, cents(1), Outcome::Success).await;
    heard("a settlement", &mut wakeups).await;
}

async fn a_removed_budget_is_forgotten(s: &Scene) {
    let node = s.join().await;
    set(s, QUEUE, Some(total(cents(10)))).await;
    add(s, 4).await;
    run(s, s.lease(node).await, cents(10), Outcome::Success).await;
    assert_eq!(leases(s, node, 8).await, [], "it is reached");
    set(s, QUEUE, None).await;
    let held = s.claim(node, 1).await.into_iter().next().expect("a task is claimed");
    assert_eq!(held.charging, Charging::Free);
    assert_eq!((record(s, QUEUE).await.spending, record(s, QUEUE).await.settings.paused), (None, None));
    set(s, QUEUE, Some(total(cents(10)))).await;
    run(s, held.lease, cents(5), Outcome::Success).await;
    assert_eq!(spending(s, QUEUE).await, Spending::default(), "what was claimed before is not charged");
    assert_eq!(leases(s, node, 8).await.len(), 1);
}

async fn another_pool_is_charged_for_what_comes_after(s: &Scene) {
    let node = s.join().await;
    set(s, POOL, Some(Budget { reserve: Some(cents(10)), ..total(cents(50)) })).await;
    serve(s, QUEUE, Some(POOL)).await;
    add(s, 3).await;
    let held = leases(s, node, 3).await;
    spend(s.store.as_ref(), held[0].as_ref(), cents(4)).await;
    serve(s, QUEUE, None).await;
    let now = spending(s, POOL).await;
    assert_eq!((now.spent, now.reserved, now.in_flight), (cents(4), cents(0), 0));
    for lease in held {
        run(s, lease, cents(10), Outcome::Success).await;
    }
    assert_eq!(spending(s, POOL).await.spent, cents(4));
}

async fn a_removed_job_leaves_nothing_behind(s: &Scene) {
    let id = JobId(s.task_id().0);
    let new =
        NewJob { id, name: "sort".to_owned(), fingerprint: "f".to_owned(), spec: "{}".to_owned(), items: 1 };
    for _ in 0..2 {
        s.store.put_job(new.clone()).await.expect("put_job answers");
        let (node, queue) = (s.join().await, queue_of(id));
        set(s, &queue, Some(total(cents(100)))).await;
        assert_eq!(spending(s, &queue).await, Spending::default());
        add_to(s, &queue, 1).await;
        let lease = one(claim_in(s.store.as_ref(), node, &queue, 1).await.0);
        let task = lease.task();
        run(s, lease, cents(10), Outcome::Success).await;
        s.store.prune(ostler_store::calls::Prune::Tasks(vec![task])).await.expect("prune answers");
        let removed = s.store.change_job(id, JobChange::Remove).await;
        assert_eq!(removed, Ok(ostler_store::jobs::JobAnswer::Done));
    }
}

async fn a_budget_that_limits_nothing_is_refused(s: &Scene) {
    for budget in [
        Budget::default(),
        Budget { reserve: Some(cents(1)), ..Budget::default() },
        total(cents(0)),
        Budget { per_day: Some(cents(0)), ..total(cents(1)) },
        Budget { reserve: Some(cents(0)), ..total(cents(1)) },
    ] {
        invalid(
            &format!("{budget:?}"),
            s.store.configure(QUEUE, vec![QueueChange::Budget(Some(budget))]).await,
        );
    }
    let nameless = QueueChange::ServedBy(Some(String::new()));
    invalid("a pool without a name", s.store.configure(QUEUE, vec![nameless]).await);
}
