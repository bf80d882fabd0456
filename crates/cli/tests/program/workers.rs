//! Pools of persistent workers, with the real program and the real python3.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ostler::{Place, Running};

/// A worker that obeys its payload.
pub(crate) const WORKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../process/tests/process/worker.py");
/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// A place whose node has a pool "docs" of workers with this command.
fn place(start: &str, lines: &str) -> Place {
    let place = Place::new();
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.docs]\nexecutor = \"process\"\n\
         command = [\"python3\", \"{WORKER}\", \"{start}\"]\ngrace = \"1s\"\nmin_workers = 2\nmax_workers = 2\n\
         retry = {{ base = \"10ms\" }}\n{lines}\n"
    );
    place.write("ostler.toml", config);
    place
}

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

/// Submits an instruction for a worker.
fn submit(place: &Place, what: &str, how: &Value, words: &[&str]) -> String {
    let payload = json!({"do": what, "how": how}).to_string();
    let words = [&["submit", "docs", "k", "--payload", &payload], words].concat();
    place.done(words).trim().to_owned()
}

/// The result of a task that was waited for.
fn run(place: &Place, what: &str, how: &Value) -> Value {
    serde_json::from_str(&submit(place, what, how, &["--wait"])).expect("an output is JSON")
}

/// Polls until a value is found.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
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

/// The workers, once this many of them are idle and none is starting or stopping.
fn idle(place: &Place, count: usize) -> Vec<Value> {
    until("workers are idle", || {
        let workers = place.json(["workers"]).as_array().cloned().expect("a list");
        (workers.len() == count && workers.iter().all(|worker| worker["state"] == "idle")).then_some(workers)
    })
}

fn pid(worker: &Value) -> u32 {
    u32::try_from(worker["pid"].as_u64().expect("a pid")).expect("a pid")
}

fn pids(workers: &[Value]) -> Vec<u32> {
    workers.iter().map(pid).collect()
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("it is ours");
}

/// A fifo at which a task waits.
fn gate(place: &Place) -> PathBuf {
    let gate = place.folder().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    gate
}

