//! Unfinished and failed jobs of `ostler map`.

use ostler_core::{ErrorClass, Failure, Id, JobId, Outcome};
use ostler_store::calls::{NewTask, QueueChange, Report};
use ostler_store::jobs::{NewJob, queue_of};

use ostler_wire::system::Severity;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A job of two waiting items.
async fn job(world: &World, served_by: &str) -> (JobId, Vec<NewTask>) {
    let id = JobId(Id::from_bits(7));
    let spec = format!(
        r#"{{"command":[],"folder":"/home/anna/my letters","served_by":"{served_by}","jobs":1,"attempts":1,"timeout_ms":null}}"#
    );
    let new = NewJob { id, name: "gzip".to_owned(), fingerprint: "f".to_owned(), spec, items: 2 };
    world.files.store().put_job(new).await.expect("it is put");
    let tasks = world.ids.new_tasks(2, &queue_of(id), "item");
    world.files.store().enqueue(tasks.clone()).await.expect("they are taken");
    (id, tasks)
}

#[tokio::test]
async fn a_job_that_no_node_runs_is_reported_with_what_to_type() {
    let world = World::new();
    let (id, _) = job(&world, "mapper").await;
    let finding = only(world.findings().await, "job-unfinished");
    assert_eq!(finding.severity, Severity::Warning);
    says(
        &finding,
        "No process is running job \"gzip\"",
        "run the same \"ostler map\" command again in '/home/anna/my letters'",
    );
    says(
        &finding,
        "2 tasks are left of its 2 items",
        &format!("ostler job cancel {id}; to remove it: ostler job rm {id}"),
    );
}

#[tokio::test]
async fn a_node_that_is_up_does_not_serve_a_job_and_none_of_its_pools_could() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    job(&world, "mapper").await;
    world.pass(MINUTE, &[node]).await;
    let finding = only(world.findings().await, "job-unfinished");
    says(&finding, "No process is running job", "ostler map");
}

#[tokio::test]
async fn a_job_that_was_left_to_a_node_needs_one_that_serves_jobs() {
    let world = World::new();
    job(&world, "node").await;
    says(&only(world.findings().await, "job-unfinished"), "No process is running job", "serve_jobs = true");
}

#[tokio::test]
async fn a_job_that_is_run_is_all_right() {
    let world = World::new();
    let (id, _) = job(&world, "mapper").await;
    let node = world.ids.new_session("anna", TTL);
    let settings = serde_json::json!({ queue_of(id): {} }).to_string();
    world.join(NewSession { settings, ..node }, &[]).await;
    assert_eq!(world.findings().await, []);
}

#[tokio::test]
async fn a_paused_job_is_resumed_as_a_job() {
    let world = World::new();
    let (id, _) = job(&world, "mapper").await;
    let pause = vec![QueueChange::Pause("it's noon".to_owned())];
    world.files.store().configure(&queue_of(id), pause).await.expect("it is paused");
    let finding = only(world.findings().await, "queue-paused");
    says(&finding, "is paused: \"it's noon\"; 2 tasks wait in it", &format!("ostler job resume {id}"));
}

#[tokio::test]
async fn items_that_failed_are_tried_again_by_the_same_line() {
    let world = World::new();
    let (id, tasks) = job(&world, "mapper").await;
    let node = world.node("anna", &[]).await;
    for claimed in world.claim(node, &queue_of(id), tasks.len()).await {
        let failure = Failure::new(ErrorClass::Permanent, "can't open 'x'");
        let outcome = Outcome::Failed(failure);
        let report = Report { lease: claimed.lease, ran: None, outcome, output: None, reading: None };
        world.files.store().finish(vec![report]).await.expect("it is reported");
    }
    let finding = only(world.findings().await, "job-items-failed");
    says(&finding, "items of jobs: \"can't open 'x'\"", "run the same \"ostler map\" command again");
    assert!(!finding.advice.contains("replay"), "a replayed item would not run: {finding:?}");
}
