//! Faults of nodes, queues, tasks and clocks.

use ostler_core::{ErrorClass, Failure, Outcome, Overrides};
use ostler_store::calls::{NewTask, QueueChange, Report};

use ostler_wire::system::Severity;

use super::*;
use crate::config;
use crate::pool_kinds::POOL_KINDS;

const MINUTE: Duration = Duration::from_secs(60);

async fn configure(world: &World, queue: &str, change: QueueChange) {
    world.files.store().configure(queue, vec![change]).await.expect("it is configured");
}

/// A task fails on this node.
async fn fails(world: &World, session: SessionId, task: NewTask, failure: Failure) {
    let queue = task.queue.clone();
    world.files.store().enqueue(vec![task]).await.expect("it is taken");
    let claimed = world.claim(session, &queue, 1).await;
    let report = |claimed: Claimed| Report {
        lease: claimed.lease,
        ran: None,
        outcome: Outcome::Failed(failure.clone()),
        output: None,
        reading: None,
    };
    let reports = claimed.into_iter().map(report).collect();
    world.files.store().finish(reports).await.expect("it is reported");
}

#[tokio::test]
async fn a_healthy_store_has_no_findings() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(3, "mail", "send").await;
    world.pass(MINUTE, &[node]).await;
    assert_eq!(world.findings().await, []);
}

#[tokio::test]
async fn workers_that_do_not_stop_are_told_with_their_task() {
    let world = World::new();
    let node = world.node("anna", &[]).await;
    world.enqueue(1, "mail", "send").await;
    let task = world.claim(node, "mail", 1).await[0].lease.task();
    let now = world.clock.now();
    let deaf =
        Worker { state: WorkerState::Unresponsive, task: Some((task, now)), ..world.worker("mail", now) };
    let workers = vec![deaf, world.worker("mail", now)];
    assert_eq!(world.files.store().report(node, workers, Vec::new()).await, Ok(Fenced::Recorded));
    let finding = only(world.findings().await, "workers-unresponsive");
    says(&finding, "In pool \"mail\" of node \"anna\" 1 worker has not stopped", &task.to_string());
}

#[tokio::test]
async fn an_empty_store_has_no_findings() {
    assert_eq!(World::new().findings().await, []);
}

#[tokio::test]
async fn no_node_is_up_while_tasks_wait() {
    let world = World::new();
    world.enqueue(3, "mail", "send").await;
    let finding = only(world.findings().await, "no-node");
    assert_eq!(finding.severity, Severity::Error);
    says(&finding, "3 tasks wait, and no node is up", "ostler up");
}

#[tokio::test]
async fn no_node_serves_a_queue() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(2, "old films", "resize").await;
    world.pass(MINUTE, &[node]).await;
    let finding = only(world.findings().await, "queue-unserved");
    says(&finding, "serves queue \"old films\", where 2 tasks wait (kind \"resize\")", "--queue 'old films'");
}

#[tokio::test]
async fn a_node_that_has_just_come_up_is_not_blamed() {
    let world = World::new();
    world.node("anna", &[]).await;
    world.enqueue(2, "mail", "send").await;
    assert_eq!(world.findings().await, []);
}

#[tokio::test]
async fn a_kind_without_a_handler_waits_beside_idle_workers() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(1, "mail", "fax").await;
    // A task that is not due does not count, however old it is.
    let later =
        NewTask { run_at: Some(world.clock.now().after(60 * MINUTE)), ..world.ids.new_task("mail", "send") };
    world.files.store().enqueue(vec![later]).await.expect("it is taken");
    world.pass(6 * MINUTE, &[node]).await;
    let finding = only(world.findings().await, "kind-unserved");
    says(
        &finding,
        "of kind \"fax\" has been ready in queue \"mail\" for 6m, although 1 worker is idle",
        "a handler",
    );
}

