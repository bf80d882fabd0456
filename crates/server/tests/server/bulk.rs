//! Actions on many tasks: the preview counts, later matches are not touched, and an interrupted action does the rest when it is repeated.

use std::time::Duration;

use ostler_core::TaskId;
use ostler_testkit::MAX_WAIT;
use serde_json::{Value, json};

use crate::world::{QUEUE, World, on_each_store};

on_each_store!(
    an_interrupted_action_is_repeated_and_each_task_is_replayed_once,
    what_was_replayed_after_the_preview_of_a_cancel_is_not_cancelled,
    a_cut_off_that_is_not_that_of_the_preview_is_noticed,
    without_a_preview_or_a_condition_nothing_is_touched,
);

const MANY: usize = 3_000;

fn start(cutoff: &Value) -> String {
    json!({"action": "replay", "filter": {"queue": QUEUE}, "cutoff": cutoff}).to_string()
}

async fn preview(world: &World) -> Value {
    let body = json!({"action": "replay", "filter": {"queue": QUEUE}, "preview": true}).to_string();
    world.post("/api/v1/tasks/actions", &body).await.is(200).json()
}

async fn until_over(world: &World, id: &str) -> Value {
    let over = async {
        loop {
            let progress = world.get(&format!("/api/v1/tasks/actions/{id}")).await.is(200).json();
            if progress["state"] != "running" {
                return progress;
            }
            tokio::task::yield_now().await;
        }
    };
    // Each batch has this time.
    tokio::time::timeout(MAX_WAIT * (MANY / 1_000) as u32, over).await.expect("it ends")
}

fn replays(stats: &Value) -> u64 {
    stats["totals"]["replayed"].as_u64().expect("a number")
}

async fn an_interrupted_action_is_repeated_and_each_task_is_replayed_once(world: World) {
    world.enqueue(MANY).await;
    world.fail(MANY).await;
    let seen = preview(&world).await;
    assert_eq!(seen["tasks"], MANY);
    // These begin to match after the preview.
    world.enqueue(50).await;
    world.fail(50).await;
    let begun = world.post("/api/v1/tasks/actions", &start(&seen["cutoff"])).await.is(202).json();
    let id = begun["id"].as_str().expect("an id").to_owned();
    let stopped = world.post(&format!("/api/v1/tasks/actions/{id}/stop"), "").await;
    stopped.is(200);
    let progress = until_over(&world, &id).await;
    // It stops between two batches, unless it was over already.
    assert!(["stopped", "done"].contains(&progress["state"].as_str().expect("a state")), "{progress}");
    // Those that were replayed fail again, and still they are not replayed twice.
    let done = progress["done"].as_u64().expect("a number") as usize;
    if done > 0 {
        world.fail(done).await;
    }
    // Another server, as after a restart, does not know the action and does the rest.
    let later = world.beside().await;
    later.get(&format!("/api/v1/tasks/actions/{id}")).await.is(404);
    let again = later.post("/api/v1/tasks/actions", &start(&seen["cutoff"])).await.is(202).json();
    assert_eq!(again["id"], id.as_str(), "the same action, filter and cut-off");
    let rest = until_over(&later, &id).await;
    assert_eq!(
        (&rest["state"], rest["done"].as_u64().expect("a number") as usize),
        (&json!("done"), MANY - done)
    );
    let stats = later.get("/api/v1/stats").await.json();
    assert!(only_these_once(&stats, MANY), "each once: {stats}");
    // A third time there is nothing left.
    let third = world.beside().await;
    third.post("/api/v1/tasks/actions", &start(&seen["cutoff"])).await.is(202);
    assert_eq!(until_over(&third, &id).await["done"], 0);
    let audit = later.get("/api/v1/audit").await.json();
    let started = |record: &&Value| record["operation"] == "tasks.act";
    let started: Vec<&Value> = audit.as_array().expect("a list").iter().filter(started).collect();
    assert_eq!(started.len(), 1, "one record of the action, which was started three times: {audit}");
    assert_eq!(started[0]["result"]["tasks"], MANY, "as it was first started: {audit}");
}

