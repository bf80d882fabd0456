//! Costs and budgets.

use ostler_core::{Budget, Cost, EventBody, JobId, Outcome, Usage};
use ostler_ops::cost::{CostDimension, CostRequest, of_queue, report, set_budget};
use ostler_ops::jobs::create::{CreatedJob, create};
use ostler_ops::jobs::{list, manage};
use ostler_ops::queues::set_limits;
use ostler_ops::{OpsError, input};
use ostler_store::Store as _;
use ostler_store::calls::QueueChange;
use ostler_wire::input::JobInput;
use serde_json::json;

use crate::world::{QUEUE, World};

fn usage(usd: f64) -> EventBody {
    let model = Some("big".to_owned());
    EventBody::Usage(Usage { model, input_tokens: 3, cost: Cost::from_usd(usd), ..Usage::default() })
}

#[tokio::test]
async fn a_larger_budget_of_a_queue_goes_on_with_what_was_spent() {
    let world = World::new();
    let budget = |usd| Budget { total: Cost::from_usd(usd), ..Budget::default() };
    set_budget(world.store(), QUEUE, budget(0.5)).await.expect("it is set");
    world.enqueue(3).await;
    for _ in 0..3 {
        world.run(QUEUE, 1, &Outcome::Success, &[usage(0.5)]).await;
    }
    let paused = async || world.store.queue_settings(QUEUE).await.expect("it is read").paused;
    assert!(paused().await.is_some());
    let view = set_budget(world.store(), QUEUE, budget(1.0)).await.expect("it is raised");
    assert_eq!((view.spent_usd, view.expected_usd, view.over_usd), (0.5, Some(0.5), 0.0));
    assert_eq!(paused().await, None);
    world.run(QUEUE, 1, &Outcome::Success, &[usage(0.75)]).await;
    let cost = of_queue(world.store(), QUEUE).await.expect("it is read");
    assert_eq!((cost.cost_usd, cost.runs, cost.input_tokens), (1.25, 2, 6));
    let smaller = set_budget(world.store(), QUEUE, budget(1.0)).await.expect("it is set");
    assert_eq!(smaller.over_usd, 0.25);
}

#[tokio::test]
async fn costs_of_jobs_are_those_of_their_queues_and_no_others() {
    let world = World::new();
    world.enqueue(1).await;
    world.run(QUEUE, 1, &Outcome::Success, &[usage(0.5)]).await;
    let by = async |by| {
        let request = CostRequest { by, since: None, until: None, queue: None };
        report(world.store(), &request).await.expect("it is read")
    };
    assert_eq!(by(CostDimension::Job).await.costs, []);
    for dimension in CostDimension::ALL.into_iter().filter(|dimension| *dimension != CostDimension::Job) {
        let report = by(dimension).await;
        assert_eq!((report.costs.len(), report.costs[0].by), (1, dimension.name()));
        assert_eq!(report.total.cost_usd, 0.5);
    }
}

#[tokio::test]
async fn a_budget_is_refused_while_a_live_node_lacks_the_price_of_the_work() {
    let world = World::new();
    let settings = json!({"": {"unpriced:mail": "there is no price"}}).to_string();
    let node = world.node("anna", &settings).await;
    let job = |max_cost: Option<&str>| {
        let job = json!({"pool": QUEUE, "items": ["a"], "max_cost": max_cost});
        let job: JobInput = serde_json::from_value(job).expect("it is the input of a job");
        input::job(job, 1_000).expect("it is right")
    };
    let is_refused = |error: OpsError| {
        assert_eq!(error.to_string(), "a budget cannot be kept: there is no price");
        assert_eq!(error.reason(), Some("unpriced"));
    };
    let one = Budget { total: Cost::from_usd(1.0), ..Budget::default() };
    is_refused(set_budget(world.store(), QUEUE, one).await.expect_err("of a queue"));
    let changes = vec![QueueChange::Budget(Some(one))];
    is_refused(set_limits(world.store(), QUEUE, changes.clone()).await.expect_err("by hand"));
    is_refused(
        create(world.store(), job(Some("$1")), JobId(world.ids.task().0)).await.expect_err("of a job"),
    );
    assert!(list(world.store(), 9).await.expect("jobs are read").is_empty(), "nothing is stored");
    let id = JobId(world.ids.task().0);
    let made = create(world.store(), job(None), id).await.expect("without a budget");
    assert!(matches!(made, CreatedJob::Enqueued(_)), "{made:?}");
    let resumed = manage::resume(world.store(), &id.to_string(), one.total).await;
    is_refused(resumed.expect_err("of a job that is resumed"));
    manage::resume(world.store(), &id.to_string(), None).await.expect("without a budget");
    let other = set_budget(world.store(), "other", one).await;
    assert_eq!(other.expect("the cost of another pool is known").total_usd, Some(1.0));
    world.store.leave(node).await.expect("it leaves");
    set_limits(world.store(), QUEUE, changes).await.expect("no node lacks a price");
}