#[tokio::test]
async fn workers_that_do_not_come_up_are_the_cause_and_the_only_finding() {
    let mut world = World::new();
    let settings = r#"{"py":{"attempts":"4"}}"#.to_owned();
    let node = world.join(NewSession { settings, ..world.ids.new_session("anna", TTL) }, &[]).await;
    world.enqueue(2, "py", "resize").await;
    let why = "its workers fail to start: ModuleNotFoundError: No module named 'nosuchmodule'";
    configure(&world, "py", QueueChange::Pause(why.to_owned())).await;
    world.pass(MINUTE, &[node]).await;
    let text = "[pool.py]\nexecutor = \"process\"\ncommand = [\"sh\", \"w.sh\"]\n";
    world.config = Some(
        config::parse(text, "ostler.toml", &|_| None, POOL_KINDS, ostler_core::price::PriceTable::built_in())
            .map_err(ConfigError::from),
    );
    let finding = only(world.findings().await, "workers-failing");
    assert_eq!(finding.severity, Severity::Error);
    says(
        &finding,
        "The workers of pool \"py\" fail to start: ModuleNotFoundError: No module named 'nosuchmodule'. Its queue is paused",
        "ostler resume py",
    );
}

#[tokio::test]
async fn a_queue_is_paused() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(1, "mail", "send").await;
    configure(&world, "mail", QueueChange::Pause("the server is being moved".to_owned())).await;
    world.pass(6 * MINUTE, &[node]).await;
    let finding = only(world.findings().await, "queue-paused");
    says(&finding, "paused: \"the server is being moved\"; 1 task waits in it", "ostler resume mail");
}

#[tokio::test]
async fn a_queue_is_full_or_nearly() {
    for (waiting, code) in [(10, "queue-full"), (9, "queue-nearly-full")] {
        let world = World::new();
        world.node("anna", &["mail"]).await;
        configure(&world, "mail", QueueChange::Limit(Some(10))).await;
        world.enqueue(waiting, "mail", "send").await;
        let finding = only(world.findings().await, code);
        says(&finding, &format!("{waiting} tasks are waiting"), "max_workers");
    }
}

#[tokio::test]
async fn a_stopped_node_is_overdue_and_its_leases_are_stale() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(2, "mail", "send").await;
    assert_eq!(world.claim(node, "mail", 2).await.len(), 2);
    world.clock.advance(TTL + MINUTE);
    let findings = world.findings().await;
    let [stale, overdue] = findings.as_slice() else { panic!("{findings:#?}") };
    assert_eq!((stale.code, overdue.code), ("lease-stale", "node-overdue"));
    says(stale, "2 tasks are still held by a node that is dead or overdue", "ostler ls --stale");
    let pid = std::process::id();
    says(
        overdue,
        &format!("Node \"anna\" (process {pid}) has not renewed its leases within 1m"),
        &pid.to_string(),
    );
}

#[tokio::test]
async fn a_dead_node_is_known_at_once() {
    let mut world = World::new();
    let node = world.node("anna", &["mail"]).await;
    world.enqueue(2, "mail", "send").await;
    assert_eq!(world.claim(node, "mail", 1).await.len(), 1);
    // Closing the last handle releases the lock, as when a process is killed.
    world.files.close();
    let codes: Vec<&str> = world.findings().await.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["no-node", "lease-stale", "node-overdue"]);
}

