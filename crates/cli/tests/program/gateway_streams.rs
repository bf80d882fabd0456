//! Streams of the gateway: handlers in Python and in JavaScript that get the events of a query as they arrive, of an agent of the node and of
//! a gateway elsewhere.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::{
    HANDLER, Reference, STAND_IN, ended, handlers, install_javascript_sdk, kill, sessions, twice_killed, up,
};
use crate::ostler::Place;
use crate::workers::until;

/// A handler that opens the gate of its own query when it has the words, asks for a failure, and leaves a third query early.
const PYTHON: &str = r#"
from ostler import TaskError, worker

def opened(payload, event):
    if event.text == payload["words"]:
        open(payload["gate"], "w").close()
    given = {name: value for name, value in event._asdict().items() if value not in (None, "", False)}
    return {"type": event.type, **given}

@worker.task("run")
def run(payload, ctx):
    session = ctx.gateway().create_session()
    seen = [opened(payload, event) for event in session.stream(payload["prompt"], max_iterations=5)]
    if not payload.get("more"):
        return seen
    try:
        for event in session.stream("busy"):
            busy = event.text
    except TaskError as error:
        busy = [busy, error.class_name, int(error.retry_after)]
    for event in session.stream("endless"):
        left = event.text
        break
    return {"seen": seen, "busy": busy, "left": left, "last": session.run_query("Done?").text}

worker.run()
"#;

/// The same in an async handler.
const ASYNC_PYTHON: &str = r#"
from ostler import TaskError, worker

def opened(payload, event):
    if event.text == payload["words"]:
        open(payload["gate"], "w").close()
    given = {name: value for name, value in event._asdict().items() if value not in (None, "", False)}
    return {"type": event.type, **given}

@worker.task("run")
async def run(payload, ctx):
    session = await ctx.gateway().create_session()
    seen = [opened(payload, event) async for event in session.stream(payload["prompt"], max_iterations=5)]
    if not payload.get("more"):
        return seen
    try:
        async for event in session.stream("busy"):
            busy = event.text
    except TaskError as error:
        busy = [busy, error.class_name, int(error.retry_after)]
    async for event in session.stream("endless"):
        left = event.text
        break
    return {"seen": seen, "busy": busy, "left": left, "last": (await session.run_query("Done?")).text}

worker.run()
"#;

const JAVASCRIPT: &str = r#"
import { writeFileSync } from "node:fs";
import { worker } from "ostler";

worker.task("run", async (payload, ctx) => {
  const session = await ctx.gateway().createSession();
  const seen = [];
  for await (const event of session.stream(payload.prompt, { maxIterations: 5 })) {
    if (event.text === payload.words) writeFileSync(payload.gate, "");
    const { text, sessionId, ...given } = event;
    // As the fields are called in Python.
    if (event.type === "usage") given.usage = { input_tokens: event.usage.inputTokens, cost_usd: event.usage.costUsd };
    if (event.type === "result") given.session_id = sessionId;
    else if (text) given.text = text;
    if (given.error === false) delete given.error;
    seen.push(given);
  }
  if (!payload.more) return seen;
  let busy;
  try {
    for await (const event of session.stream("busy")) busy = event.text;
  } catch (error) {
    busy = [busy, error.className, error.retryAfterMs / 1000];
  }
  let left;
  for await (const event of session.stream("endless")) {
    left = event.text;
    break;
  }
  return { seen, busy, left, last: (await session.runQuery("Done?")).text };
});
worker.run();
"#;

/// The handlers, by the file that has each, and the program that runs it.
const HANDLERS: [(&str, &str, &str); 3] = [
    ("python3", "sync.py", PYTHON),
    ("python3", "async.py", ASYNC_PYTHON),
    ("node", "handler.mjs", JAVASCRIPT),
];

