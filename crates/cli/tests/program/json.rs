//! The JSON output is stable: exactly these fields in every case.

use ostler_core::{ErrorClass, Failure, Outcome, Worker, WorkerState};
use ostler_store::Store as _;
use ostler_store::{Clock as _, SystemClock};
use ostler_testkit::Ids;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::ostler::Place;

const SUMMARY: [&str; 16] = [
    "id",
    "queue",
    "kind",
    "state",
    "waits_for",
    "priority",
    "runs",
    "failures",
    "run_at",
    "created_at",
    "key",
    "about",
    "finished_at",
    "ended_by",
    "error",
    "progress",
];
const DETAIL: [&str; 21] = [
    "payload",
    "output",
    "steps",
    "after",
    "not_after",
    "deadline",
    "rules",
    "crashes",
    "node_deaths",
    "folder",
    "traceparent",
    "cancel_requested_at",
    "lease",
    "first_failure",
    "last_failure",
    "attempts",
    "limit_key",
    "cost",
    "held",
    "frees",
    "obstacles",
];
/// The fields of a dead letter beyond those of every task.
const LETTER: [&str; 6] = ["reason", "class", "first_failure", "last_failure", "details", "steps"];
const ATTEMPT: [&str; 17] = [
    "number",
    "token",
    "worker",
    "node",
    "state",
    "started_at",
    "finished_at",
    "duration_ms",
    "error",
    "files",
    "stdout",
    "prompt",
    "prompt_bytes",
    "cost_usd",
    "cost_estimated",
    "usage",
    "session_id",
];
const ERROR: [&str; 6] = ["class", "message", "details", "step", "hint", "exit_code"];
const WORKER: [&str; 16] = [
    "id",
    "name",
    "node",
    "pool",
    "pid",
    "state",
    "memory_bytes",
    "uptime_s",
    "started_at",
    "done",
    "failed",
    "task",
    "task_started_at",
    "tasks",
    "elapsed_s",
    "last_seen",
];

/// Asserts that the object has these fields and no others.
pub(crate) fn has_exactly(value: &Value, fields: &[&str]) {
    let mut wanted: Vec<&str> = fields.to_vec();
    wanted.sort_unstable();
    let object = value.as_object().unwrap_or_else(|| panic!("an object, and not {value}"));
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
}

fn is_moment(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("a moment, and not {value}"));
    assert!(text.len() == 24 && text.ends_with('Z') && text.as_bytes()[10] == b'T', "{text}");
}

#[test]
fn submit_prints_the_id() {
    let place = Place::new();
    let made = place.json(["submit", "mail", "send"]);
    has_exactly(&made, &["id", "result"]);
    assert_eq!(made["result"], "created");
    let waited = place.json(["cancel", made["id"].as_str().expect("an id")]);
    has_exactly(&waited[0], &["id", "result", "state", "copy", "holder"]);
}