#[tokio::test]
async fn nodes_differ_in_their_settings() {
    let world = World::new();
    for (name, settings) in [
        ("anna", r#"{"pools":{"mail":{"timeout":"5m","grace":"5s"},"films":{}}}"#),
        ("bert", r#"{"pools":{"mail":{"timeout":"1m","grace":"5s"}}}"#),
    ] {
        let node = NewSession { settings: settings.to_owned(), ..world.ids.new_session(name, TTL) };
        world.join(node, &["mail"]).await;
    }
    let finding = only(world.findings().await, "settings-differ");
    says(
        &finding,
        "Nodes \"anna\" and \"bert\" are up with different settings: pools.mail.timeout",
        "the same config",
    );
}

#[tokio::test]
async fn nodes_with_other_pools_or_without_settings_do_not_differ() {
    let world = World::new();
    for (name, settings) in [
        ("anna", r#"{"pools":{"mail":{"timeout":"5m"}}}"#),
        ("bert", r#"{"pools":{"films":{}}}"#),
        ("carl", ""),
    ] {
        let node = NewSession { settings: settings.to_owned(), ..world.ids.new_session(name, TTL) };
        world.join(node, &["mail"]).await;
    }
    assert_eq!(world.findings().await, []);
}

#[tokio::test]
async fn nodes_differ_in_their_versions() {
    let world = World::new();
    for version in ["0.1.0", "0.2.0"] {
        let node = NewSession { version: version.to_owned(), ..world.ids.new_session("anna", TTL) };
        world.join(node, &["mail"]).await;
    }
    let finding = only(world.findings().await, "versions-differ");
    says(&finding, "different versions: \"0.1.0\", \"0.2.0\"", "one after the other");
}

#[tokio::test]
async fn dead_letters_wait_and_the_most_frequent_reason_is_told() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    for why in ["connection refused\nat line 5", "no such mailbox", "connection refused\nat line 7"] {
        let failure = Failure::new(ErrorClass::Permanent, why);
        fails(&world, node, world.ids.new_task("mail", "send"), failure).await;
    }
    let finding = only(world.findings().await, "dead-letters");
    says(
        &finding,
        "3 tasks have failed for good; most often (2): \"connection refused\"",
        "ostler dead replay --matching 'connection refused'",
    );
}

#[tokio::test]
async fn a_poisonous_task_is_in_quarantine() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    let task = NewTask {
        overrides: Overrides { max_crashes: Some(1), ..Overrides::NONE },
        ..world.ids.new_task("mail", "send")
    };
    let id = task.id;
    fails(&world, node, task, Failure::new(ErrorClass::Crash, "signal 11")).await;
    let finding = only(world.findings().await, "quarantined");
    says(&finding, "1 task is in quarantine: each crashed its worker", &format!("ostler dead replay {id}"));
}

#[tokio::test]
async fn a_clock_that_went_back_is_noticed() {
    let world = World::new();
    world.node("anna", &["mail"]).await;
    world.clock.step_wall(world.clock.now().before(60 * MINUTE));
    let finding = only(world.findings().await, "clock-jumped");
    says(&finding, "The clock went back: the ", "synchronized");
    assert!(finding.sentence.contains("1h in the future"), "{finding:#?}");

    let world = World::new();
    world.node("anna", &["mail"]).await;
    world.clock.step_wall(world.clock.now().before(MINUTE / 2));
    assert_eq!(world.findings().await, [], "a little may be");
}

#[tokio::test]
async fn a_task_from_the_future_is_noticed() {
    let world = World::new();
    world.enqueue(1, "mail", "send").await;
    world.clock.step_wall(world.clock.now().before(60 * MINUTE));
    let codes: Vec<&str> = world.findings().await.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["no-node", "clock-jumped"]);
}

#[tokio::test]
async fn a_clock_that_was_never_set_is_noticed() {
    let world = World::new();
    world.node("anna", &["mail"]).await;
    world.clock.step_wall(Timestamp::ZERO);
    let finding = only(world.findings().await, "clock-unset");
    says(&finding, "is before 2024", "Set the clock");
}

#[tokio::test]
async fn the_worst_comes_first() {
    let world = World::new();
    configure(&world, "mail", QueueChange::Pause(String::new())).await;
    configure(&world, "films", QueueChange::Limit(Some(1))).await;
    world.enqueue(1, "films", "resize").await;
    let findings = world.findings().await;
    let told: Vec<(&str, &str)> =
        findings.iter().map(|finding| (finding.severity.name(), finding.code)).collect();
    assert_eq!(told, [("error", "no-node"), ("error", "queue-full"), ("warning", "queue-paused")]);
}