#[test]
fn workers_run_tasks_one_after_the_other_and_are_shown() {
    let place = place("noise", "");
    let node = up(&place);
    let before = pids(&idle(&place, 2));
    let ran: Vec<Value> = (0..6).map(|_| run(&place, "pid", &Value::Null)).collect();
    assert!(ran.iter().all(|pid| before.iter().any(|known| pid == known)), "{ran:?} {before:?}");
    let workers = until("their work is reported", || {
        let workers = idle(&place, 2);
        let done: u64 = workers.iter().filter_map(|worker| worker["done"].as_u64()).sum();
        (done == 6).then_some(workers)
    });
    for worker in &workers {
        assert!(worker["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{worker}");
        assert_eq!((&worker["pool"], &worker["task"]), (&"docs".into(), &Value::Null));
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    assert!(before.iter().all(|pid| !runs(*pid)), "nothing is left of them");
}

#[test]
fn steps_survive_a_failure_and_logs_are_kept() {
    let place = place("well", "");
    let _node = up(&place);
    assert_eq!(run(&place, "fail-once", &json!([7])), json!({"fetched": [7]}));
    let id = submit(&place, "print", &Value::Null, &[]);
    until("it is done", || (place.json(["show", &id])["state"] == "completed").then_some(()));
    let logs = place.done(["logs", &id]);
    assert!(logs.contains("to stdout") && logs.contains("to stderr"), "{logs}");
}

#[test]
fn a_worker_that_is_killed_is_replaced_and_its_task_is_run_again() {
    let place = place("well", "");
    let _node = up(&place);
    let before = pids(&idle(&place, 2));
    kill(before[0]);
    let after = until("another one is there", || {
        let now = pids(&idle(&place, 2));
        (!now.contains(&before[0])).then_some(now)
    });
    assert!(after.contains(&before[1]), "its neighbour stays");
    assert_eq!(run(&place, "die-once", &Value::Null), "at last");
    let task = &place.json(["ls", "--state", "completed"])[0];
    let task = place.json(["show", task["id"].as_str().expect("an id")]);
    assert_eq!((&task["runs"], &task["crashes"]), (&2.into(), &1.into()), "{task}");
    assert_eq!(task["attempts"][0]["error"]["class"], "crash");
    idle(&place, 2);
}

#[test]
fn workers_are_replaced_after_their_tasks() {
    let place = place("well", "recycle = { after_tasks = 2 }");
    let _node = up(&place);
    let ran: Vec<Value> = (0..6).map(|_| run(&place, "pid", &Value::Null)).collect();
    let mut different = ran.clone();
    different.sort_by_key(Value::as_u64);
    different.dedup();
    assert!(different.len() >= 3, "{ran:?}");
    idle(&place, 2);
}

#[test]
fn workers_are_replaced_by_hand_if_they_are_idle() {
    let place = place("well", "");
    let node = up(&place);
    let gate = gate(&place);
    let before = idle(&place, 2);
    let id = submit(&place, "gate", &json!(gate), &[]);
    let (busy, other) = until("one is busy", || {
        let workers = place.json(["workers"]).as_array().cloned().expect("a list");
        let busy = workers.iter().find(|worker| worker["task"] == id.as_str())?.clone();
        let other = workers.iter().find(|worker| worker["state"] == "idle")?.clone();
        Some((busy, other))
    });
    let name = |worker: &Value| worker["id"].as_str().expect("an id").to_owned();
    place.refused(["recycle", &name(&busy)], 1, "is busy, and only idle workers are replaced");
    place.refused(["recycle", &pid(&busy).to_string()], 1, "is busy");
    place.refused(["recycle", &format!("w-{}", &name(&busy)[16..])], 1, "is busy");
    place.refused(["recycle", &name(&busy)[..5]], 2, "may be any of 2 workers");
    let said = place.json(["recycle", &pid(&other).to_string()]);
    assert_eq!(said, json!({"recycled": [name(&other)], "busy": []}));
    let other = until("another one is there", || {
        let workers = place.json(["workers"]).as_array().cloned().expect("a list");
        workers.into_iter().find(|worker| {
            worker["state"] == "idle" && !before.iter().any(|known| known["id"] == worker["id"])
        })
    });
    let said = place.json(["recycle", "--all", "docs"]);
    assert_eq!(said, json!({"recycled": [name(&other)], "busy": [name(&busy)]}));

    std::fs::write(&gate, "go\n").expect("the gate opens");
    until("it is done", || (place.json(["show", &id])["state"] == "completed").then_some(()));
    let workers = idle(&place, 2);
    let said = place.done(["recycle", &format!("w-{}", name(&workers[0]))]);
    assert!(said.contains("is being replaced"), "{said}");
    until("both are there again", || (!idle(&place, 2).contains(&workers[0])).then_some(()));
    let any = place.json(["recycle", "--any", "docs"]);
    assert_eq!(any["recycled"].as_array().map(Vec::len), Some(1), "{any}");

    // One of the two may still be starting.
    idle(&place, 2);
    let all = place.json(["recycle", "docs"]);
    assert_ne!(all["recycled"], json!([]), "the name of a pool is enough: {all}");
    place.refused(["recycle", "--any", "nothing"], 4, "no running node has workers for \"nothing\"");
    place.refused(["recycle", &name(&other)], 4, "no worker");
    place.refused(["recycle", "999999999"], 4, "no worker");
    place.refused(["recycle"], 2, "required");
    place.refused(["recycle", "--any", "docs", "--all", "docs"], 2, "cannot be used with");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

/// Handlers of the Python SDK: one prints a secret, the others never return a result.
const SECRETIVE: &str = "import os, time\nfrom ostler import worker\n\n\
    @worker.task('secret')\ndef secret(payload, ctx):\n    print('password of tenant A is hunter2')\n\n\
    @worker.task('die')\ndef die(payload, ctx):\n    os._exit(9)\n\n\
    @worker.task('hang')\ndef hang(payload, ctx):\n    time.sleep(600)\n\n\
    worker.run()\n";

#[test]
fn what_one_task_printed_is_in_its_own_log_and_in_nothing_of_the_next() {
    let place = Place::new();
    let script = place.write("tasks.py", SECRETIVE);
    let config = format!(
        "lease = {{ poll = \"100ms\" }}\n[pool.py]\nexecutor = \"process\"\nmax_workers = 1\ngrace = \"1s\"\n\
         command = [\"python3\", \"{}\"]\n\
         env = {{ PYTHONPATH = \"{}/../../sdk/python\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n",
        script.display(),
        env!("CARGO_MANIFEST_DIR")
    );
    place.write("ostler.toml", config);
    let _node = up(&place);
    for (last, words) in [("die", &[][..]), ("hang", &["--timeout", "300ms"])] {
        place.done(["submit", "py", "secret", "--wait"]);
        let ran = place.run([&["submit", "py", last, "--attempts", "1", "--wait"], words].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!ran.err.contains("hunter2"), "{ran:?}");
    }
    for failed in place.json(["ls", "--state", "failed"]).as_array().expect("a list") {
        let id = failed["id"].as_str().expect("an id");
        for words in [&["show", id][..], &["show", "--json", id], &["logs", id], &["dead", "show", id]] {
            assert!(!place.done(words).contains("hunter2"), "{words:?}: {failed}");
        }
    }
    for done in place.json(["ls", "--state", "completed"]).as_array().expect("a list") {
        let said = place.done(["logs", done["id"].as_str().expect("an id")]);
        assert_eq!(said, "password of tenant A is hunter2\n");
    }
}

#[test]
fn workers_that_do_not_come_up_pause_the_queue_with_the_reason_until_it_is_resumed() {
    let place = Place::new();
    let worker = place.write("worker.py", "import sys\nsys.exit('no library')\n");
    place.write(
        "ostler.toml",
        format!(
            "lease = {{ poll = \"100ms\" }}\n[pool.docs]\nexecutor = \"process\"\nmax_workers = 1\n\
             command = [\"python3\", \"{}\", \"well\"]\n",
            worker.display()
        ),
    );
    let node = up(&place);
    let id = submit(&place, "echo", &json!(1), &[]);
    node.says("the worker exited with code 1 before it was ready: no library");
    let doctor = until("the queue is paused", || {
        let doctor = place.run(["doctor"]).out;
        doctor.contains("is paused").then_some(doctor)
    });
    let cause = "error    The workers of pool \"docs\" fail to start: the worker exited with code 1 before it was ready: no library";
    assert!(doctor.starts_with(cause), "the cause comes first: {doctor}");
    assert!(!doctor.contains("No node") && !doctor.contains("Start a node"), "{doctor}");
    assert_eq!(place.json(["show", &id])["runs"], 0);
    place.write("worker.py", std::fs::read_to_string(WORKER).expect("it is there"));
    place.done(["resume", "docs"]);
    until("it is done", || (place.json(["show", &id])["state"] == "completed").then_some(()));
}

#[test]
fn a_task_that_a_worker_has_in_hand_at_a_drain_may_end() {
    let place = place("well", "");
    let node = up(&place);
    let all = pids(&idle(&place, 2));
    let gate = gate(&place);
    let id = submit(&place, "gate", &json!(gate), &[]);
    until("it runs", || place.folder().join("gate.began").exists().then_some(()));
    node.signal(ProcessSignal::TERM);
    node.says("draining");
    std::fs::write(&gate, "go\n").expect("the gate opens");
    assert_eq!(node.end().0, Some(0));
    let task = place.json(["show", &id]);
    assert_eq!(
        (&task["state"], &task["output"], &task["runs"]),
        (&"completed".into(), &"through".into(), &1.into())
    );
    assert!(all.iter().all(|pid| !runs(*pid)));
}

#[test]
fn a_kind_that_the_workers_do_not_name_waits() {
    let place = place("picky", "");
    let _node = up(&place);
    idle(&place, 2);
    let other = place.done(["submit", "docs", "other", "--payload", "{\"do\":\"echo\"}"]);
    assert_eq!(run(&place, "echo", &json!(5)), 5);
    let task = place.json(["show", other.trim()]);
    assert_eq!((&task["state"], &task["failures"]), (&"queued".into(), &0.into()));
}

#[test]
fn no_worker_outlives_its_node() {
    let place = place("stubborn", "");
    let node = up(&place);
    let all = pids(&idle(&place, 2));
    node.signal(ProcessSignal::KILL);
    until("all are gone", || all.iter().all(|pid| !runs(*pid)).then_some(()));
}

#[test]
fn the_examples_in_three_languages_run_under_a_node() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let place = Place::new();
    // The package is where node looks for it, as after an installation.
    let modules = place.folder().join("node_modules");
    std::fs::create_dir(&modules).expect("a folder");
    std::os::unix::fs::symlink(format!("{root}/sdk/js"), modules.join("ostler")).expect("a link");
    std::fs::copy(format!("{root}/examples/worker.mjs"), place.folder().join("worker.mjs")).expect("a copy");
    let python = format!("env = {{ PYTHONPATH = \"{root}/sdk/python\", PYTHONDONTWRITEBYTECODE = \"1\" }}");
    let pool = |name: &str, argv: &str, more: &str| {
        format!("[pool.{name}]\nexecutor = \"process\"\ncommand = [{argv}]\nmax_workers = 1\n{more}\n")
    };
    let config = [
        pool("bash", &format!("\"bash\", \"{root}/examples/worker.sh\""), ""),
        pool("python", &format!("\"python3\", \"{root}/examples/worker.py\""), &python),
        pool("js", &format!("\"node\", \"{}\"", place.folder().join("worker.mjs").display()), ""),
    ];
    place.write("ostler.toml", config.concat());
    let node = up(&place);
    for pool in ["bash", "python", "js"] {
        let words = ["submit", pool, "count", "--payload", "{\"text\":\"to be or not\"}", "--wait"];
        let ran = place.run(words);
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "{\"words\":4}\n"), "{pool}: {ran:?}");
        let ran = place.run(["submit", pool, "count", "--payload", "{}", "--wait"]);
        ran.is_refused(1, "the payload has no text");
    }
    for task in place.json(["ls", "--state", "completed"]).as_array().expect("a list") {
        let task = place.json(["show", task["id"].as_str().expect("an id")]);
        assert_eq!(task["steps"], json!({"split": ["to", "be", "or", "not"]}), "{task}");
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

/// The workers that are gone, once there are this many.
fn gone(place: &Place, count: usize) -> Vec<Value> {
    until("workers are gone", || {
        let gone = place.json(["workers", "--gone"]).as_array().cloned().expect("a list");
        (gone.len() == count).then_some(gone)
    })
}

#[test]
fn workers_that_are_gone_are_listed_with_what_they_did() {
    let place = place("well", "");
    let node = up(&place);
    let pids = pids(&idle(&place, 2));
    assert_eq!(place.done(["workers", "--gone"]), "no worker is gone\n");
    for _ in 0..3 {
        run(&place, "pid", &Value::Null);
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    let closed = gone(&place, 2);
    let sum = |field: &str| closed.iter().filter_map(|worker| worker[field].as_u64()).sum::<u64>();
    assert_eq!((sum("done"), sum("failed")), (3, 0));
    for worker in &closed {
        assert_eq!((&worker["end"], &worker["pool"]), (&json!("closed"), &json!("docs")));
        assert!(pids.contains(&pid(worker)), "{worker} {pids:?}");
    }
    let killed = up(&place);
    idle(&place, 2);
    killed.signal(ProcessSignal::KILL);
    let next = up(&place);
    let all = gone(&place, 4);
    assert!(all[..2].iter().all(|worker| worker["end"] == "node_died"), "the newest first: {all:?}");
    assert!(place.done(["workers", "--gone"]).contains("node_died"));
    next.signal(ProcessSignal::TERM);
    assert_eq!(next.end().0, Some(0));
}

#[test]
fn a_worker_that_does_nothing_is_ended_before_its_timeout() {
    let place = place("well", "stuck_after = \"1s\"");
    let node = up(&place);
    let id = submit(&place, "hang-politely", &Value::Null, &["--attempts", "1"]);
    let dead = until("it is found", || {
        let shown = place.json(["show", &id]);
        (shown["state"] == "failed").then_some(shown)
    });
    assert_eq!(dead["error"]["class"], "stuck", "{dead}");
    assert_eq!(run(&place, "echo", &json!(7)), 7, "another worker has its place");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}
