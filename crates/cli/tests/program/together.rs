//! Several nodes on one PostgreSQL server share its queues, and commands reach them on any machine.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::Value;

use crate::ostler::{Place, Running, ran};
use crate::up::{appears, script, up};

const CONFIG: &str = "\
[lease]
ttl = \"20s\"
heartbeat = \"100ms\"
poll = \"500ms\"
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
max_workers = 1
grace = \"200ms\"
";
/// A worker that obeys its payload.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");
/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// Polls until a value is found.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// Two folders, as on two machines, with a node on each.
struct Pair {
    here: Place,
    there: Place,
    anna: Running,
    bert: Running,
}

impl Pair {
    fn up(config: &str) -> Self {
        let here = Place::on_server();
        let there = here.elsewhere();
        here.write("ostler.toml", config);
        there.write("ostler.toml", config);
        let anna = up(&here, &["--name", "anna"]);
        let bert = up(&there, &["--name", "bert"]);
        Self { here, there, anna, bert }
    }

    fn submit(&self, text: &str) -> String {
        self.here.done(["submit", "shell", "run", "--payload", &script(text)]).trim().to_owned()
    }

    fn state(&self, id: &str) -> Value {
        self.there.json(["show", id])["state"].clone()
    }

    /// The name of the node that runs the only task.
    fn holder(&self) -> String {
        let nodes = self.here.json(["nodes"]);
        let workers = self.here.json(["workers"]);
        let busy = list(&workers).iter().find(|worker| worker["task"] != Value::Null);
        let node = &busy.unwrap_or_else(|| panic!("a worker is busy: {workers}"))["node"];
        let found = list(&nodes).iter().find(|listed| listed["id"] == *node);
        found.expect("a worker has a node")["name"].as_str().expect("a name").to_owned()
    }
}

#[test]
fn two_nodes_share_a_queue_and_both_are_seen_from_everywhere() {
    let pair = Pair::up(CONFIG);
    let (first, second) = (pair.here.folder().join("a"), pair.here.folder().join("b"));
    // Neither finishes before the other has started: two nodes with one worker each run them.
    let meet = |mine: &std::path::Path, other: &std::path::Path| {
        let (mine, other) = (mine.display(), other.display());
        pair.submit(&format!("echo > {mine}; while [ ! -e {other} ]; do sleep 0.02; done"))
    };
    let tasks = [meet(&first, &second), meet(&second, &first)];
    for id in &tasks {
        until("both are done", || (pair.state(id) == "completed").then_some(()));
    }
    let nodes: HashSet<Value> =
        tasks.iter().map(|id| pair.here.json(["show", id])["attempts"][0]["node"].clone()).collect();
    assert_eq!(nodes.len(), 2, "each node ran one");
    for place in [&pair.here, &pair.there] {
        let mut names: Vec<String> = list(&place.json(["nodes"]))
            .iter()
            .map(|node| node["name"].as_str().expect("a name").to_owned())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["anna", "bert"]);
        let seen: HashSet<Value> = until("the workers of both are seen", || {
            let workers = place.json(["workers"]);
            let seen: HashSet<Value> = list(&workers).iter().map(|worker| worker["node"].clone()).collect();
            (seen.len() == 2).then_some(seen)
        });
        assert_eq!(seen, nodes);
    }
    for node in [pair.anna, pair.bert] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn a_cancel_a_pause_a_resize_and_a_drain_reach_the_node_that_they_are_for() {
    let pair = Pair::up(CONFIG);
    let began = pair.here.folder().join("began");
    let id = pair.submit(&format!("echo > {}; exec sleep 600", began.display()));
    appears(&began);
    let holder = until("the worker is reported", || {
        let workers = pair.here.json(["workers"]);
        list(&workers).iter().any(|worker| worker["task"] != Value::Null).then(|| pair.holder())
    });
    // The command is run on the machine of the other node.
    let place = if holder == "anna" { &pair.there } else { &pair.here };
    place.done(["cancel", &id]);
    until("it is cancelled", || (pair.state(&id) == "cancelled").then_some(()));
    place.done(["pause", "shell"]);
    let waits = pair.submit("true");
    let sentinel = place.json(["show", &waits]);
    assert_eq!(sentinel["state"], "queued", "{sentinel}");
    place.done(["resume", "shell"]);
    until("it runs again", || (pair.state(&waits) == "completed").then_some(()));
    place.done(["resize", "shell", "2", "3"]);
    until("both pools are larger", || (list(&place.json(["workers"])).len() == 4).then_some(()));
    place.done(["drain", "bert"]);
    pair.bert.says("drain requested");
    assert_eq!(pair.bert.end().0, Some(0));
    assert_eq!(list(&pair.there.json(["nodes"])).len(), 1);
    let last = pair.here.done(["submit", "shell", "run", "--payload", "\"true\""]);
    until("the other goes on", || {
        (pair.here.json(["show", last.trim()])["state"] == "completed").then_some(())
    });
    pair.anna.signal(ProcessSignal::TERM);
    assert_eq!(pair.anna.end().0, Some(0));
}

#[test]
fn a_worker_is_recycled_wherever_it_runs() {
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.docs]\nexecutor = \"process\"\n\
         command = [\"python3\", \"{WORKER}\", \"well\"]\ngrace = \"1s\"\nmin_workers = 1\nmax_workers = 1\n"
    );
    let pair = Pair::up(&config);
    let pids = || -> Option<HashSet<u64>> {
        let workers = pair.there.json(["workers"]);
        let idle = list(&workers).iter().filter(|worker| worker["state"] == "idle");
        let pids: HashSet<u64> = idle.filter_map(|worker| worker["pid"].as_u64()).collect();
        (pids.len() == 2).then_some(pids)
    };
    let before = until("one worker on each", pids);
    pair.there.done(["recycle", "--all", "docs"]);
    until("both were replaced", || pids().filter(|now| now.is_disjoint(&before)));
}

#[test]
fn eight_nodes_that_start_at_once_on_an_empty_database_all_come_up() {
    let place = Place::on_server();
    let places: Vec<Place> = (0..8).map(|_| place.elsewhere()).collect();
    let nodes: Vec<Running> = places
        .iter()
        .map(|place| {
            place.write("ostler.toml", CONFIG);
            Running::start(place.command(["up"]))
        })
        .collect();
    for node in &nodes {
        assert!(node.line().contains("ready"));
    }
    assert_eq!(list(&place.json(["nodes"])).len(), 8);
    for node in nodes {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
    assert_eq!(list(&place.json(["nodes"])).len(), 0);
}

#[test]
fn other_settings_of_a_queue_that_another_machine_serves_are_refused() {
    let here = Place::on_server();
    here.write("ostler.toml", CONFIG);
    let node = up(&here, &["--name", "anna"]);
    let there = here.elsewhere();
    there.write("ostler.toml", format!("{CONFIG}timeout = \"7m\"\n"));
    ran(&mut there.command(["up"])).is_refused(2, "the node \"anna\"");
    let other = up(&there, &["--take-over"]);
    for node in [node, other] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}