/// A place whose pool "runs" has this handler.
fn place((program, file, text): (&str, &str, &str), gateway: &str) -> Place {
    let place = handlers(&format!("[\"{program}\", \"{file}\"]"), gateway, "");
    place.write(file, text);
    install_javascript_sdk(&place);
    place
}

fn external(reference: &Reference) -> String {
    format!("{{ url = \"{}\", token = \"GATEWAY_TOKEN\" }}", reference.address)
}

fn in_process(log: &Path) -> String {
    format!(
        "{{ agent = \"claude\", command = [\"python3\", \"{STAND_IN}\"], config_folders = \"agents\", \
         env = {{ STAND_IN_LOG = \"{}\", ANTHROPIC_API_KEY = \"none\" }} }}",
        log.display()
    )
}

fn submitted(place: &Place, payload: &Value) -> String {
    place.done(["submit", "runs", "run", "--payload", &payload.to_string()]).trim().to_owned()
}

/// The texts of the messages in the log of a task.
fn messages(place: &Place, id: &str) -> Vec<String> {
    let log = place.done(["logs", id]);
    log.lines().filter_map(|line| line.strip_prefix("[assistant] ")).map(str::to_owned).collect()
}

#[test]
fn handlers_get_events_before_the_answer_in_order_and_each_once_and_an_error_after_those_before_it() {
    for handler in HANDLERS {
        let folder = Place::new();
        let gate = folder.folder().join("gate");
        let rules = json!([
            {"when": "Stream", "gate": gate, "lines": [
                {"type": "text", "text": "one"},
                {"type": "thinking", "text": "Hm."},
                {"type": "tool_call", "call": "c1", "tool": "Read", "input": {"path": "a"}},
                {"type": "tool_result", "call": "c1", "output": "no such file", "error": true},
                {"type": "usage", "input_tokens": 20, "cost_usd": 0.25},
                {"type": "status", "text": "tries again"},
                {"type": "text", "text": "two"},
                {"type": "result", "output": {"n": 1}},
            ]},
            {"when": "busy", "lines": [
                {"type": "text", "text": "Hm."},
                {"type": "error", "class": "rate_limited", "message": "too many", "retry_after_ms": 2000},
            ]},
            {"when": "endless", "gate": folder.folder().join("never")},
        ]);
        let reference = Reference::start(folder.folder(), 0, &rules);
        let place = place(handler, &external(&reference));
        let _node = up(&place);
        // The answer waits for the handler, which waits for the last event.
        let payload = json!({"prompt": "Stream it", "words": "two", "gate": gate, "more": true});
        let id = submitted(&place, &payload);
        let task = ended(&place, &id, "completed");
        let output = &task["output"];
        let seen = output["seen"].as_array().expect("a list");
        let usage = json!({"input_tokens": 20, "cost_usd": 0.25});
        let session = &reference.logged("created")[0]["created"];
        let expected = [
            json!({"type": "message", "role": "assistant", "text": "one"}),
            json!({"type": "thinking", "text": "Hm."}),
            json!({"type": "tool_call", "call": "c1", "tool": "Read", "input": {"path": "a"}}),
            json!({"type": "tool_result", "call": "c1", "output": "no such file", "error": true}),
            json!({"type": "usage"}),
            json!({"type": "status", "text": "tries again"}),
            json!({"type": "message", "role": "assistant", "text": "two"}),
            json!({"type": "result", "output": {"n": 1}, "session_id": session}),
        ];
        for (seen, expected) in seen.iter().zip(&expected) {
            if expected["type"] == "usage" {
                let both = ["input_tokens", "cost_usd"].map(|name| (&seen["usage"][name], &usage[name]));
                assert!(both.iter().all(|(seen, expected)| seen == expected), "{}: {seen}", handler.1);
            } else {
                assert_eq!(seen, expected, "{}", handler.1);
            }
        }
        assert_eq!(seen.len(), expected.len(), "{}: {output}", handler.1);
        assert_eq!(output["busy"], json!(["Hm.", "rate_limited", 2]), "{}", handler.1);
        assert_eq!(output["left"], "What was asked before?", "{}", handler.1);
        assert_eq!(output["last"], "Queries: 4, last: Done?", "{}: the session goes on", handler.1);
        until("the one that was left early is given up", || {
            (reference.logged("given_up").len() == 1).then_some(())
        });
        assert_eq!(reference.logged("query")[0]["options"], json!({"max_iterations": 5}), "{}", handler.1);
        let said = messages(&place, &id);
        assert_eq!(said[..2], ["one", "two"], "{}: the transcript has them too: {said:?}", handler.1);
    }
}

