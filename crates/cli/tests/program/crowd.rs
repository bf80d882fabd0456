//! Workers that run many tasks at once, with the real program, the real python3 and its SDK.

use std::time::Instant;

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ostler::{Place, Running};
use crate::workers::until;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
const FIFTY: usize = 50;

const WORKER: &str = r#"
import asyncio, os, pathlib
from ostler import Transient, worker

inside = 0
everyone = asyncio.Event()


async def together(many):
    global inside
    inside += 1
    if inside == many:
        everyone.set()
    await everyone.wait()


@worker.task("wait")
async def wait(payload, ctx):
    await ctx.step("mine", lambda: payload)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    return payload


@worker.task("innocent")
async def innocent(payload, ctx):
    if ctx.attempt < 3:
        await together(payload)
        await asyncio.sleep(3600)
    return "alive"


@worker.task("poison")
async def poison(payload, ctx):
    if ctx.attempt < 3:
        await together(payload)
    os._exit(9)


@worker.task("parent")
async def parent(payload, ctx):
    child = await ctx.submit("child", payload)
    twin = await ctx.submit("child", payload)
    keyed = await ctx.submit("child", "other", key="one")
    if ctx.attempt == 1:
        raise Transient("once more")
    while (await ctx.task(child)).state != "completed":
        await asyncio.sleep(0.02)
    return [child, twin, keyed, (await ctx.task(child)).output]


@worker.task("child")
async def child(payload, ctx):
    return payload


@worker.task("fails-once", attempts=1)
async def fails_once(payload, ctx):
    raise Transient("as it must")


@worker.task("fails-twice", attempts=1, timeout=30)
async def fails_twice(payload, ctx):
    raise Transient("as it must")


worker.run()
"#;

/// A node with one worker process, which runs up to fifty tasks at once.
fn up() -> (Place, Running) {
    let place = Place::new();
    place.write("worker.py", WORKER);
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.docs]\nexecutor = \"process\"\n\
         command = [\"python3\", \"worker.py\"]\ngrace = \"1s\"\nmin_workers = 1\nmax_workers = 1\nper_worker = {FIFTY}\n\
         retry = {{ base = \"10ms\" }}\nenv = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n\
         [pool.docs.kind.fails-twice]\nretry = {{ attempts = 2 }}\n"
    );
    place.write("ostler.toml", config);
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    (place, node)
}

fn ends(node: Running) {
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

/// Submits tasks in one call.
fn submit(place: &Place, tasks: impl Iterator<Item = (&'static str, Value)>) -> Vec<String> {
    let line = |(kind, payload): (&str, Value)| {
        json!({"queue": "docs", "kind": kind, "payload": payload}).to_string()
    };
    let lines: Vec<String> = tasks.map(line).collect();
    let ran = place.run_with(["submit", "--jsonl", "-", "--json"], lines.join("\n").as_bytes());
    let id = |line: &str| {
        serde_json::from_str::<Value>(line).expect("JSON")["id"].as_str().expect("an id").to_owned()
    };
    ran.out.lines().map(id).collect()
}

fn in_state(place: &Place, state: &str, count: usize) {
    let began = Instant::now();
    until(&format!("{count} tasks are {state}"), || {
        let tasks = place.json(["ls", "--state", state, "--limit", "100"]);
        let found = tasks.as_array().map_or(0, Vec::len);
        assert!(began.elapsed() < MAX_WAIT * 2, "{found}");
        (found == count).then_some(())
    });
}

#[test]
fn fifty_tasks_of_a_killed_process_are_run_again_and_each_ends_once() {
    let (place, node) = up();
    let ids = submit(&place, (0..FIFTY).map(|number| ("wait", json!(number))));
    assert_eq!(ids.len(), FIFTY);
    in_state(&place, "running", FIFTY);
    let worker = until("the report of the worker", || {
        let workers = place.json(["workers"]);
        // Their first report may be on its way.
        assert!(workers.as_array().is_some_and(|all| all.len() <= 1), "{workers}");
        (workers[0]["tasks"] == FIFTY).then(|| workers[0].clone())
    });
    assert!(place.done(["workers"]).contains("50 tasks"));
    let pid = worker["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), Signal::KILL).expect("it is ours");
    in_state(&place, "running", FIFTY);
    place.write("go", "");
    in_state(&place, "completed", FIFTY);
    for (number, id) in ids.iter().enumerate() {
        let task = place.json(["show", id]);
        assert_eq!((&task["output"], &task["failures"]), (&json!(number), &json!(0)), "{task}");
        assert_eq!(task["steps"], json!({"mine": number}), "a step of its own");
        let states: Vec<&Value> =
            task["attempts"].as_array().expect("a list").iter().map(|attempt| &attempt["state"]).collect();
        assert_eq!(states, ["node_died", "completed"], "{task}");
    }
    ends(node);
}

#[test]
fn a_task_that_kills_its_worker_is_found_and_its_neighbours_complete() {
    const NEIGHBOURS: usize = 5;
    let (place, node) = up();
    let everyone = json!(NEIGHBOURS + 1);
    let innocent = (0..NEIGHBOURS).map(|_| ("innocent", everyone.clone()));
    let ids = submit(&place, innocent.chain([("poison", everyone.clone())]));
    in_state(&place, "completed", NEIGHBOURS);
    in_state(&place, "failed", 1);
    let (poison, innocent) = ids.split_last().expect("there are some");
    for id in innocent {
        let task = place.json(["show", id]);
        assert_eq!((&task["failures"], &task["crashes"]), (&json!(0), &json!(0)), "{task}");
    }
    let task = place.json(["show", poison]);
    assert_eq!(task["crashes"], 3, "alone it crashes: {task}");
    ends(node);
}

#[test]
fn a_handler_submits_tasks_once_and_looks_them_up() {
    let (place, node) = up();
    let id = submit(&place, [("parent", json!({"n": 1}))].into_iter()).remove(0);
    in_state(&place, "completed", 4);
    let task = place.json(["show", &id]);
    assert_eq!((&task["failures"], &task["runs"]), (&json!(1), &json!(2)), "{task}");
    let output = task["output"].as_array().expect("a list");
    assert_eq!(output[3], json!({"n": 1}));
    assert!(output[0] != output[1], "two submissions are two tasks: {output:?}");
    let keyed = place.json(["show", "key:one", "--queue", "docs"]);
    assert_eq!(keyed["id"], output[2]);
    ends(node);
}

#[test]
fn options_of_a_handler_are_defaults_that_the_config_overrides() {
    let (place, node) = up();
    let ids = submit(&place, [("fails-once", Value::Null), ("fails-twice", Value::Null)].into_iter());
    in_state(&place, "failed", 2);
    let failures = |id: &String| place.json(["show", id])["failures"].clone();
    assert_eq!(ids.iter().map(failures).collect::<Vec<_>>(), [1, 2], "the second by the config");
    ends(node);
}