#[test]
fn a_task_of_any_state_has_the_same_fields() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let queued = place.json(["submit", "later", "send", "--in", "5m", "--key", "k"]);
    hands.enqueue("mail", "send", "1");
    hands.complete("mail", r#"{"sent":true}"#);
    let failed = hands.enqueue("mail", "send", "2");
    let task = hands.begin("mail");
    hands.step(task.lease.as_ref(), "fetched", "[1]");
    let failure = Failure {
        details: Some("a stack".into()),
        step: Some("move".into()),
        hint: Some("look".into()),
        ..Failure::new(ErrorClass::Permanent, "no")
    };
    hands.end(task, Outcome::Failed(failure), None);
    let cancelled = hands.enqueue("mail", "send", "3").to_string();
    place.done(["cancel", &cancelled]);
    let running = hands.enqueue("mail", "send", "4").to_string();
    let _held = hands.begin("mail");

    let list = place.json(["ls"]);
    assert_eq!(list.as_array().map(Vec::len), Some(5));
    for task in list.as_array().expect("a list") {
        has_exactly(task, &SUMMARY);
        is_moment(&task["created_at"]);
        let shown = place.json(["show", task["id"].as_str().expect("an id")]);
        has_exactly(&shown, &[&SUMMARY[..], &DETAIL, &["reason", "transitions"]].concat());
        for attempt in shown["attempts"].as_array().expect("a list") {
            has_exactly(attempt, &ATTEMPT);
            is_moment(&attempt["started_at"]);
        }
    }

    let shown = place.json(["show", queued["id"].as_str().expect("an id")]);
    is_moment(&shown["run_at"]);
    assert_eq!(
        (&shown["waits_for"], &shown["key"], &shown["error"]),
        (&json!("scheduled"), &json!("k"), &Value::Null)
    );
    assert_eq!(
        (&shown["output"], &shown["lease"], &shown["attempts"]),
        (&Value::Null, &Value::Null, &json!([]))
    );

    let shown = place.json(["show", &failed.to_string()]);
    has_exactly(&shown["error"], &ERROR);
    assert_eq!(shown["reason"], "permanent");
    let [end] = shown["transitions"].as_array().expect("a list").as_slice() else { panic!("{shown}") };
    has_exactly(end, &["at", "state", "why", "run_at"]);
    assert_eq!((&end["state"], &end["why"]), (&json!("failed"), &json!("permanent")));
    assert_eq!(
        place.json(["dead", "show", &failed.to_string()])["reason"],
        shown["reason"],
        "as a dead letter"
    );
    assert_eq!(
        shown["error"],
        json!({
            "class": "permanent", "message": "no", "details": "a stack", "step": "move", "hint": "look", "exit_code": null
        })
    );
    assert_eq!(
        (&shown["steps"], &shown["attempts"][0]["error"]),
        (&json!({"fetched": [1]}), &shown["error"])
    );
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["state"], &attempt["number"], &attempt["files"]),
        (&json!("failed"), &json!(1), &json!([]))
    );
    is_moment(&attempt["finished_at"]);
    assert!(attempt["duration_ms"].is_u64(), "{attempt}");

    let shown = place.json(["show", &running]);
    has_exactly(&shown["lease"], &["node", "token"]);
    assert_eq!(shown["lease"]["node"], hands.session.to_string());
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["state"], &attempt["finished_at"], &attempt["duration_ms"]),
        (&json!("running"), &Value::Null, &Value::Null)
    );
}

#[test]
fn dead_letters_have_their_fields_in_a_list_and_alone() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "2").to_string();
    let task = hands.begin("mail");
    hands.step(task.lease.as_ref(), "fetched", "[1]");
    let failure = Failure { details: Some("a stack".into()), ..Failure::new(ErrorClass::Permanent, "no") };
    hands.end(task, Outcome::Failed(failure), None);
    let listed = place.json(["dead", "ls"])[0].clone();
    has_exactly(&listed, &[&SUMMARY[..], &LETTER].concat());
    let shown = place.json(["dead", "show", &id]);
    let mut fields = [&SUMMARY[..], &DETAIL, &LETTER].concat();
    fields.sort_unstable();
    fields.dedup();
    has_exactly(&shown, &fields);
    for letter in [listed, shown] {
        assert_eq!(
            (&letter["id"], &letter["kind"], &letter["failures"]),
            (&json!(id), &json!("send"), &json!(1))
        );
        assert_eq!((&letter["reason"], &letter["class"]), (&json!("permanent"), &json!("permanent")));
        assert_eq!((&letter["details"], &letter["steps"]), (&json!("a stack"), &json!({"fetched": [1]})));
        is_moment(&letter["first_failure"]);
        is_moment(&letter["last_failure"]);
    }
}

#[test]
fn each_failure_stands_with_its_attempt_and_the_first_and_the_last_are_at_hand() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "2").to_string();
    for (class, message) in [(ErrorClass::Partial, "half"), (ErrorClass::Permanent, "never")] {
        // Another attempt of the same task, without the delay.
        place.run(["retry", &id]);
        let task = hands.begin("mail");
        let failure = Failure {
            details: Some(format!("more about {message}")),
            step: Some("move".into()),
            hint: Some("look".into()),
            ..Failure::new(class, message)
        };
        hands.end(task, Outcome::Failed(failure), None);
    }
    let shown = place.json(["show", &id]);
    let attempts = shown["attempts"].as_array().expect("a list");
    let errors: Vec<&Value> = attempts.iter().map(|attempt| &attempt["error"]).collect();
    let error = |class: &str, message: &str| json!({"class": class, "message": message, "details": format!("more about {message}"), "step": "move", "hint": "look", "exit_code": null});
    assert_eq!(errors, [&error("partial", "half"), &error("permanent", "never")]);
    assert_eq!(shown["first_failure"], attempts[0]["finished_at"]);
    assert_eq!(shown["last_failure"], attempts[1]["finished_at"]);
    let text = place.done(["show", &id]);
    assert!(text.contains("first failure") && text.contains("last failure"), "{text}");
}

