//! Jobs: found, cancelled, retried, removed, and the results of their items.

use std::time::Duration;

use ostler_core::{Cost, ErrorClass, EventBody, Failure, Id, JobId, Outcome, StateName, TaskId, Usage};
use ostler_ops::jobs::results::JobResults;
use ostler_ops::jobs::{FailedItem, ItemPayload, JobRunner, JobSpec, ServedBy, find, manage, show};
use ostler_ops::{Missing, Refusal};
use ostler_store::Store as _;
use ostler_store::calls::{NewTask, StepsOnReplay};
use ostler_store::jobs::{NewJob, queue_of};
use ostler_wire::bytes::ByteString;
use ostler_wire::job::{JobAction, JobState};

use crate::world::{TTL, World};

const ITEMS: [&str; 3] = ["a", "b", "c"];

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// A job with an item for each of [`ITEMS`], enqueued in the reverse order.
async fn job(world: &World, number: u128, served_by: ServedBy) -> (JobId, Vec<TaskId>) {
    let id = JobId(Id::from_bits(number));
    let folder = "/home/anna".to_owned();
    let command = vec![bytes("gzip"), bytes("{}")];
    let spec = JobSpec { command, folder, served_by, jobs: Some(1), attempts: Some(1), ..JobSpec::default() };
    let spec = serde_json::to_string(&spec).expect("JSON");
    let (name, fingerprint) = ("gzip".to_owned(), "f".to_owned());
    world.store.put_job(NewJob { id, name, fingerprint, spec, items: 3 }).await.expect("it is put");
    let mut ids = Vec::new();
    for (number, item) in [1, 2, 3].into_iter().zip(ITEMS).rev() {
        let payload = ItemPayload { number, item: bytes(item), argv: vec![bytes("gzip"), bytes(item)] };
        let payload = serde_json::to_string(&payload).expect("JSON");
        ids.push(world.put(NewTask { payload, ..world.ids.new_task(&queue_of(id), "item") }).await);
    }
    (id, ids)
}

fn failed() -> Outcome {
    Outcome::Failed(Failure::new(ErrorClass::Permanent, "cannot open"))
}

#[tokio::test]
async fn a_job_is_found_by_its_id_and_by_name_the_newest_is() {
    let world = World::new();
    let (old, _) = job(&world, 7, ServedBy::Mapper).await;
    let (new, _) = job(&world, 8, ServedBy::Mapper).await;
    let found = async |name: &str| find(world.store(), name).await.map(|record| record.job.id);
    assert_eq!(found(&old.to_string()).await, Ok(old));
    assert_eq!(found("gzip").await, Ok(new));
    assert_eq!(found("tar").await, Err(Missing::Job("tar".to_owned()).into()));
}

#[tokio::test]
async fn a_job_is_shown_with_its_command_and_its_failed_items() {
    let world = World::new();
    let (id, _) = job(&world, 7, ServedBy::Mapper).await;
    world.run(&queue_of(id), 1, &failed(), &[]).await;
    let (view, items) = show(world.store(), "gzip").await.expect("it is there");
    assert_eq!((view.command, view.state), (vec!["gzip".to_owned(), "{}".to_owned()], JobState::Unfinished));
    assert_eq!(items, [FailedItem { item: "c".to_owned(), error: "cannot open".to_owned() }]);
}

#[tokio::test]
async fn a_cancelled_job_has_no_open_task_and_a_retry_runs_the_failed_ones() {
    let world = World::new();
    let (id, ids) = job(&world, 7, ServedBy::Mapper).await;
    world.run(&queue_of(id), 1, &failed(), &[]).await;
    let cancelled = manage::cancel(world.store(), "gzip").await.expect("it is cancelled");
    assert_eq!((cancelled.done, cancelled.tasks), (JobAction::Cancelled, 2));
    assert_eq!(JobState::of(&find(world.store(), "gzip").await.expect("it is there")), JobState::Cancelled);
    let retried =
        manage::retry_failed(world.store(), "gzip", StepsOnReplay::Keep).await.expect("it is retried");
    assert_eq!((retried.done, retried.tasks), (JobAction::Retried, 1));
    assert_eq!(world.state(ids[0]).await, Some(StateName::Queued));
}

