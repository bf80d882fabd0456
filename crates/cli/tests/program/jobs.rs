//! `ostler job`: shows, retries, removes, pauses and cancels jobs; and jobs that are left to a node.

use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::Value;

use crate::map::{jobs, sorted, times};
use crate::ostler::{Place, Running, Terminal};
use crate::up::appears;

#[test]
fn a_job_is_shown_with_what_failed() {
    let place = Place::new();
    place.run(["map", "-q", "--name", "letters", "test {} != b", ":::", "a", "b"]);
    let shown = place.done(["job", "show", "letters"]);
    for words in ["letters", "failed", "2: 1 completed, 1 failed", "FAILED ITEM", "exit code 1"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let view = place.json(["job", "show", "letters"]);
    assert_eq!(view["command"], serde_json::json!(["test {} != b"]));
    let id = view["id"].as_str().expect("an id");
    for name in [id, &id[20..], &id[..12]] {
        assert_eq!(place.json(["job", "show", name])["name"], "letters", "{name}");
    }
    place.refused(["job", "show", "missing"], 4, "there is no job");
}

#[test]
fn failed_items_get_another_go_by_hand() {
    let place = Place::new();
    let words = ["map", "-q", "--name", "letters", "echo {} >> done; test -e go", ":::", "a", "b"];
    assert_eq!(place.run(words).code, Some(1));
    let again = place.run(["job", "retry-failed", "letters", "--json"]);
    assert!(
        again.err.contains("no process is running this job") && again.err.contains("\"ostler map\" command"),
        "{again:?}"
    );
    let again = again.json();
    assert_eq!((&again["done"], &again["tasks"]), (&"retried".into(), &2.into()));
    assert_eq!(place.json(["job", "show", "letters"])["tasks"]["queued"], 2);
    place.write("go", "");
    assert_eq!(place.run(words).code, Some(0));
    assert_eq!(times(&place.folder().join("done")), ["a", "a", "b", "b"]);
}

#[test]
fn a_job_is_removed_with_its_tasks_unless_it_runs() {
    let place = Place::new();
    // A failed job whose map was killed: its tasks are in every state.
    let script = "echo {} >> begun; test {} != 2 || exit 1; test {} != 3 || exec sleep 600";
    let words = ["map", "-j1", "--name", "letters", script, ":::", "1", "2", "3", "4"];
    let running = Running::start(place.command(words));
    let until = Instant::now() + MAX_WAIT;
    while times(&place.folder().join("begun")).len() < 3 {
        assert!(Instant::now() < until, "the third does not begin");
        std::thread::yield_now();
    }
    place.refused(["job", "rm", "letters"], 2, "is running in process");
    assert_eq!(place.json(["job", "show", "letters"])["cancelled_at"], Value::Null, "nothing was done to it");
    drop(running);
    // Its running children are killed first. Until then a removal takes the other tasks, and says how many.
    let mut before = 0;
    let removed = loop {
        let ran = place.run(["job", "rm", "letters", "--json"]);
        if ran.code == Some(0) {
            break ran.json();
        }
        let taken = ran.err.split_once("removed ").and_then(|(_, rest)| rest.split_once(" tasks"));
        before += taken.and_then(|(count, _)| count.parse::<u64>().ok()).unwrap_or(0);
        assert!(Instant::now() < until, "it is not removed: {ran:?}");
    };
    assert_eq!(
        (&removed["done"], before + removed["tasks"].as_u64().expect("a number")),
        (&"removed".into(), 4)
    );
    assert_eq!(jobs(&place).len(), 0);
    assert_eq!(place.json(["ls", "--items"]).as_array().map(Vec::len), Some(0), "its tasks are gone");
    place.refused(["job", "rm", "letters"], 4, "there is no job");
    // The same command starts from scratch.
    std::fs::remove_file(place.folder().join("begun")).expect("the file is there");
    let running = Running::start(place.command(words));
    while times(&place.folder().join("begun")).len() < 3 {
        assert!(Instant::now() < until, "the third does not begin again");
        std::thread::yield_now();
    }
    drop(running);
}

/// Waits until this many items have begun.
fn wait_for_items(place: &Place, count: usize) {
    let until = Instant::now() + MAX_WAIT;
    while times(&place.folder().join("begun")).len() < count {
        assert!(Instant::now() < until, "item {count} does not begin");
        std::thread::yield_now();
    }
}

#[test]
fn a_job_is_paused_resumed_and_cancelled_while_it_runs() {
    let place = Place::new();
    let script = "echo {} >> begun; until test -e {}.go; do sleep 0.01; done";
    let running =
        Running::start(place.command(["map", "-j1", "--name", "slow", script, ":::", "1", "2", "3"]));
    let begun = |count| wait_for_items(&place, count);
    begun(1);
    place.done(["job", "pause", "slow"]);
    assert_eq!(place.json(["job", "show", "slow"])["paused"], "paused by hand");
    place.write("1.go", "");
    running.says("the job is paused");
    assert_eq!(times(&place.folder().join("begun")), ["1"], "nothing begins while it is paused");
    place.done(["job", "resume", "slow"]);
    begun(2);
    place.done(["job", "cancel", "slow"]);
    assert_eq!(running.end().0, Some(1));
    let job = place.json(["job", "show", "slow"]);
    assert_eq!((&job["state"], &job["tasks"]["completed"]), (&"cancelled".into(), &1.into()));
    assert_eq!(sorted(&place.done(["job", "export", "slow"])).len(), 3);
}

#[test]
fn many_items_are_cancelled_only_after_a_question() {
    let place = Place::new();
    let items: Vec<String> = (1..=101).map(|item| item.to_string()).collect();
    let words = ["map", "--detach", "echo", ":::"].into_iter().chain(items.iter().map(String::as_str));
    let id = place.done(words).trim().to_owned();
    let sentence =
        format!("not a terminal, so I cannot ask; add --yes to cancel 101 tasks of job echo ({id})");
    place.refused(["job", "cancel", "echo"], 2, &sentence);
    for (answer, state) in [("n", "unfinished"), ("y", "cancelled")] {
        let mut terminal = Terminal::open();
        terminal.type_line(answer);
        let mut command = place.command(["job", "cancel", "echo"]);
        command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let written = terminal.screen();
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{written}");
        assert!(written.contains(&format!("cancel 101 tasks of job echo ({id}), created ")), "{written}");
        assert_eq!(jobs(&place)[0]["state"], state, "{written}");
    }
    let words = ["map", "--detach", "echo", "-", ":::"].into_iter().chain(items.iter().map(String::as_str));
    place.done(words);
    assert!(place.done(["job", "cancel", "--yes", "echo"]).starts_with("cancelled: 101 tasks of "));
}

#[test]
fn items_are_added_to_a_job_once_and_run_with_its_command() {
    let place = Place::new();
    let words = ["map", "-q", "--name", "letters", "echo {#}{} >> done", ":::", "a", "b"];
    place.done(words);
    let added = place.run(["job", "add", "letters", "b", "c d", "--json"]);
    assert!(added.err.contains("no process is running this job"), "{added:?}");
    let added = added.json();
    assert_eq!((&added["done"], &added["tasks"]), (&"added".into(), &1.into()));
    let job = place.json(["job", "show", "letters"]);
    assert_eq!((&job["state"], &job["items"]), (&"unfinished".into(), &3.into()));
    place.done(words);
    assert_eq!(times(&place.folder().join("done")), ["1a", "2b", "4c d"]);
    assert_eq!(place.json(["job", "show", "letters"])["state"], "completed");
    place.write("more.csv", "name\nAnna\n");
    place.refused(["job", "add", "letters", "--csv", "missing.csv"], 2, "cannot read");
    assert_eq!(place.json(["job", "add", "letters", "--csv", "more.csv"])["tasks"], 1);
}

#[test]
fn the_number_of_items_at_once_is_changed_while_a_job_runs() {
    let place = Place::new();
    let script = "echo {} >> begun; until test -e go; do sleep 0.01; done";
    let running =
        Running::start(place.command(["map", "-j1", "--name", "slow", script, ":::", "1", "2", "3"]));
    let begun = |count| wait_for_items(&place, count);
    begun(1);
    place.done(["job", "set", "slow", "--concurrency", "3"]);
    begun(3);
    place.write("go", "");
    assert_eq!(running.end().0, Some(0));
    place.refused(["job", "set", "slow", "--concurrency", "3"], 4, "no process is running job");
}

#[test]
fn a_job_that_is_left_to_a_node_is_done_by_one_that_serves_jobs() {
    let place = Place::new();
    place.write("ostler.toml", "serve_jobs = true\nshutdown_timeout = \"100ms\"\n");
    let node = Running::start(place.command(["up"]));
    node.line();
    let id = place.done(["map", "--detach", "echo {} >> done", ":::", "a", "b"]);
    node.says("running job");
    let until = Instant::now() + MAX_WAIT;
    while place.json(["job", "show", id.trim()])["state"] != "completed" {
        assert!(Instant::now() < until, "no node runs it");
    }
    assert_eq!(times(&place.folder().join("done")), ["a", "b"]);
    // The node drains while it serves a job that would never finish.
    let id = place.done(["map", "--detach", "echo {} >> begun; exec sleep 600", ":::", "c"]);
    while times(&place.folder().join("begun")).is_empty() {
        assert!(Instant::now() < until, "it does not begin");
        std::thread::yield_now();
    }
    node.signal(ProcessSignal::TERM);
    node.says("1 returned to the queue");
    assert_eq!(node.end().0, Some(1), "not all work has ended");
    let job = place.json(["job", "show", id.trim()]);
    assert_eq!((&job["state"], &job["tasks"]["queued"]), (&"unfinished".into(), &1.into()), "{job}");
}

#[test]
fn a_node_that_serves_a_job_is_one_node_and_is_drained_with_the_job() {
    let place = Place::new();
    place.write("ostler.toml", "name = \"anna\"\nserve_jobs = true\n");
    let node = Running::start(place.command(["up"]));
    node.line();
    let words = ["map", "--detach", "echo {} > began; while [ ! -e go ]; do sleep 0.05; done", ":::", "a"];
    let job = place.done(words).trim().to_owned();
    appears(&place.folder().join("began"));
    let nodes = place.json(["nodes"]);
    let names: Vec<&str> =
        nodes.as_array().expect("a list").iter().filter_map(|node| node["name"].as_str()).collect();
    assert_eq!(names, ["anna"]);
    place.refused(["job", "rm", &job], 2, "is running in process");
    place.done(["drain", "anna"]);
    node.says("drain requested");
    node.says("draining: waiting up to 30s for 1 running task");
    place.write("go", "");
    node.says("stopped: 1 tasks finished");
    assert_eq!(node.end().0, Some(0));
    assert_eq!(place.json(["nodes"]), serde_json::json!([]));
    assert_eq!(place.json(["job", "show", &job])["state"], "completed");
}

#[test]
fn four_jobs_are_served_at_once_and_the_others_wait_for_their_turn() {
    let place = Place::new();
    place.write("ostler.toml", "serve_jobs = true\n");
    let node = Running::start(place.command(["up"]));
    node.line();
    let script = "echo {} > began-{}; while [ ! -e go-{} ]; do sleep 0.05; done";
    let jobs: Vec<String> = ["a", "b", "c", "d", "e"]
        .map(|item| place.done(["map", "--detach", script, ":::", item]).trim().to_owned())
        .to_vec();
    for item in ["a", "b", "c", "d"] {
        appears(&place.folder().join(format!("began-{item}")));
    }
    assert_eq!(place.json(["job", "show", &jobs[4]])["state"], "unfinished", "it waits");
    place.write("go-b", "");
    appears(&place.folder().join("began-e"));
    for item in ["a", "c", "d", "e"] {
        place.write(&format!("go-{item}"), "");
    }
    let until = Instant::now() + MAX_WAIT;
    while jobs.iter().any(|job| place.json(["job", "show", job])["state"] != "completed") {
        assert!(Instant::now() < until, "not all are done");
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_map_beside_a_node_is_told_apart_and_can_be_drained() {
    let place = Place::new();
    let script = "echo {} > began; while [ ! -e go ]; do sleep 0.05; done";
    let running = Running::start(place.command(["map", "-j1", script, ":::", "a", "b"]));
    appears(&place.folder().join("began"));
    let nodes = place.json(["nodes"]);
    let name = nodes[0]["name"].as_str().expect("a name");
    assert!(name.contains(", job "), "{nodes}");
    place.done(["drain", name]);
    running.says("drain requested");
    place.write("go", "");
    running.says("run the same command again");
    assert_eq!(running.end().0, Some(1));
    let job = &jobs(&place)[0];
    assert_eq!((&job["tasks"]["completed"], &job["tasks"]["queued"]), (&1.into(), &1.into()), "{job}");
}

#[test]
fn a_job_is_waited_for_with_its_outcome_as_the_exit_code() {
    let place = Place::new();
    let words = [
        "map",
        "-q",
        "--name",
        "letters",
        "echo > begun; until test -e go; do sleep 0.01; done; test {} != b",
        ":::",
        "a",
        "b",
    ];
    let running = Running::start(place.command(words));
    appears(&place.folder().join("begun"));
    place.refused(["job", "wait", "letters", "--timeout", "20ms"], 1, "has not ended in time");
    let waiting = Running::start(place.command(["job", "wait", "letters"]));
    place.write("go", "");
    assert_eq!(
        waiting.end(),
        (Some(1), vec!["letters failed: 1 completed, 1 failed, 0 cancelled".to_owned()])
    );
    assert_eq!(running.end().0, Some(1));
    place.run(["map", "-q", "--name", "fine", "true", ":::", "a"]);
    assert_eq!(place.done(["job", "wait", "fine"]), "fine completed: 1 completed, 0 failed, 0 cancelled\n");
}
