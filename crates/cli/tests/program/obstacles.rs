//! `ostler submit` says why nothing will happen: at once, and while it waits. Standard output and exit codes stay as they are.

use crate::ostler::{Place, Running};
use crate::workers::until;

const SHELL: &str = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\nmax_workers = 1\nretry = { base = \"1h\", max = \"1h\" }\n";

/// A node with a pool of one worker, that is ready.
fn up(place: &Place) -> Running {
    place.write("ostler.toml", SHELL);
    let node = Running::start(place.command(["up"]));
    node.line();
    node
}

/// What standard error has about a task that is enqueued, with the id on standard output alone.
fn said(place: &Place, words: &[&str]) -> String {
    let ran = place.run(["submit"].iter().chain(words));
    assert_eq!((ran.code, ran.out.trim().len()), (Some(0), 26), "{ran:?}");
    ran.err
}

#[test]
fn a_task_that_no_node_will_take_is_enqueued_with_a_sentence() {
    let place = Place::new();
    assert_eq!(
        said(&place, &["shell", "run"]),
        "ostler: no node is up, so the task waits until one is; to start a node with a pool for it: ostler up\n"
    );
    let node = up(&place);
    assert_eq!(
        said(&place, &["shel", "run"]),
        "ostler: no node serves the queue \"shel\"; did you mean \"shell\"?\n"
    );
    assert_eq!(
        said(&place, &["invoices", "run"]),
        "ostler: no node serves the queue \"invoices\"; there are \"shell\"\n"
    );
    assert_eq!(said(&place, &["shell", "run", "--payload", "\"true\""]), "");
    // With --json, standard output is JSON and nothing else.
    let ran = place.run(["submit", "shel", "run", "--json"]);
    assert_eq!(ran.json()["result"], "created");
    assert!(ran.err.contains("did you mean \"shell\"?"), "{ran:?}");
    // Of many lines, each sentence once.
    let lines = "{}\n{}\n{}\n";
    let many = place.run_with(["submit", "shel", "run", "--jsonl", "-"], lines.as_bytes());
    assert_eq!(many.err.matches("did you mean").count(), 1, "{many:?}");
    drop(node);
}

#[test]
fn a_queue_that_is_held_is_said_with_the_command_that_frees_it() {
    let place = Place::new();
    let node = up(&place);
    place.done(["pause", "shell", "--reason", "the disk is changed"]);
    assert_eq!(
        said(&place, &["shell", "run"]),
        "ostler: the queue \"shell\" is paused: \"the disk is changed\"; resume the queue: ostler resume shell\n"
    );
    // One that is due later may be free by then.
    assert_eq!(said(&place, &["shell", "run", "--in", "1h"]), "");
    place.done(["resume", "shell"]);
    place.done(["breaker", "open", "shell", "--for", "1h"]);
    let open = said(&place, &["shell", "run"]);
    assert!(
        open.starts_with("ostler: the breaker of the queue \"shell\" is open, for another ")
            && open.ends_with("; reset the breaker: ostler breaker reset shell\n"),
        "{open}"
    );
    drop(node);
}

#[test]
fn a_caller_that_waits_is_told_each_reason_once_and_the_next_one_when_it_changes() {
    let place = Place::new();
    place.write("ostler.toml", SHELL);
    let waiting =
        Running::start(place.command(["submit", "shell", "run", "--payload", "\"echo done\"", "--wait"]));
    assert!(waiting.says("waiting for it to finish").contains("is enqueued"));
    assert!(waiting.says("no node is up").ends_with("ostler up"));
    place.done(["pause", "shell", "--reason", "not yet"]);
    assert!(waiting.says("is paused: \"not yet\"").ends_with("ostler resume shell"));
    let node = up(&place);
    place.done(["resume", "shell"]);
    assert_eq!(waiting.line(), "\"done\"");
    assert!(waiting.errors().is_empty(), "nothing else is printed");
    assert_eq!(waiting.end().0, Some(0));
    drop(node);
}

#[test]
fn a_caller_behind_a_busy_worker_and_before_a_retry_is_told() {
    let place = Place::new();
    let node = up(&place);
    let end = place.folder().join("end");
    let script = format!("until test -e {}; do sleep 0.05; done", end.display());
    let busy = place.done(["submit", "shell", "run", "--payload", &serde_json::json!(script).to_string()]);
    until("it runs", || (place.json(["show", busy.trim()])["state"] == "running").then_some(()));
    let waiting = Running::start(place.command([
        "submit",
        "shell",
        "run",
        "--payload",
        "\"exit 7\"",
        "--attempts",
        "2",
        "--wait",
        "--wait-timeout",
        "1h",
    ]));
    assert!(waiting.says("is busy").contains("the only worker of the pool \"shell\" is busy"));
    place.write("end", "");
    let retry = waiting.says("attempt 1 failed");
    assert!(retry.contains("attempt 1 failed: exit code 7; the next one starts in "), "{retry}");
    drop(waiting);
    drop(node);
}

#[test]
fn a_kind_without_a_handler_is_told_at_once_if_it_looks_like_another_and_to_a_caller_that_waits() {
    const WORKER: &str = "from ostler import worker\n\n@worker.task(\"add\")\ndef add(payload, ctx):\n    return 1\n\nworker.run()\n";
    const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
    let place = Place::new();
    let worker = place.write("worker.py", WORKER);
    place.write(
        "ostler.toml",
        format!(
            "[pool.py]\nexecutor = \"process\"\ncommand = [\"python3\", \"{}\"]\nmax_workers = 1\n\
             env = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n",
            worker.display()
        ),
    );
    let node = Running::start(place.command(["up"]));
    node.line();
    place.done(["submit", "py", "add", "--wait"]);
    assert_eq!(
        said(&place, &["py", "ad"]),
        "ostler: no task of the kind \"ad\" has run in the queue \"py\" yet; did you mean \"add\"?\n"
    );
    assert_eq!(said(&place, &["py", "multiply"]), "");
    let waiting = Running::start(place.command(["submit", "py", "subtract", "--wait"]));
    let told = waiting.says("takes the kind");
    assert!(
        told.contains(
            "no worker of the pool \"py\" takes the kind \"subtract\", although 1 is idle; is there a handler for it? Kinds that \
             have run there: \"add\""
        ),
        "{told}"
    );
    let list = place.json(["ls", "--kind", "subtract"]);
    let id = list[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(place.json(["show", &id])["obstacles"][0]["code"], "kind_unserved");
    let shown = place.done(["show", &id]);
    assert!(shown.contains("\nnot started   no worker of the pool \"py\" takes the kind"), "{shown}");
    drop((waiting, node));
}
