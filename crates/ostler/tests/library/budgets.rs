//! Budgets of the library: handlers that report what they spend.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler::{Budget, Context, Cost, CostBy, CostQuery, Usage};
use ostler_store::calls::QueueChange;
use ostler_store::{Store as _, SystemClock};
use ostler_testkit::{MAX_WAIT, scratch};

/// The polling interval.
const LOOK: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread")]
async fn handlers_spend_a_budget_and_go_on_with_a_larger_one() {
    let folder = scratch();
    let path = folder.path().join("jobs.db");
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let ask = move |(): (), ctx: Context| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            ctx.usage(Usage { cost: Cost::from_usd(0.1), ..Usage::default() }).await;
            Ok(())
        }
    };
    let budget = |usd| Budget { total: Cost::from_usd(usd), ..Budget::default() };
    let pool =
        ostler::open(&path).expect("the store opens").handle("ask", ask).workers(8).budget(budget(1.0));
    let pool = pool.start().await.expect("the pool starts");
    for _ in 0..30 {
        pool.submit("ask", &()).await.expect("it is accepted");
    }
    let store = ostler_sqlite::Sqlite::open(&path, Arc::new(SystemClock), ostler_sqlite::Options::default());
    let store = store.expect("the store opens");
    let paused = async || {
        let waiting = async {
            while store.queue_settings(pool.queue()).await.expect("it is read").paused.is_none() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, waiting).await.expect("the budget is reached");
    };
    paused().await;
    assert_eq!(asked.load(Ordering::SeqCst), 10);
    let raised = vec![QueueChange::Budget(Some(budget(2.0)))];
    store.configure(pool.queue(), raised).await.expect("it is raised");
    paused().await;
    assert_eq!(asked.load(Ordering::SeqCst), 20);
    let query = CostQuery { by: CostBy::Day, since: None, until: None, queue: None, limit: 10 };
    let costs = pool.costs(query).await.expect("they are read");
    let sum: Cost = costs.iter().map(|record| record.sums.cost).sum();
    assert_eq!(
        (Some(sum), costs.iter().map(|record| record.sums.runs).sum::<u64>()),
        (Cost::from_usd(2.0), 20)
    );
}