#[test]
fn an_agent_of_the_node_is_heard_before_its_answer() {
    for handler in HANDLERS {
        let folder = Place::new();
        let (gate, log) = (folder.folder().join("gate"), folder.folder().join("log"));
        let place = place(handler, &in_process(&log));
        let _node = up(&place);
        let prompt = format!("[[gate {}]]", gate.display());
        let id = submitted(&place, &json!({"prompt": prompt, "words": "It begins.", "gate": gate}));
        let task = ended(&place, &id, "completed");
        let seen = task["output"].as_array().expect("a list");
        let said: Vec<&Value> =
            seen.iter().filter(|event| event["type"] == "message").map(|event| &event["text"]).collect();
        assert_eq!(said[..], ["It begins.", "It goes on."], "{}: {task}", handler.1);
        assert_eq!(seen.last().map(|event| &event["type"]), Some(&json!("result")), "{}", handler.1);
        assert!(seen.iter().any(|event| event["type"] == "usage"), "{}: {task}", handler.1);
    }
}

#[test]
fn a_handler_that_is_cancelled_in_a_stream_stops_the_query() {
    for handler in HANDLERS {
        let folder = Place::new();
        let rules = json!([{"when": "endless", "gate": folder.folder().join("never")}]);
        let reference = Reference::start(folder.folder(), 0, &rules);
        let place = place(handler, &external(&reference));
        let _node = up(&place);
        let read = folder.folder().join("read");
        let words = "This is query 1 of the session.";
        let id = submitted(&place, &json!({"prompt": "endless", "words": words, "gate": read}));
        until("the handler has an event", || read.exists().then_some(()));
        place.done(["cancel", &id]);
        ended(&place, &id, "cancelled");
        until("the gateway notices", || (!reference.logged("given_up").is_empty()).then_some(()));
        assert_eq!(messages(&place, &id), [words], "{}: what was said is kept", handler.1);
    }
}

/// A handler that reads one message, asks another query, waits for a file, and then reads the rest.
const SLOW_PYTHON: &str = r#"
import os, time
from ostler import worker

@worker.task("run")
def run(payload, ctx):
    gateway = ctx.gateway()
    stream = gateway.create_session().stream(payload["talk"])
    texts = (event.text for event in stream if event.type in ("message", "result"))
    first = next(texts)
    other = gateway.create_session().run_query(payload["other"]).text
    print("it does not read", flush=True)
    while not os.path.exists(payload["go_on"]):
        ctx.check()
        time.sleep(0.02)
    return {"first": first, "other": other, "rest": list(texts)}

worker.run()
"#;