#[test]
fn a_list_leaves_the_details_to_show() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "2");
    let task = hands.begin("mail");
    let failure = Failure { details: Some("a stack".into()), ..Failure::new(ErrorClass::Permanent, "no") };
    hands.end(task, Outcome::Failed(failure), None);
    let error = &place.json(["ls"])[0]["error"];
    assert_eq!((&error["message"], &error["details"]), (&json!("no"), &Value::Null));
}

#[test]
fn a_task_that_came_too_late_says_so() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send", "--not-after", "2020-01-01T00:00:00Z"]);
    let hands = Hands::join(&place);
    hands.wait(hands.store.make_ready(100)).expect("the store is looked after");
    let task = place.json(["show", id.trim()]);
    assert_eq!((&task["state"], &task["error"]["class"]), (&json!("cancelled"), &json!("expired")));
    assert!(place.done(["ls"]).contains("cancelled (expired)"));
}

#[test]
fn figures_nodes_and_workers_have_their_fields() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    hands.complete("mail", "1");
    let task = hands.enqueue("mail", "send", "2");
    let ids = Ids::new(99);
    let now = SystemClock.now();
    let idle = Worker {
        id: ids.worker(),
        name: "shell-1".to_owned(),
        pool: "mail".into(),
        pid: None,
        state: WorkerState::Idle,
        memory_bytes: None,
        started_at: now,
        done: 3,
        failed: 1,
        task: None,
    };
    let busy = Worker {
        id: ids.worker(),
        pid: Some(17),
        state: WorkerState::Busy,
        memory_bytes: Some(4096),
        task: Some((task, now)),
        ..idle.clone()
    };
    hands.wait(hands.store.report(hands.session, vec![idle, busy], Vec::new())).expect("it is reported");

    let stats = place.json(["stats"]);
    let figures =
        ["tasks", "submitted", "totals", "queue_high_water", "workers", "all_kinds", "kinds", "held"];
    has_exactly(&stats, &figures);
    let totals = ["submitted", "completed", "failed", "cancelled", "attempts", "retried", "replayed"];
    has_exactly(&stats["totals"], &totals);
    has_exactly(&stats["all_kinds"], &["count", "avg_ms", "p50_ms", "p99_ms"]);
    has_exactly(&stats["tasks"], &["queued", "claimed", "running", "completed", "failed", "cancelled"]);
    assert_eq!(stats["workers"], json!({"total": 2, "idle": 1, "busy": 1}));
    has_exactly(&stats["kinds"]["send"], &["count", "avg_ms", "p50_ms", "p99_ms"]);

    let workers = place.json(["workers"]);
    for worker in workers.as_array().expect("a list") {
        has_exactly(worker, &WORKER);
        is_moment(&worker["last_seen"]);
    }
    assert_eq!((&workers[0]["task"], &workers[0]["elapsed_s"]), (&Value::Null, &Value::Null));
    assert_eq!((&workers[1]["task"], &workers[1]["pid"]), (&json!(task.to_string()), &json!(17)));
    is_moment(&workers[1]["task_started_at"]);

    let nodes = place.json(["nodes"]);
    has_exactly(
        &nodes[0],
        &["id", "name", "host", "pid", "version", "state", "joined_at", "pools", "settings"],
    );
    has_exactly(&nodes[0]["pools"][0], &["name", "workers"]);
    assert_eq!((&nodes[0]["state"], &nodes[0]["name"]), (&json!("alive"), &json!("hands")));
}

#[test]
fn care_and_requests_have_their_fields() {
    let place = Place::new();
    has_exactly(&place.json(["pause", "mail"]), &["queue", "paused"]);
    has_exactly(&place.json(["resume", "mail"]), &["queue", "paused"]);
    has_exactly(&place.json(["db", "check"]), &["store", "ok", "version", "newest", "problems"]);
    has_exactly(&place.json(["db", "migrate", "--check"]), &["store", "from", "to", "pending"]);
    has_exactly(&place.json(["db", "backup", "b.db"]), &["file", "bytes"]);
    let restored = place.json(["db", "restore", "b.db"]);
    has_exactly(&restored, &["store", "backup", "version", "bytes", "former"]);
    has_exactly(&place.json(["db", "prune"]), &["tasks", "strays"]);
}
