//! Plans of jobs: their tasks, and what becomes of an earlier run of the same plan.

use std::sync::Arc;

use ostler_core::{ErrorClass, Failure, Id, JobId, Outcome, StateName};
use ostler_ops::jobs::former::{ChosenJob, FormerRuns, Superseded, choose};
use ostler_ops::jobs::pilot::{self, PilotState};
use ostler_ops::jobs::plan::{
    ItemWork, JobPlan, PlanError, PlanRequest, PoolWork, RenderPrompt, add, enqueue,
};
use ostler_ops::jobs::{
    Item, ItemOrder, ItemPayload, JobPool, ServedBy, TemplateError, UnknownPlaceholder, existing, manage,
};
use ostler_ops::{Missing, OpsError, Refusal};
use ostler_store::Store as _;
use ostler_store::jobs::queue_of;
use ostler_store::views::TaskRef;

use crate::world::World;

fn request(items: &[&str]) -> PlanRequest {
    PlanRequest {
        name: "gzip".to_owned(),
        work: ItemWork::Command(vec![b"gzip".to_vec(), b"{}".to_vec()]),
        items: items.iter().map(|item| Item::plain(*item)).collect(),
        columns: Vec::new(),
        folder: "/srv".to_owned(),
        item_folders: None,
        shell: None,
        timeout_ms: None,
        pilot: None,
        before: 0,
    }
}

fn plan(items: &[&str]) -> JobPlan {
    JobPlan::new(request(items)).expect("a plan")
}