const SLOW_JAVASCRIPT: &str = r#"
import { existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { worker } from "ostler";

async function* textsOf(stream) {
  for await (const event of stream) if (["message", "result"].includes(event.type)) yield event.text;
}

worker.task("run", async (payload, ctx) => {
  const gateway = ctx.gateway();
  const texts = textsOf((await gateway.createSession()).stream(payload.talk));
  const first = (await texts.next()).value;
  const other = (await (await gateway.createSession()).runQuery(payload.other)).text;
  console.log("it does not read");
  while (!existsSync(payload.go_on)) await setTimeout(20, undefined, { signal: ctx.signal });
  const rest = [];
  for await (const text of texts) rest.push(text);
  return { first, other, rest };
});
worker.run();
"#;

/// How much an agent says to a handler that does not read: far more than may wait for it.
const MANY: usize = 2_000;
const AHEAD: usize = 100;

/// A handler that does not read for a while: its agent is held back, and nothing is lost.
fn held_back(handler: (&str, &str, &str), gateway: &str, talk: &str, other: (&str, &str)) {
    let place = place(handler, gateway);
    let _node = up(&place);
    let go_on = place.folder().join("go on");
    let id = submitted(&place, &json!({"talk": talk, "other": other.0, "go_on": go_on}));
    let said = || place.done(["logs", &id]).matches("[assistant] line ").count();
    until("another session has its answer", || {
        place.done(["logs", &id]).contains("it does not read").then_some(())
    });
    let stored = said();
    assert!((1..AHEAD).contains(&stored), "{}: {stored} messages are stored", handler.1);
    std::fs::write(&go_on, "").expect("it may go on");
    let task = ended(&place, &id, "completed");
    let output = &task["output"];
    assert_eq!((&output["first"], &output["other"]), (&json!("line 0"), &json!(other.1)), "{}", handler.1);
    let mut rest: Vec<String> = (1..MANY).map(|number| format!("line {number}")).collect();
    rest.push("All of them.".to_owned());
    assert_eq!(output["rest"], json!(rest), "{}", handler.1);
    assert_eq!(said(), MANY, "{}", handler.1);
}

#[test]
fn a_handler_that_does_not_read_holds_its_agent_back_and_loses_nothing_of_what_it_says() {
    let folder = Place::new();
    let mut lines: Vec<Value> =
        (0..MANY).map(|number| json!({"type": "text", "text": format!("line {number}")})).collect();
    lines.push(json!({"type": "result", "output": "All of them."}));
    let reference = Reference::start(folder.folder(), 0, &json!([{"when": "talkative", "lines": lines}]));
    let gateway = external(&reference);
    for handler in [("python3", "slow.py", SLOW_PYTHON), ("node", "slow.mjs", SLOW_JAVASCRIPT)] {
        held_back(handler, &gateway, "talkative", ("Meanwhile", "Queries: 1, last: Meanwhile"));
    }
    let agent = in_process(&folder.folder().join("log"));
    let talk = format!("[[many {MANY}]]");
    held_back(("python3", "slow.py", SLOW_PYTHON), &agent, &talk, ("[[text]]", "Hello."));
}

#[test]
fn a_handler_that_never_reads_its_stream_ends_and_so_does_the_query() {
    let folder = Place::new();
    let rules = json!([{"when": "endless", "gate": folder.folder().join("never")}]);
    let reference = Reference::start(folder.folder(), 0, &rules);
    let handler = "from ostler import worker\n\n@worker.task(\"run\")\ndef run(payload, ctx):\n    \
                   ctx.kept = ctx.gateway().create_session().stream(\"endless\")\n    \
                   return next(ctx.kept).text\n\nworker.run()\n";
    let place = place(("python3", "handler.py", handler), &external(&reference));
    let _node = up(&place);
    let id = submitted(&place, &Value::Null);
    assert_eq!(ended(&place, &id, "completed")["output"], "What was asked before?");
    until("the gateway notices", || (!reference.logged("given_up").is_empty()).then_some(()));
}

/// The handler of the tests of kills, with streams, and the same in JavaScript. Both say how many events they had.
fn streaming_handler() -> String {
    let streamed = |text: &str| {
        let call = format!("session.run_query({text})");
        let stream = format!("asked(session.stream({text}))");
        (call, stream)
    };
    let (first, first_stream) = streamed("payload[\"prompt\"]");
    let (second, second_stream) = streamed("\"Do it.\"");
    let asked = "seen = []\n\ndef asked(stream):\n    *events, answer = stream\n    seen.append(len(events))\n    return answer\n";
    let handler = HANDLER.replace(&first, &first_stream).replace(&second, &second_stream);
    let handler = handler.replace("@worker.task(\"run\")\n", &format!("{asked}\n@worker.task(\"run\")\n"));
    let handler = handler
        .replace("print(\"both are answered\"", "print(\"events:\", seen)\n    print(\"both are answered\"");
    assert!(
        handler.contains("asked(session.stream(\"Do it.\"))") && handler.contains("events:"),
        "{handler}"
    );
    handler
}

const KILLED_JAVASCRIPT: &str = r#"
import { existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { worker } from "ostler";

worker.task("run", async (payload, ctx) => {
  const session = await ctx.gateway().createSession();
  const seen = [];
  const asked = async (stream) => {
    const all = [];
    for await (const event of stream) all.push(event);
    seen.push(all.length - 1);
    return all.at(-1);
  };
  const first = await asked(session.stream(payload.prompt));
  const second = await asked(session.stream("Do it."));
  console.log(`events: [${seen.join(", ")}]`);
  console.log("both are answered");
  while (!existsSync(payload.finish)) await setTimeout(20, undefined, { signal: ctx.signal });
  const me = await ctx.task();
  return { first: first.text, second: second.text, session: session.id, key: me.key, attempts: me.attempts };
});
worker.run();
"#;

#[test]
fn a_stream_whose_node_is_killed_is_asked_again_and_one_that_was_answered_has_no_events() {
    let python = streaming_handler();
    for handler in [("python3", "handler.py", python.as_str()), ("node", "handler.mjs", KILLED_JAVASCRIPT)] {
        let folder = Place::new();
        let gate = folder.folder().join("gate");
        let reference = Reference::start(folder.folder(), 0, &json!([{"when": "Plan", "gate": gate}]));
        let place = place(handler, &external(&reference));
        let (id, task) = twice_killed(&place, "Plan it", &gate, || !reference.logged("query").is_empty());
        let inputs: Vec<Value> =
            reference.logged("query").into_iter().map(|query| query["input"].clone()).collect();
        assert_eq!(inputs, ["Plan it", "Plan it", "Do it."], "{}", handler.1);
        assert_eq!(task["output"]["second"], "Queries: 3, last: Do it.", "{}", handler.1);
        let created = &reference.logged("created")[0]["created"];
        assert!(sessions(&task).iter().all(|session| *session == created), "{}: {task}", handler.1);
        let log = place.done(["logs", &id]);
        let seen: Vec<&str> = log.lines().filter(|line| line.contains("events: [")).collect();
        assert!(
            matches!(seen[..], [second, third] if second.contains("[3, 3]") && third.contains("[0, 0]")),
            "{}: {seen:?}",
            handler.1
        );
    }
}

#[test]
fn a_killed_node_costs_no_word_of_its_agent_to_the_handler_that_streams_on() {
    let folder = Place::new();
    let (gate, log) = (folder.folder().join("gate"), folder.folder().join("log"));
    let handler = ("python3", "sync.py", PYTHON);
    let place = place(handler, &in_process(&log));
    let read = folder.folder().join("read");
    let prompt = format!("[[gate {}]]", gate.display());
    let node = up(&place);
    let id = submitted(&place, &json!({"prompt": prompt, "words": "It begins.", "gate": read}));
    until("the handler has an event", || read.exists().then_some(()));
    kill(node);
    std::fs::write(&gate, "").expect("the gate opens");
    let _node = up(&place);
    let task = ended(&place, &id, "completed");
    let seen = task["output"].as_array().expect("a list");
    let said: Vec<&Value> =
        seen.iter().filter(|event| event["type"] == "message").map(|event| &event["text"]).collect();
    assert_eq!(said.last().copied(), Some(&json!("It goes on.")), "{task}");
    assert!(messages(&place, &id).starts_with(&["It begins.".to_owned()]), "{}", place.done(["logs", &id]));
}
