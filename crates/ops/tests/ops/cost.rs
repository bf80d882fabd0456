//! Costs and budgets.

use ostler_core::{Budget, Cost, EventBody, Outcome, Usage};
use ostler_ops::cost::{CostDimension, CostRequest, of_queue, report, set_budget};
use ostler_store::Store as _;

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