async fn chosen(world: &World, plan: &JobPlan, runs: FormerRuns) -> ChosenJob {
    let spec = plan.spec(ServedBy::Mapper, Some(1), Some(1));
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

/// A plan of prompts for a pool, of which the first one may run before the others are approved.
fn prompts(template: &str, items: &[&str]) -> Result<JobPlan, PlanError> {
    let render = |item: &Item, number: u64, total: u64| match item.shown().as_str() {
        "strange" => Err("what is that?".to_owned()),
        item => Ok(format!("{number}/{total} {item}")),
    };
    let prompt = Some(RenderPrompt { render: Arc::new(render), order: ItemOrder::Free });
    let (name, kind) = ("docs".to_owned(), "review".to_owned());
    let pool = JobPool { name, kind, prompt: Some(template.to_owned()), ..JobPool::default() };
    let work = ItemWork::Pool(PoolWork { pool, prompt, payload_bytes: 60 });
    JobPlan::new(PlanRequest { work, pilot: Some(1), ..request(items) })
}

#[tokio::test]
async fn only_the_pilot_of_a_job_can_be_claimed_until_it_is_approved() {
    let world = World::new();
    let plan = prompts("p", &["a", "b", "c"]).expect("a plan");
    let id = started(&world, &plan).await;
    let node = world.node("anna", "{}").await;
    let claimed = async |limit| world.claim(node, &queue_of(id), limit).await.len();
    let state = async || {
        let record = existing(world.store(), id).await.expect("it is there");
        pilot::state(world.store(), &record).await.expect("it is read")
    };
    assert_eq!((state().await, claimed(3).await, claimed(3).await), (PilotState::Running, 1, 0));
    // To enqueue the items again changes nothing.
    enqueue(world.store(), &plan, id).await.expect("it is repeated");
    assert_eq!(claimed(3).await, 0);
    let approved = pilot::approve(world.store(), "gzip").await.expect("it is approved");
    assert_eq!((approved.tasks, state().await), (3, PilotState::Approved));
    assert_eq!(claimed(3).await, 2);
    assert_eq!(pilot::approve(world.store(), "gzip").await.map(|view| view.tasks), Ok(0), "once is enough");
}

#[tokio::test]
async fn a_pilot_that_is_rejected_leaves_no_open_task_and_no_approval() {
    let world = World::new();
    let plan = prompts("p", &["a", "b", "c"]).expect("a plan");
    let id = started(&world, &plan).await;
    world.run(&queue_of(id), 1, &Outcome::Success, &[]).await;
    let rejected = pilot::reject(world.store(), "gzip").await.expect("it is rejected");
    let counts = existing(world.store(), id).await.expect("it is there").counts;
    assert_eq!((rejected.tasks, counts.completed, counts.cancelled, counts.open()), (2, 1, 2, 0));
    assert_eq!(world.state(pilot::approval_of(id)).await, Some(StateName::Cancelled));
    let again = pilot::approve(world.store(), "gzip").await.map(|view| view.tasks);
    assert_eq!(again, Err(Refusal::NothingToApprove(id).into()));
    let next = chosen(&world, &plan, FormerRuns::Once).await;
    assert!(matches!(next, ChosenJob::New(new, None) if new != id), "another pilot");
}

#[tokio::test]
async fn a_prompt_is_the_payload_of_an_item_and_another_prompt_another_job() {
    let world = World::new();
    let plan = prompts("p", &["a", "b"]).expect("a plan");
    let id = started(&world, &plan).await;
    let first = world.store.show(TaskRef::Id(plan.task_id(id, 0))).await.expect("read").expect("it is there");
    assert_eq!(first.task.payload, r#"{"item":"a","number":1,"prompt":"1/2 a"}"#);
    assert_eq!((first.task.kind.as_str(), plan.argv(1, &Item::plain("a"))), ("review", None));
    assert_ne!(plan.fingerprint(), prompts("q", &["a", "b"]).expect("a plan").fingerprint());
    let strange = prompts("p", &["a", "strange"]).err();
    assert_eq!(strange, Some(PlanError::Prompt { number: 2, why: "what is that?".to_owned() }));
    let long = prompts("p", &["a", &"x".repeat(60)]).err();
    assert!(matches!(long, Some(PlanError::TooLarge { number: 2, most: 60, .. })));
}

#[tokio::test]
async fn items_that_a_job_has_already_are_not_added_again() {
    let world = World::new();
    let id = started(&world, &plan(&["a", "b"])).await;
    let more = JobPlan::new(PlanRequest { before: 2, ..request(&["b", "c"]) }).expect("a plan");
    assert_eq!(add(world.store(), &more, id).await, Ok(1));
    let record = existing(world.store(), id).await.expect("it is there");
    assert_eq!((record.job.items, record.counts.queued), (3, 3));
    assert_eq!(add(world.store(), &more, id).await, Ok(0));
    assert_eq!(existing(world.store(), id).await.expect("it is there").job.items, 3);
}

#[test]
fn a_placeholder_without_a_column_makes_no_plan() {
    let work = ItemWork::Command(vec![b"mail".to_vec(), b"{nme}".to_vec()]);
    let refused = JobPlan::new(PlanRequest { work, ..request(&["a"]) }).err();
    let unknown = UnknownPlaceholder::NoColumns("nme".to_owned());
    assert_eq!(refused, Some(PlanError::Template(TemplateError::Unknown(unknown))));
}

/// Fingerprints that version 0.1 stored, for "gzip {}" and "gzip {} | wc" over "a" and "b c", and for "x {1}" and "x x{3}" over "a".
const GZIP: &str = "0605eac88671dc3858c2e2c77fdc7c07ceb87551793c2bd140de4e1c374cd7f4";
const WC: &str = "de061aeb4c83c17b0d089a8cf032c36845918ab809e5bdb1d1d20de9ef13458d";
const TEXT_ONCE: &str = "8670ae870b202c59da381c1f81010305181856d0a43906696b3d7d5f471d3755";
const REPEATED: &str = "53ca4b92747808fe57a6d039aa721496566ea01df87e191913d7849606f427fc";

/// The identity of a plan: what an earlier version stored must be found again.
#[test]
fn a_plan_keeps_its_fingerprint_unless_what_it_runs_is_something_else() {
    let of = |words: &[&str], shell: Option<&str>, items: Vec<Item>| {
        let work = ItemWork::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect());
        let shell = shell.map(ToOwned::to_owned);
        JobPlan::new(PlanRequest { work, items, shell, ..request(&[]) }).expect("a plan").fingerprint()
    };
    let items = || vec![Item::plain("a"), Item::plain("b c")];
    assert_eq!(of(&["gzip", "{}"], None, items()), GZIP);
    assert_eq!(of(&["gzip {} | wc"], None, items()), WC);
    assert_eq!(of(&["gzip {} | wc"], Some("sh"), items()), WC, "the shell that it always was");
    assert_ne!(of(&["gzip {} | wc"], Some("bash"), items()), WC);
    let parts = |texts: [&str; 2]| Item {
        parts: texts.map(|text| text.as_bytes().to_vec()).to_vec(),
        ..Item::plain("a b c")
    };
    let two = of(&["cp", "{1}", "{2}"], None, vec![parts(["a", "b c"])]);
    assert_ne!(two, of(&["cp", "{1}", "{2}"], None, vec![parts(["a b", "c"])]));
}

/// Braces with a number were text once, so a job of that time ran something else.
#[test]
fn a_number_in_braces_makes_another_job_than_the_text_it_once_was() {
    let work = |word: &str| ItemWork::Command(vec![b"x".to_vec(), word.as_bytes().to_vec()]);
    let of = |word: &str| {
        JobPlan::new(PlanRequest { work: work(word), ..request(&["a"]) }).expect("a plan").fingerprint()
    };
    assert_ne!(of("{1}"), TEXT_ONCE);
    assert_eq!(of("x{3}"), REPEATED, "it is text still");
}
