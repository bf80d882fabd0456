//! Reads: searches that go on, single things, and statistics in other shapes.

use ostler_core::{Outcome, TaskId};
use ostler_store::calls::NewTask;
use serde_json::{Value, json};

use crate::world::{QUEUE, World, line, on_each_store};

on_each_store!(
    a_needle_is_found_by_going_on_and_an_empty_page_is_not_the_end,
    large_payloads_are_searched_in_short_pages_and_an_absent_queue_is_empty_at_once,
    statistics_have_the_shapes_of_other_pools,
    every_look_answers_and_a_log_is_read_by_pages,
    jobs_are_walked_page_by_page,
);

async fn a_needle_is_found_by_going_on_and_an_empty_page_is_not_the_end(world: World) {
    let needle = NewTask::new(TaskId(world.ids.task().0), QUEUE, "send", r#"{"word":"needle"}"#);
    world.store.enqueue(vec![needle.clone()]).await.expect("it is accepted");
    world.enqueue(11_000).await;
    let (found, empty) = search(&world, "/api/v1/tasks?text=needle").await;
    assert_eq!(found, needle.id.to_string());
    assert!(empty >= 2, "one request does not scan everything: {empty}");
}

async fn large_payloads_are_searched_in_short_pages_and_an_absent_queue_is_empty_at_once(world: World) {
    let draft = |payload: String| NewTask::new(TaskId(world.ids.task().0), QUEUE, "send", payload);
    let needle = draft(r#"{"word":"needle"}"#.to_owned());
    let large = || draft(format!("{{\"text\":\"{}\"}}", "x".repeat(100_000)));
    world.store.enqueue(vec![needle.clone()]).await.expect("it is accepted");
    for _ in 0..5 {
        world.store.enqueue((0..50).map(|_| large()).collect()).await.expect("they are accepted");
    }
    let (found, empty) = search(&world, "/api/v1/tasks?text=needle").await;
    assert_eq!(found, needle.id.to_string());
    assert!((2..=4).contains(&empty), "25 MB are more than two pages and less than five: {empty}");
    for path in
        ["?queue=absent", "?kind=absent", "?queue=absent&state=completed", "?queue=absent&text=needle"]
    {
        let page = world.get(&format!("/api/v1/tasks{path}")).await.is(200).json();
        assert_eq!(
            (&page["tasks"], page.get("cursor").filter(|it| !it.is_null())),
            (&json!([]), None),
            "{path}"
        );
    }
}

/// The id of the first task that is found by going on from page to page, and how many pages had none.
async fn search(world: &World, first: &str) -> (String, usize) {
    let (mut path, mut empty) = (first.to_owned(), 0);
    loop {
        let page = world.get(&path).await.is(200).json();
        if let Some(found) = page["tasks"].get(0) {
            return (found["id"].as_str().expect("an id").to_owned(), empty);
        }
        empty += 1;
        let cursor = page["cursor"].as_str().expect("an empty page is not the end");
        path = format!("{first}&cursor={cursor}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_queries_and_ids_are_refused_with_the_field() {
    let world = World::new().await;
    for (path, field) in [
        ("/api/v1/tasks?state=done", "state"),
        ("/api/v1/tasks?limit=0", "limit"),
        ("/api/v1/tasks?limit=1001", "limit"),
        ("/api/v1/tasks?limit=99999999999999999999", "limit"),
        ("/api/v1/tasks?cursor=x", "cursor"),
        ("/api/v1/tasks?where=x", "where"),
        ("/api/v1/tasks?ended_since=today", "ended_since"),
        ("/api/v1/tasks/x", "id"),
        ("/api/v1/cost?by=x", "by"),
    ] {
        let reply = world.get(path).await;
        let error = &reply.is(400).json()["error"];
        assert_eq!(error["details"]["field"], field, "{path}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(field)), "{error}");
    }
    let unknown = world.get("/api/v1/tasks?sate=failed").await;
    assert!(unknown.is(400).body.contains("sate"), "{unknown:?}");
    assert_eq!(world.get("/api/v1/tasks/01JC8Z0Q4M9T7N3V5X1B2D6F8H").await.is(404).code(), "not_found");
}

async fn statistics_have_the_shapes_of_other_pools(world: World) {
    world.enqueue(3).await;
    world.fail(1).await;
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    world.finish(claimed, &Outcome::Success).await;
    let go = world.get("/api/v1/pools/mail/PoolStats").await.is(200).json();
    assert_eq!(
        go,
        json!({"WorkersCount": 0, "ActiveWorkers": 0, "QueuedTasks": 1, "CompletedTasks": 1, "FailedTasks": 1, "AverageExecTime": 7.0})
    );
    let python = world.get("/api/v1/pools/mail/get_pool_stats").await.is(200).json();
    assert_eq!(
        python,
        json!({"total_workers": 0, "idle_workers": 0, "processing_workers": 0, "total_completed": 1, "total_failed": 1, "workers": {}})
    );
    let beat = world.get(&format!("/api/v1/nodes/{session}/heartbeat")).await.is(200).json();
    let keys: Vec<&String> = beat.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["busy_count", "idle_count", "pool_size", "processes", "timestamp", "type", "worker_id"]
    );
    assert_eq!(
        (&beat["type"], &beat["worker_id"]),
        (&json!("worker_heartbeat"), &json!(session.to_string()))
    );
    world.get("/api/v1/pools/absent/PoolStats").await.is(404);
}

async fn every_look_answers_and_a_log_is_read_by_pages(world: World) {
    let ids = world.enqueue(1).await;
    let session = world.node().await;
    let claimed = world.claim(session, 1).await;
    let lines: Vec<_> = (1..=5).map(|number| line(format!("line {number}"))).collect();
    world.store.append(claimed[0].lease.as_ref(), lines).await.expect("they are appended");
    let page = world.get(&format!("/api/v1/tasks/{}/log?after=2", ids[0])).await.is(200).json();
    let texts: Vec<&Value> =
        page["events"].as_array().expect("a list").iter().map(|event| &event["data"]).collect();
    assert_eq!(
        (texts, &page["after"]),
        (vec![&json!("line 3"), &json!("line 4"), &json!("line 5")], &json!(5))
    );
    for path in [
        "stats",
        "queues",
        "nodes",
        "workers",
        "workers/gone",
        "jobs",
        "schedules",
        "dead",
        "accounts",
        "cost",
        "doctor",
        "breakers",
        "audit",
        "session",
        "tasks/actions",
        "openapi.json",
    ] {
        world.get(&format!("/api/v1/{path}")).await.is(200).json();
    }
    for path in ["/health", "/ready"] {
        let mut client = world.client().await;
        client.ask("GET", path, &[], "").await.is(200);
    }
}

async fn jobs_are_walked_page_by_page(world: World) {
    let mut made = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let job = json!({"pool": "none", "items": ["x"], "name": name}).to_string();
        made.push(world.post("/api/v1/jobs", &job).await.is(201).json()["id"].clone());
    }
    let (mut met, mut path) = (Vec::new(), "/api/v1/jobs?limit=2".to_owned());
    loop {
        let page = world.get(&path).await.is(200).json();
        let ids = page.as_array().expect("a list").iter().map(|job| job["id"].clone());
        let before = met.len();
        met.extend(ids);
        assert!(met.len() - before <= 2, "{page}");
        let Some(last) = met.last().filter(|_| met.len() > before) else { break };
        path = format!("/api/v1/jobs?limit=2&before={}", last.as_str().expect("an id"));
    }
    met.sort_by_key(Value::to_string);
    made.sort_by_key(Value::to_string);
    assert_eq!(met, made, "each once");
    let wrong = world.get("/api/v1/jobs?before=c").await;
    assert_eq!((wrong.status, &wrong.json()["error"]["details"]["field"]), (400, &json!("before")));
}
