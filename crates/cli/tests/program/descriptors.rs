//! A node with a low limit of open files: it returns tasks that it cannot start to the queue, and uses up no attempts.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::{Value, json};

use crate::ostler::{Place, Running, ran};
use crate::up::{appears, script};

/// A worker that obeys its payload.
const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");

fn place(pool: &str) -> Place {
    let place = Place::new();
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.work]\n{pool}\ngrace = \"200ms\"\n"
    );
    place.write("ostler.toml", config);
    place
}

const COMMANDS: &str =
    "executor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\nmax_workers = 16";

/// The program under this limit of open files.
fn limited(place: &Place, ulimit: &str, words: &[&str]) -> Command {
    let program = place.command::<&str>([]);
    let mut limited = Command::new("sh");
    limited
        .arg("-c")
        .arg(format!("ulimit {ulimit} && exec \"$0\" \"$@\""))
        .arg(program.get_program())
        .args(words);
    limited.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(place.folder()).stdin(Stdio::null());
    limited
}

/// A node that reports the limit.
fn up(place: &Place, ulimit: &str) -> Running {
    let node = Running::start(limited(place, ulimit, &["up"]));
    assert!(node.line().contains("ready"));
    node
}

/// Waits until all these tasks have completed, without any failure.
fn all_complete_without_a_failure(place: &Place, ids: &[String]) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    for id in ids {
        loop {
            let task = place.json(["show", id]);
            assert_eq!(task["failures"], json!(0), "{task}");
            if task["state"] == "completed" {
                break;
            }
            assert!(Instant::now() < until, "not in time: {task}");
            let _ = nothing.recv_timeout(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_node_without_descriptors_for_all_its_workers_hands_back_what_it_cannot_start() {
    const TASKS: usize = 24;
    let place = place(COMMANDS);
    let node = up(&place, "-n 42");
    node.says("needs 128 file descriptors, but the limit is 42");
    // They should start together.
    place.done(["pause", "work"]);
    let submit =
        |_| place.done(["submit", "work", "k", "--attempts", "1", "--payload", &script("sleep 0.2")]);
    let ids: Vec<String> = (0..TASKS).map(submit).map(|id| id.trim().to_owned()).collect();
    place.done(["resume", "work"]);
    node.says("the node is short of descriptors");
    all_complete_without_a_failure(&place, &ids);
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn workers_that_find_no_descriptors_are_waited_for_and_the_queue_is_not_paused() {
    const TASKS: usize = 12;
    let place = place(&format!(
        "executor = \"process\"\ncommand = [\"python3\", \"{WORKER}\", \"well\"]\nmin_workers = 12\nmax_workers = 12"
    ));
    let node = up(&place, "-n 48");
    node.says("the node is short of descriptors");
    let payload = json!({"do": "echo", "how": 1}).to_string();
    let submit = |_| place.done(["submit", "work", "k", "--attempts", "1", "--payload", &payload]);
    let ids: Vec<String> = (0..TASKS).map(submit).map(|id| id.trim().to_owned()).collect();
    all_complete_without_a_failure(&place, &ids);
    let queue = place.json(["queue", "show", "work"]);
    assert_eq!(queue["paused"], Value::Null, "{queue}");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_node_that_could_not_start_one_child_is_refused() {
    let place = place(COMMANDS);
    ran(&mut limited(&place, "-n 34", &["up"]))
        .is_refused(2, "needs 128 file descriptors, but the limit is 34");
}

#[test]
fn a_node_raises_its_own_limit_and_its_children_have_the_one_it_was_started_with() {
    let place = place(COMMANDS);
    let node = up(&place, "-Sn 60");
    place.done(["submit", "work", "k", "--payload", &script("echo $(ulimit -Sn) > limit")]);
    assert_eq!(appears(&place.folder().join("limit")), "60\n");
    node.signal(ProcessSignal::TERM);
    let (code, _) = node.end();
    assert_eq!(code, Some(0));
}
