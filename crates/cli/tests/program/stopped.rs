//! A node suspended (SIGSTOP) for longer than its lease: its children end before another node runs their tasks again.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};

use crate::ostler::Place;
use crate::up::up;

/// The minimum number of lines written by the second run, while the first one could write too.
const LINES: usize = 30;

fn lines(path: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Polls until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    while !holds() {
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(Duration::from_millis(10));
    }
}

/// Each attempt writes its number repeatedly. The numbers never decrease: no attempt overlaps the next.
fn a_stopped_node_ends_its_children_before_they_run_elsewhere(here: &Place, pool: &str) {
    let there = here.elsewhere();
    let config = format!(
        "[lease]\nttl = \"4s\"\nheartbeat = \"200ms\"\npoll = \"100ms\"\n[pool.work]\n{pool}\nmax_workers = 1\ngrace = \"200ms\"\n"
    );
    here.write("ostler.toml", &config);
    there.write("ostler.toml", &config);
    let written = here.folder().join("written");
    let payload = serde_json::json!({"file": written.to_str()}).to_string();
    let first = up(here, &["--name", "first"]);
    let id = here.done(["submit", "work", "k", "--payload", &payload]);
    until("it runs", || !lines(&written).is_empty());
    let second = up(&there, &["--name", "second"]);
    first.signal(ProcessSignal::STOP);
    let before = lines(&written).last().copied();
    until("it runs again", || {
        lines(&written).iter().filter(|number| Some(**number) > before).count() >= LINES
    });
    first.signal(ProcessSignal::CONT);
    first.says("rejoined as");
    there.done(["cancel", id.trim()]);
    until("it is cancelled", || there.json(["show", id.trim()])["state"] == "cancelled");
    assert!(lines(&written).is_sorted(), "two ran at once: {:?}", lines(&written));
    let task = there.json(["show", id.trim()]);
    assert_eq!(task["failures"], 0, "that its node was stopped is no failure of the task: {task}");
    for node in [first, second] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}

#[test]
fn children_of_a_stopped_node_end_before_their_tasks_run_elsewhere() {
    let here = Place::shared_file();
    let pool = "executor = \"command\"\ncommand = [\"sh\", \"-c\", \
        \"while echo {{ attempt }} >> {{ payload.file }}; do sleep 0.02; done\"]";
    a_stopped_node_ends_its_children_before_they_run_elsewhere(&here, pool);
}

#[test]
fn workers_of_a_stopped_node_end_before_their_tasks_run_elsewhere_on_a_server_too() {
    let here = Place::on_server();
    // The worker protocol, just enough for one task that never finishes.
    let worker = here.write(
        "worker.py",
        r#"import json, os, socket, time
link = socket.socket(fileno=int(os.environ["OSTLER_FD"]))
link.sendall(b'{"type":"ready","protocol":1}\n')
for line in link.makefile("rb"):
    frame = json.loads(line)
    while frame["type"] == "task":
        with open(frame["payload"]["file"], "a") as file:
            file.write("%d\n" % frame["attempt"])
        time.sleep(0.02)
"#,
    );
    let pool = format!("executor = \"process\"\ncommand = [\"python3\", \"{}\"]", worker.display());
    a_stopped_node_ends_its_children_before_they_run_elsewhere(&here, &pool);
}
