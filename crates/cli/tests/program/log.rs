//! The log of `ostler up`: its lines for people and for programs, how many there are, and that no work waits for its reader.

use std::process::Stdio;
use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::Value;

use crate::ostler::{Place, Running, ran};
use crate::up::{configured, script, up};

/// Runs a task that succeeds, and one that fails for good.
fn one_of_each(place: &Place) {
    place.done(["submit", "shell", "run", "--payload", &script("true"), "--wait"]);
    let fails = script("printf 'no \\033[2Jroute' >&2; exit 3");
    place.refused(
        ["submit", "shell", "run", "--payload", &fails, "--attempts", "1", "--wait"],
        1,
        "exit code 3",
    );
}

/// All lines until the one with these words.
fn lines(node: &Running, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.last().is_none_or(|line: &String| !line.contains(last)) {
        lines.push(node.says(""));
    }
    lines
}

#[test]
fn a_node_says_what_it_is_and_each_failure_and_no_more() {
    let place = configured();
    let node = up(&place, &["--name", "anna"]);
    let start = lines(&node, "is up");
    let ready = start.last().expect("there is a line");
    for words in
        ["INFO  node anna (", "store=", "ostler.db", "config=ostler.toml", "version=0.", "shell (max 2)"]
    {
        assert!(ready.contains(words), "\"{words}\" is not in {ready}");
    }
    assert!(
        start.iter().any(|line| line.contains("pool \"shell\" started with 1 to 2 workers")),
        "{start:?}"
    );
    one_of_each(&place);
    let failed = node.says("");
    let time = failed.split(' ').next().expect("a time");
    assert!(time.len() == 24 && time.ends_with('Z'), "{failed}");
    for words in
        [" WARN  task failed and is a dead letter now task=", " queue=shell kind=run ", "error=\"exit code 3"]
    {
        assert!(failed.contains(words), "\"{words}\" is not in {failed}");
    }
    assert!(!failed.contains('\u{1b}'), "{failed:?}");
    node.signal(ProcessSignal::TERM);
    assert!(node.says("").contains("draining: waiting up to 30s for 0 running tasks"));
    node.says("stopped: ");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_verbose_node_says_each_task_and_a_quiet_one_only_failures() {
    let place = configured();
    let node = up(&place, &["-v"]);
    one_of_each(&place);
    for words in
        ["DEBUG task started", "DEBUG task completed task=", "DEBUG task started", "WARN  task failed"]
    {
        node.says(words);
    }
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    let quiet = up(&place, &["-q"]);
    one_of_each(&place);
    assert!(quiet.says("").contains("WARN  task failed"), "it is the first line");
    quiet.signal(ProcessSignal::TERM);
    assert_eq!(quiet.end().0, Some(0));
    place.refused(["up", "-v", "-q"], 2, "cannot be used with");
}

#[test]
fn lines_for_programs_are_objects_with_stable_keys_and_so_is_the_last_one() {
    let place = configured();
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("it is there");
    place.write(
        "ostler.toml",
        format!("shutdown_timeout = \"50ms\"\n{config}[log]\nformat = \"json\"\nlevel = \"debug\"\n"),
    );
    let node = up(&place, &[]);
    one_of_each(&place);
    let read = |line: &String| -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let lines: Vec<Value> = lines(&node, "task.failed").iter().map(read).collect();
    for line in &lines {
        for key in ["time", "level", "target", "event", "message"] {
            assert!(line[key].is_string(), "{key} is not in {line}");
        }
    }
    let failed = lines.last().expect("there is a line");
    assert_eq!((&failed["level"], &failed["target"]), (&"warn".into(), &"ostler::task".into()));
    assert_eq!(
        (&failed["queue"], &failed["attempt"], &failed["class"]),
        (&"shell".into(), &1.into(), &"transient".into())
    );
    assert!(
        failed["duration_ms"].is_u64() && failed["task"].is_string() && failed["worker"].is_string(),
        "{failed}"
    );
    assert!(failed["error"].as_str().is_some_and(|error| error.starts_with("exit code 3")), "{failed}");
    assert!(lines.iter().any(|line| line["event"] == "task.completed"), "{lines:#?}");
    let began = place.folder().join("began");
    let long = script(&format!("echo > {}; sleep 1000", began.display()));
    place.done(["submit", "shell", "run", "--payload", &long]);
    crate::up::appears(&began);
    node.signal(ProcessSignal::TERM);
    let last = read(&node.says("shutdown_timeout"));
    assert_eq!((&last["event"], &last["level"]), (&"exit".into(), &"error".into()));
    assert_eq!(node.end().0, Some(1));
}

#[test]
fn a_filter_in_the_environment_chooses_by_target() {
    let place = configured();
    let mut command = place.command(["up"]);
    command.env("OSTLER_LOG", "off,ostler::task=debug");
    let node = Running::start(command);
    node.line();
    one_of_each(&place);
    assert!(node.says("").contains("task started"), "it is the first line");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
    ran(place.command(["up"]).env("OSTLER_LOG", "ostler=loud")).is_refused(2, "OSTLER_LOG is invalid");
}

/// Waits until this many tasks are completed.
fn completed(place: &Place, tasks: u64) {
    let began = Instant::now();
    while place.json(["stats"])["tasks"]["completed"] != tasks {
        assert!(began.elapsed() < MAX_WAIT, "it does not go on: {}", place.json(["stats"]));
    }
}

#[test]
fn no_work_waits_for_a_log_that_is_closed_or_that_no_one_reads() {
    /// Two lines each, which is more than a pipe holds.
    const TASKS: u64 = 200;
    const LINE: &str = "{\"payload\":\"true\"}\n";
    for is_closed in [true, false] {
        let place = configured();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let kept = (!is_closed).then_some(reader);
        let mut command = place.command(["up", "-v"]);
        let mut node = command.stdout(Stdio::null()).stderr(writer).spawn().expect("it starts");
        // The pipe is open for writing as long as this is.
        drop(command);
        let all = LINE.repeat(usize::try_from(TASKS).expect("it is small"));
        let sent = place.run_with(["submit", "shell", "run", "--jsonl", "-"], all.as_bytes());
        assert_eq!(sent.code, Some(0), "{sent:?}");
        completed(&place, TASKS);
        rustix::process::kill_process(rustix::process::Pid::from_child(&node), ProcessSignal::TERM)
            .expect("it is there");
        assert_eq!(node.wait().expect("it ends").code(), Some(0));
        drop(kept);
    }
}