async fn what_was_replayed_after_the_preview_of_a_cancel_is_not_cancelled(world: World) {
    let task = |id: &TaskId, what: &str| format!("/api/v1/tasks/{id}/{what}");
    let letters = world.enqueue(3).await;
    world.fail(3).await;
    let cancelled = world.enqueue(1).await[0];
    world.post(&task(&cancelled, "cancel"), "").await.is(200);
    let mut waiting = world.enqueue(1).await;
    let later = world.store.now().await.expect("it answers").after(Duration::from_secs(3_600));
    let mut scheduled = world.ids.new_tasks(1, QUEUE, "send").remove(0);
    scheduled.run_at = Some(later);
    waiting.push(scheduled.id);
    world.store.enqueue(vec![scheduled]).await.expect("it is accepted");
    // Replayed before the preview.
    world.post(&task(&letters[0], "retry"), "").await.is(200);
    waiting.push(letters[0]);
    let filter = json!({"queue": QUEUE});
    let preview = json!({"action": "cancel", "filter": filter, "preview": true}).to_string();
    let seen = async {
        loop {
            let seen = world.post("/api/v1/tasks/actions", &preview).await.is(200).json();
            // What was enqueued in the millisecond of the preview counts as later.
            if seen["tasks"] == 3 {
                return seen;
            }
        }
    };
    let seen = tokio::time::timeout(MAX_WAIT, seen).await.expect("it counts three");
    // Replayed after it: one is taken by a node before the cancel, two wait. The scheduled one, which is made due, matched before.
    world.post(&task(&letters[1], "retry"), "").await.is(200);
    let session = world.node().await;
    let claimed = world.claim(session, 3).await;
    assert_eq!(claimed.len(), 3, "all that are ready");
    for id in [letters[2], cancelled, waiting[1]] {
        world.post(&task(&id, "retry"), "").await.is(200);
    }
    let begin = json!({"action": "cancel", "filter": filter, "cutoff": seen["cutoff"]}).to_string();
    let begun = world.post("/api/v1/tasks/actions", &begin).await.is(202).json();
    assert_eq!(until_over(&world, begun["id"].as_str().expect("an id")).await["done"], 3);
    for id in waiting {
        let shown = world.get(&format!("/api/v1/tasks/{id}")).await.is(200).json();
        let asked = shown["state"] == "cancelled" || !shown["cancel_requested_at"].is_null();
        assert!(asked, "{shown}");
    }
    for id in [letters[1], letters[2], cancelled] {
        let shown = world.get(&format!("/api/v1/tasks/{id}")).await.is(200).json();
        assert!(["queued", "claimed"].contains(&shown["state"].as_str().expect("a state")), "{shown}");
        assert!(shown["cancel_requested_at"].is_null(), "{shown}");
    }
}

/// Whether as many tasks were replayed as the preview has counted: each once, and none that matched later.
fn only_these_once(stats: &Value, seen: usize) -> bool {
    replays(stats) == seen as u64
}

async fn a_cut_off_that_is_not_that_of_the_preview_is_noticed(world: World) {
    world.enqueue(20).await;
    world.fail(20).await;
    let seen = preview(&world).await;
    world.enqueue(5).await;
    world.fail(5).await;
    // Now, instead of when the tasks were counted.
    let later = async {
        loop {
            let later = preview(&world).await;
            if later["tasks"] == 25 {
                return later;
            }
        }
    };
    let later = tokio::time::timeout(MAX_WAIT, later).await.expect("they are counted");
    let begun = world.post("/api/v1/tasks/actions", &start(&later["cutoff"])).await.is(202).json();
    until_over(&world, begun["id"].as_str().expect("an id")).await;
    let stats = world.get("/api/v1/stats").await.json();
    assert!(!only_these_once(&stats, seen["tasks"].as_u64().expect("a number") as usize), "{stats}");
}

async fn without_a_preview_or_a_condition_nothing_is_touched(world: World) {
    world.enqueue(3).await;
    for (body, field) in [
        (json!({"action": "cancel", "filter": {}, "preview": true}), "filter"),
        (json!({"action": "cancel", "filter": {"queue": QUEUE}}), "cutoff"),
        (json!({"action": "cancel", "filter": {"queue": QUEUE}, "cutoff": "2999-01-01T00:00:00Z"}), "cutoff"),
        (json!({"action": "burn", "filter": {"queue": QUEUE}, "preview": true}), "action"),
    ] {
        let reply = world.post("/api/v1/tasks/actions", &body.to_string()).await;
        assert_eq!(reply.is(400).json()["error"]["details"]["field"], field, "{}", reply.body);
    }
    assert_eq!(world.get("/api/v1/stats").await.json()["tasks"]["queued"], 3);
}