#[tokio::test]
async fn who_runs_the_rest_of_a_job_is_known_unless_a_process_runs_it() {
    let world = World::new();
    let (mapped, _) = job(&world, 7, ServedBy::Mapper).await;
    let (left, _) = job(&world, 8, ServedBy::Node).await;
    let awaited = async |id| JobRunner::awaited(world.store(), id).await.expect("it is read");
    let mapper = JobRunner::Mapper { folder: Some("/home/anna".to_owned()) };
    assert_eq!((awaited(mapped).await, awaited(left).await), (Some(mapper), Some(JobRunner::Node)));
    let settings = serde_json::json!({ queue_of(mapped): {} }).to_string();
    world.node("anna", &settings).await;
    assert_eq!((awaited(mapped).await, awaited(left).await), (None, Some(JobRunner::Node)));
}

#[tokio::test]
async fn a_job_that_runs_or_has_running_tasks_is_not_removed() {
    let world = World::new();
    let (id, ids) = job(&world, 7, ServedBy::Mapper).await;
    let settings = serde_json::json!({ queue_of(id): {} }).to_string();
    let node = world.node("anna", &settings).await;
    let refused = manage::remove(world.store(), "gzip").await.map(|view| view.tasks);
    let running = Refusal::JobRunning { job: id, pid: std::process::id(), node: "anna".to_owned() };
    assert_eq!(refused, Err(running.into()));
    world.store.leave(node).await.expect("it leaves");

    let other = world.node("bert", "{}").await;
    let held = world.claim(other, &queue_of(id), 1).await;
    let refused = manage::remove(world.store(), "gzip").await.map(|view| view.tasks);
    let running = Refusal::JobRunning { job: id, pid: std::process::id(), node: "bert".to_owned() };
    assert_eq!(refused, Err(running.into()), "it holds a task of the job");

    world.clock.advance(TTL + Duration::from_millis(1));
    drop(held);
    let removed = manage::remove(world.store(), &id.to_string()).await.expect("the node is overdue");
    assert_eq!((removed.done, removed.tasks), (JobAction::Removed, 3));
    assert!(find(world.store(), "gzip").await.is_err());
    for id in ids {
        assert_eq!(world.state(id).await, None);
    }
}

#[tokio::test]
async fn results_are_in_the_order_of_the_items_with_what_their_commands_wrote() {
    let world = World::new();
    let (id, _) = job(&world, 7, ServedBy::Mapper).await;
    world.run(&queue_of(id), 1, &Outcome::Success, &[]).await;
    let written = EventBody::Stdout { text: r#""half""#.to_owned() };
    let usage = |tokens| Usage { input_tokens: tokens, cost: Cost::from_usd(0.25), ..Usage::default() };
    let asked =
        [EventBody::Session { id: "s-7".to_owned() }, EventBody::Usage(usage(3)), EventBody::Usage(usage(4))];
    world.run(&queue_of(id), 1, &failed(), &[vec![written], asked.to_vec()].concat()).await;
    let mut results = JobResults::of(world.store(), id).await.expect("they are read");
    assert_eq!(results.last(), 3);
    let mut rows = Vec::new();
    while let Some(result) = results.next(world.store()).await.expect("it is read") {
        let view = result.view();
        let spent = (view.session_id, view.cost_usd, view.input_tokens, view.output_tokens);
        let expected = match view.number {
            2 => (Some("s-7".to_owned()), Some(0.5), Some(7), Some(0)),
            _ => (None, None, None, None),
        };
        assert_eq!(spent, expected, "{}", view.item);
        rows.push((view.number, view.item, view.state, view.output, view.exit_code));
    }
    let text = |text: &str| text.to_owned();
    assert_eq!(
        rows,
        [
            (1, text("a"), "queued", None, None),
            (2, text("b"), "failed", Some(text("half")), None),
            (3, text("c"), "completed", Some(text("done")), Some(0)),
        ]
    );
}
