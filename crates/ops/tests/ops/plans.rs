//! Plans of jobs: their tasks, and what becomes of an earlier run of the same plan.

use ostler_core::{ErrorClass, Failure, Id, JobId, Outcome, StateName};
use ostler_ops::jobs::former::{ChosenJob, FormerRuns, Superseded, choose};
use ostler_ops::jobs::plan::{JobPlan, PlanRequest, enqueue};
use ostler_ops::jobs::{Item, ItemPayload, ServedBy, UnknownPlaceholder, existing, manage};
use ostler_ops::{Missing, OpsError};
use ostler_store::Store as _;
use ostler_store::jobs::queue_of;
use ostler_store::views::TaskRef;

use crate::world::World;

fn request(items: &[&str]) -> PlanRequest {
    PlanRequest {
        name: "gzip".to_owned(),
        words: vec![b"gzip".to_vec(), b"{}".to_vec()],
        items: items.iter().map(|item| Item::plain(*item)).collect(),
        columns: Vec::new(),
        folder: "/srv".to_owned(),
        timeout_ms: None,
    }
}

fn plan(items: &[&str]) -> JobPlan {
    JobPlan::new(request(items)).expect("a plan")
}

async fn chosen(world: &World, plan: &JobPlan, runs: FormerRuns) -> ChosenJob {
    let spec = plan.spec(ServedBy::Mapper, 1, 1);
    let ids = || -> Id { world.ids.task().0 };
    choose(world.store(), plan, &spec, runs, &ids).await.expect("it is chosen")
}

/// A new job of the plan, with its tasks.
async fn started(world: &World, plan: &JobPlan) -> JobId {
    let ChosenJob::New(id, None) = chosen(world, plan, FormerRuns::Resume).await else { panic!("it is new") };
    assert_eq!(enqueue(world.store(), plan, id).await, Ok(plan.items().len() as u64));
    id
}

#[tokio::test]
async fn an_item_is_a_task_with_its_command_and_is_enqueued_once() {
    let world = World::new();
    let plan = plan(&["a b", "c"]);
    let id = started(&world, &plan).await;
    enqueue(world.store(), &plan, id).await.expect("it is repeated");
    assert_eq!(existing(world.store(), id).await.expect("it is there").counts.queued, 2);
    let first = TaskRef::Id(plan.task_id(id, 0));
    let task = world.store.show(first).await.expect("read").expect("it is there").task;
    let payload = ItemPayload::of(&task.payload).expect("an item");
    assert_eq!(payload.argv.iter().map(|word| word.shown()).collect::<Vec<_>>(), ["gzip", "a b"]);
    assert_eq!((payload.number, task.folder.as_deref()), (1, Some("/srv")));
}

#[tokio::test]
async fn a_cancelled_job_gets_no_more_tasks_and_a_removed_one_is_missed() {
    let world = World::new();
    let plan = plan(&["a"]);
    let ChosenJob::New(id, _) = chosen(&world, &plan, FormerRuns::Resume).await else { panic!("it is new") };
    manage::cancel(world.store(), "gzip").await.expect("it is cancelled");
    enqueue(world.store(), &plan, id).await.expect("there is nothing to do");
    assert_eq!(world.state(plan.task_id(id, 0)).await, None);
    manage::remove(world.store(), "gzip").await.expect("it is removed");
    let gone = enqueue(world.store(), &plan, id).await;
    assert_eq!(gone, Err(OpsError::Missing(Missing::JobRemoved(id))));
}

#[tokio::test]
async fn the_same_items_in_another_order_resume_an_unfinished_job_and_failed_ones_run_again() {
    let world = World::new();
    let id = started(&world, &plan(&["a", "b", "c"])).await;
    world.run(&queue_of(id), 1, &Outcome::Success, &[]).await;
    let failed = Outcome::Failed(Failure::new(ErrorClass::Permanent, "no"));
    world.run(&queue_of(id), 1, &failed, &[]).await;
    let same = plan(&["c", "a", "b"]);
    let ChosenJob::Resumed { found, again } = chosen(&world, &same, FormerRuns::Once).await else {
        panic!("it is resumed")
    };
    assert_eq!((found.job.id, found.counts.completed, again), (id, 1, 1));
    let other = plan(&["a", "b", "d"]);
    assert!(
        matches!(chosen(&world, &other, FormerRuns::Resume).await, ChosenJob::New(new, None) if new != id)
    );
}

#[tokio::test]
async fn a_complete_job_is_repeated_or_enough() {
    let world = World::new();
    let plan = plan(&["a"]);
    let id = started(&world, &plan).await;
    world.run(&queue_of(id), 1, &Outcome::Success, &[]).await;
    let enough = chosen(&world, &plan, FormerRuns::Once).await;
    assert!(matches!(enough, ChosenJob::Enough(found) if found.job.id == id));
    assert!(
        matches!(chosen(&world, &plan, FormerRuns::Resume).await, ChosenJob::New(new, None) if new != id)
    );
}

#[tokio::test]
async fn a_superseded_job_is_cancelled_unless_it_runs() {
    let world = World::new();
    let plan = plan(&["a", "b"]);
    let first = started(&world, &plan).await;
    let ChosenJob::New(second, Some(Superseded::Cancelled { found, items })) =
        chosen(&world, &plan, FormerRuns::Ignore).await
    else {
        panic!("it is superseded")
    };
    assert_eq!((found.job.id, items), (first, 2));
    assert_eq!(world.state(plan.task_id(first, 0)).await, Some(StateName::Cancelled));

    enqueue(world.store(), &plan, second).await.expect("they are enqueued");
    let settings = serde_json::json!({ queue_of(second): {} }).to_string();
    world.node("anna", &settings).await;
    let ChosenJob::New(_, Some(running)) = chosen(&world, &plan, FormerRuns::Ignore).await else {
        panic!("it is superseded")
    };
    assert_eq!(running, Superseded::Running { job: second, pid: std::process::id() });
    assert_eq!(world.state(plan.task_id(second, 0)).await, Some(StateName::Queued), "it is left alone");
}

#[test]
fn a_placeholder_without_a_column_makes_no_plan() {
    let words = vec![b"mail".to_vec(), b"{nme}".to_vec()];
    let refused = JobPlan::new(PlanRequest { words, ..request(&["a"]) }).err();
    assert_eq!(refused, Some(UnknownPlaceholder::NoColumns("nme".to_owned())));
}
