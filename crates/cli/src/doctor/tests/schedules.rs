//! Faults of schedules.

use ostler_core::{Missed, Overlap, Overrides, Priority};
use ostler_runtime::{PlannedSchedule, ScheduleSpec};
use ostler_store::schedules::{Activity, Schedule, ScheduleChange, TaskTemplate};

use ostler_wire::system::Severity;

use super::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// An hourly schedule in this queue.
fn hourly(world: &World, name: &str, queue: &str) -> Schedule {
    let task = TaskTemplate {
        queue: queue.to_owned(),
        kind: "send".to_owned(),
        payload: "null".to_owned(),
        priority: Priority::NORMAL,
        overrides: Overrides::NONE,
    };
    let times = ScheduleSpec::every(HOUR).expect("a step");
    let plan =
        PlannedSchedule { name: name.to_owned(), times, overlap: Overlap::Skip, missed: Missed::One, task };
    plan.schedule(world.clock.now())
}

async fn put(world: &World, schedule: Schedule) {
    world.files.store().put_schedule(schedule).await.expect("it is put");
}

#[tokio::test]
async fn a_schedule_that_waits_for_its_moment_is_all_right() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    put(&world, hourly(&world, "s", "mail")).await;
    world.pass(HOUR + Duration::from_secs(60), &[node]).await;
    assert_eq!(world.findings().await, [], "a little late is not late");
}

#[tokio::test]
async fn a_schedule_whose_moment_has_long_passed_is_told() {
    for (up, words, advice) in [
        (true, "although a node is up: \"late\"", "Restart the node"),
        (false, "and no node is up: \"late\"", "ostler up"),
    ] {
        let world = World::new();
        put(&world, hourly(&world, "late", "mail")).await;
        put(&world, hourly(&world, "paused", "mail")).await;
        world
            .files
            .store()
            .change_schedule("paused", ScheduleChange::Set(Activity::Paused))
            .await
            .expect("it is paused");
        put(&world, Schedule { next_at: None, ..hourly(&world, "over", "mail") }).await;
        if up {
            let node = world.node("anna", &["mail"]).await;
            world.pass(3 * HOUR, &[node]).await;
        } else {
            world.clock.advance(3 * HOUR);
        }
        let finding = only(world.findings().await, "schedule-late");
        assert_eq!(finding.severity, Severity::Error);
        says(&finding, &format!("should have run up to 2h ago, {words}"), advice);
    }
}

#[tokio::test]
async fn a_schedule_for_a_queue_that_no_node_serves_is_reported() {
    let world = World::new();
    let node = world.node("anna", &["mail"]).await;
    put(&world, hourly(&world, "films nightly", "old films")).await;
    world.pass(Duration::from_secs(60), &[node]).await;
    let finding = only(world.findings().await, "schedule-unserved");
    says(
        &finding,
        "Schedule \"films nightly\" enqueues tasks in queue \"old films\", which no running node serves",
        "ostler schedule rm 'films nightly'",
    );
}

#[tokio::test]
async fn a_schedule_that_this_version_cannot_read_is_told() {
    let world = World::new();
    put(&world, Schedule { spec: "lunar 3".to_owned(), ..hourly(&world, "moon", "mail") }).await;
    let finding = only(world.findings().await, "schedule-unreadable");
    says(&finding, "does not run them: \"moon\"", "ostler schedule rm moon");
}
