//! Traces: the trace context that a task was submitted with reaches the programs that run it.

use serde_json::Value;

use crate::ostler::{Place, Running, ran};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
const WORKER: &str = "
from ostler import worker

@worker.task('trace')
def trace(payload, ctx):
    return ctx.traceparent

worker.run()
";

/// A place with a pool of commands, one of workers and one of agents.
fn up(place: &Place) -> Running {
    place.write("worker.py", WORKER);
    let config = format!(
        "[lease]\npoll = \"100ms\"\n\
         [pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"printf %s \\\"$${{TRACEPARENT-none}}\\\"\"]\n\
         [pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"worker.py\"]\nenv = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\nmax_workers = 1\n\
         [pool.reviews]\nexecutor = \"agent\"\nagent = \"claude\"\ncommand = [\"python3\", \"{STAND_IN}\"]\nconfig_folders = \"agents\"\n\
         env = {{ STAND_IN_LOG = \"{}\", ANTHROPIC_API_KEY = \"of the pool\" }}\n",
        place.folder().join("log").display()
    );
    place.write("ostler.toml", config);
    let mut command = place.command(["up"]);
    // The node's own trace is not that of its tasks.
    command.env("HOME", place.folder()).env("TRACEPARENT", OTHER);
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

/// What the program of a task knows of its trace.
fn told(place: &Place, words: &[&str]) -> Value {
    let all = ["submit", "--wait"].iter().chain(words);
    serde_json::from_str(&place.done(all)).expect("an output is JSON")
}

fn a_trace_goes_on(place: &Place) {
    let _node = up(place);
    assert_eq!(told(place, &["shell", "trace"]), "none");
    assert_eq!(told(place, &["shell", "trace", "--traceparent", GIVEN]), GIVEN);
    assert_eq!(told(place, &["docs", "trace"]), Value::Null);
    assert_eq!(told(place, &["docs", "trace", "--traceparent", GIVEN]), GIVEN);
    let who = told(place, &["reviews", "review", "--payload", "\"[[who]]\"", "--traceparent", GIVEN]);
    assert!(who.to_string().contains(GIVEN) && !who.to_string().contains(OTHER), "{who}");
    // Programs hand it on by the variable, too. A value that is none is no trace.
    for (variable, expected) in [(OTHER, OTHER), ("nonsense", "none")] {
        let mut command = place.command(["submit", "--wait", "shell", "trace"]);
        let said = ran(command.env("TRACEPARENT", variable));
        assert_eq!(said.out.trim(), format!("\"{expected}\""), "{said:?}");
    }
    let id = place.done(["submit", "shell", "trace", "--traceparent", GIVEN, "--in", "1h"]);
    assert_eq!(place.json(["show", id.trim()])["traceparent"], GIVEN);
}

#[test]
fn a_trace_goes_on_in_the_programs_of_a_task() {
    a_trace_goes_on(&Place::new());
}

#[test]
fn a_trace_goes_on_over_a_server_too() {
    a_trace_goes_on(&Place::on_server());
}

#[test]
fn what_is_no_trace_is_refused_and_creates_no_store() {
    let place = Place::new();
    place.refused(["submit", "q", "k", "--traceparent", "00-x"], 2, "W3C trace context");
    assert!(!place.store().exists());
    let line = "{\"queue\":\"q\",\"kind\":\"k\",\"traceparent\":\"00-x\"}\n";
    let said = place.run_with(["submit", "--jsonl", "-"], line.as_bytes());
    said.is_refused(2, "traceparent: expected a W3C trace context");
}
