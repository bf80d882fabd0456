//! Limits of a config, as enforced by nodes: over several nodes, with real children.

use std::io::Write as _;
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Failure, Outcome};
use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::ostler::{Place, Running};
use crate::up::{appears, up};

/// A pool that runs the script of its payload, with these lines.
fn configured(lines: &str) -> Place {
    let place = Place::new();
    place.write("ostler.toml", pool(lines));
    place
}

fn pool(lines: &str) -> String {
    format!(
        "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{{{ payload.script }}}}\"]\n\
         retry = {{ attempts = 100, base = \"1ms\", max = \"1ms\" }}\n{lines}\n"
    )
}

/// Polls until it holds.
fn until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + MAX_WAIT;
    while !so() {
        assert!(Instant::now() < deadline, "{what} does not come");
    }
}

fn tasks(place: &Place) -> Value {
    place.json(["stats"])["tasks"].clone()
}

fn completed(place: &Place, count: u64) {
    until("the end of all", || tasks(place)["completed"] == count);
    assert_eq!(tasks(place)["failed"], 0, "what waits does not fail");
}

/// Drains a node.
fn goes(node: Running) {
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

fn payload(tenant: &str, script: &str) -> String {
    json!({"tenant": tenant, "script": script}).to_string()
}

#[test]
fn two_nodes_share_the_rate_of_the_config() {
    let place = configured("rate = { per_second = 20, burst = 1 }\nmax_workers = 4");
    Hands::join(&place).enqueue_many(31, "shell", "run", &payload("a", "true"));
    let began = Instant::now();
    let _nodes = [up(&place, &["--name", "anna"]), up(&place, &["--name", "bert"])];
    completed(&place, 31);
    // One at once, and 30 more at 20 a second; two independent nodes would finish in half the time.
    assert!(began.elapsed() >= Duration::from_millis(1_450), "{:?}", began.elapsed());
    let queue = place.json(["queue", "show", "shell"]);
    assert_eq!(queue["rate"], json!([{"amount": 20, "per_ms": 1_000, "burst": 1}]));
}

#[test]
fn two_nodes_run_no_more_at_once_than_the_total() {
    let place = configured("concurrency = { total = 1 }\nmax_workers = 2");
    // A folder can be created only once: a process that finds it there is not alone.
    let script = "mkdir alone || echo clash >> clashes; echo > ran; rmdir alone";
    let folder = place.folder().display();
    Hands::join(&place).enqueue_many(20, "shell", "run", &payload("a", &format!("cd {folder}; {script}")));
    let _nodes = [up(&place, &["--name", "anna"]), up(&place, &["--name", "bert"])];
    completed(&place, 20);
    assert!(place.folder().join("ran").exists() && !place.folder().join("clashes").exists());
}

#[test]
fn nodes_with_other_limits_refuse_to_start() {
    let place = configured("rate = { per_second = 20 }");
    let _anna = up(&place, &["--name", "anna"]);
    for (lines, sentence) in [
        ("rate = { per_second = 30 }", "rate is 20 per 1s, 2 at once there, and 30 per 1s, 3 at once here"),
        ("rate = { per_second = 20, key = \"payload.a\" }", "\"anna\""),
        ("rate = { per_second = 20, cost = \"payload.a\" }", "cost is not set there, and payload.a here"),
        (
            "rate = { per_second = 20 }\nconcurrency = { total = 3 }",
            "concurrency.total is not set there, and 3 here",
        ),
        ("rate = { per_second = 20 }\nbreaker = { failures = 5, reset = \"5m\" }", "5 failures in a row"),
    ] {
        place.write("other.toml", pool(lines));
        place.refused(["up", "--config", "other.toml"], 2, sentence);
    }
}

#[test]
fn what_is_set_live_outlives_nodes_whose_config_has_no_limits() {
    let place = configured("max_workers = 1");
    let anna = up(&place, &["--name", "anna"]);
    let set = place.run(["queue", "set", "shell", "--rate", "7/s", "--queue-limit", "9", "--json"]);
    assert_eq!((set.code, set.err.as_str()), (Some(0), ""), "no config has limits for it");
    goes(anna);
    let limits = || {
        let view = place.json(["queue", "show", "shell"]);
        (view["rate"][0]["amount"].clone(), view["concurrency"].clone(), view["queue_limit"].clone())
    };
    let anna = up(&place, &["--name", "anna"]);
    assert_eq!(limits(), (json!(7), Value::Null, json!(9)), "they stay");
    goes(anna);
    // A config with limits replaces all of them, with a message.
    place.write("ostler.toml", pool("concurrency = { total = 3 }"));
    let anna = up(&place, &["--name", "anna"]);
    anna.says("the config's limits for shell have replaced");
    assert_eq!(limits(), (Value::Null, json!(3), Value::Null));
    goes(anna);
    // They came from the config, so they are removed with it.
    place.write("ostler.toml", pool(""));
    let _anna = up(&place, &["--name", "anna"]);
    assert_eq!(limits(), (Value::Null, Value::Null, Value::Null));
}

#[test]
fn what_is_set_live_holds_until_a_node_starts_with_a_config() {
    let place = configured("rate = { per_second = 20 }");
    let _anna = up(&place, &["--name", "anna"]);
    let set = place.run(["queue", "set", "shell", "--rate", "7/s", "--concurrency", "3", "--json"]);
    assert!(set.err.contains("the config of node \"anna\" sets limits for shell too (rate)"), "{set:?}");
    let rate = |view: &Value| (view["rate"][0]["amount"].clone(), view["concurrency"].clone());
    assert_eq!(rate(&set.json()), (json!(7), json!(3)));
    assert_eq!(rate(&place.json(["queue", "show", "shell"])), (json!(7), json!(3)));
    let _bert = up(&place, &["--name", "bert"]);
    assert_eq!(
        rate(&place.json(["queue", "show", "shell"])),
        (json!(20), Value::Null),
        "the config's, all of them"
    );
    // Without a config for the queue there is no message.
    assert_eq!(place.run(["queue", "set", "mail", "--rate", "7/s"]).err, "");
}

#[test]
fn an_open_breaker_lets_one_task_try_and_nothing_fails() {
    let place = configured("breaker = { failures = 2, reset = \"1h\" }\nmax_workers = 1");
    let folder = place.folder();
    let gate = folder.join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    // Everything fails until "mended" exists; the first task after that waits at the gate.
    let script = format!(
        "cd {}; [ -e mended ] || exit 1; [ -e passed ] || {{ echo > trying; read line < gate; echo > passed; }}",
        folder.display()
    );
    Hands::join(&place).enqueue_many(4, "shell", "run", &payload("a", &script));
    let _anna = up(&place, &["--name", "anna"]);
    // Tasks claimed before the breaker opened may still be running.
    until("an open breaker", || {
        place.json(["breaker", "ls"])[0]["state"] == "open" && tasks(&place)["queued"] == 4
    });
    let runs = || {
        let list = place.json(["ls"]);
        let all = list.as_array().expect("a list").iter().map(|task| task["runs"].as_u64().unwrap_or(0));
        all.sum::<u64>()
    };
    let failed = runs();
    assert!((2..=3).contains(&failed), "two failures in a row, and one that had begun: {failed}");
    // Another node does not try either.
    let _bert = up(&place, &["--name", "bert"]);
    assert_eq!((runs(), tasks(&place)["queued"].clone()), (failed, json!(4)));
    std::fs::write(folder.join("mended"), "\n").expect("it is mended");
    place.done(["breaker", "open", "shell", "--for", "1ms"]);
    appears(&folder.join("trying"));
    assert_eq!(place.json(["breaker", "ls"])[0]["state"], "half_open");
    let under_way = tasks(&place);
    assert_eq!(
        (&under_way["queued"], &under_way["running"]),
        (&json!(3), &json!(1)),
        "one tries, though two could"
    );
    assert_eq!(runs(), failed + 1);
    std::fs::write(&gate, "go\n").expect("the gate opens");
    completed(&place, 4);
    assert_eq!(place.json(["breaker", "ls"])[0]["state"], "closed");
}

#[test]
fn a_breaker_that_is_opened_by_hand_stops_nodes_until_it_is_reset() {
    let other = "[pool.other]\nexecutor = \"command\"\ncommand = [\"true\"]";
    let place = configured(&format!("max_workers = 2\n{other}"));
    let _anna = up(&place, &[]);
    place.done(["breaker", "open", "shell"]);
    let hands = Hands::join(&place);
    hands.enqueue_many(3, "shell", "run", &payload("a", "true"));
    // A task of another pool of the node completes first, so the node had every opportunity.
    place.done(["submit", "other", "run", "--wait"]);
    assert_eq!((&tasks(&place)["queued"], &tasks(&place)["completed"]), (&json!(3), &json!(1)));
    assert_eq!(place.json(["stats"])["held"][0]["waits_for"], "breaker_open");
    place.done(["breaker", "reset", "shell"]);
    completed(&place, 4);
}

#[test]
fn too_many_requests_hold_the_key_and_nobody_else() {
    let place = configured("concurrency = { key = \"payload.tenant\" }");
    place.done(["queue", "set", "shell", "--key", "payload.tenant"]);
    let hands = Hands::join(&place);
    let first = hands.enqueue("shell", "run", &payload("a", "true"));
    let task = hands.begin("shell");
    let hour = Some(Duration::from_secs(3_600));
    let failure = Failure { retry_after: hour, ..Failure::new(ErrorClass::RateLimited, "too many requests") };
    hands.end(task, Outcome::Failed(failure), None);
    let _node = up(&place, &[]);
    let second = hands.enqueue("shell", "run", &payload("a", "true"));
    hands.enqueue_many(5, "shell", "run", &payload("b", "true"));
    completed(&place, 5);
    for id in [first, second] {
        let task = place.json(["show", &id.to_string()]);
        assert_eq!((&task["state"], &task["held"]["key"]), (&json!("queued"), &json!("a")));
    }
    assert_eq!(place.json(["show", &first.to_string()])["failures"], 0);
    place.done(["queue", "release", "shell", "--key", "a"]);
    until("the second", || place.json(["show", &second.to_string()])["state"] == "completed");
}

#[test]
fn a_task_that_costs_more_than_there_ever_is_runs_and_the_next_one_pays() {
    let place = configured("rate = { per_second = 20, burst = 10, cost = \"payload.tokens\" }");
    let _node = up(&place, &[]);
    let began = Instant::now();
    let costs = |tokens: u32| json!({"tokens": tokens, "script": "echo done"}).to_string();
    for tokens in [30, 1] {
        let ran = place.run(["submit", "shell", "run", "--payload", &costs(tokens), "--wait"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "\"done\"\n"), "{ran:?}");
    }
    // 20 too many were taken, at 20 a second.
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_flood_of_one_tenant_holds_another_up_for_two_tasks_at_most() {
    let place = configured("concurrency = { key = \"payload.tenant\" }\nmax_workers = 1");
    let _node = up(&place, &[]);
    let folder = place.folder();
    let (gate, order) = (folder.join("gate"), folder.join("order"));
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    let task = |tenant: &str| {
        payload(tenant, &format!("cd {}; echo {tenant} >> order; read line < gate", folder.display()))
    };
    let hands = Hands::join(&place);
    hands.enqueue_many(10_000, "shell", "run", &task("a"));
    let started = || std::fs::read_to_string(&order).unwrap_or_default();
    let starts = |count: usize| until("the next start", || started().lines().count() >= count);
    let mut count = 1;
    starts(count);
    let mut most = 0;
    for round in 0..20 {
        // One task of the flood runs, and waits at the gate.
        hands.enqueue("shell", "run", &task("b"));
        let mut others = 1;
        loop {
            let mut open = std::fs::File::options().write(true).open(&gate).expect("the gate is there");
            open.write_all(b"go\n").expect("the gate opens");
            drop(open);
            count += 1;
            starts(count);
            if started().lines().nth(count - 1) == Some("b") {
                break;
            }
            others += 1;
            assert!(others <= 2, "round {round}: {others} tasks of the flood came first");
        }
        most = most.max(others);
    }
    println!("at most {most} tasks came before that of another tenant");
}
