//! Pools of JavaScript functions, with the real program: its nodes start it again as their hosts. With the feature `v8`, on both
//! engines.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::ostler::{Place, Ran, Running, ran};
use crate::workers::until;

/// A builtin that neither engine can interrupt.
const DEAF: &str = "export default () => [].reverse.call({ length: 2 ** 32 - 1 })";

/// Makes a test for each engine of functions that are named.
macro_rules! on_each_engine {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            fn quickjs() {
                super::$test("quickjs");
            }

            #[cfg(feature = "v8")]
            #[test]
            fn v8() {
                super::$test("v8");
            }
        })+
    };
}

on_each_engine!(
    a_function_is_a_file_and_a_task_gets_its_output_its_logs_and_its_files,
    a_deaf_script_fails_with_its_cause_and_the_next_task_runs_on_the_same_node,
    steps_survive_a_host_that_is_killed,
    secrets_reach_the_function_and_no_record,
    a_changed_file_is_used_and_a_broken_one_fails_with_its_place,
    warm_functions_keep_their_state_and_fresh_ones_do_not,
    a_handler_of_requests_answers_a_payload_with_its_response,
);

/// A place whose node has a pool of functions on this engine, with these lines in its config.
fn place(engine: &str, lines: &str, functions: &[(&str, &str)]) -> Place {
    let place = Place::new();
    let config = format!(
        "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.functions]\nexecutor = \"isolate\"\n\
         scripts = \"functions\"\nfolders = \"tasks\"\nmin_workers = 1\nmax_workers = 1\n\
         engine = \"{engine}\"\nretry = {{ base = \"10ms\", attempts = 2 }}\n{lines}\n"
    );
    place.write("ostler.toml", config);
    std::fs::create_dir(place.folder().join("functions")).expect("a folder");
    for (kind, module) in functions {
        write(&place, kind, module);
    }
    place
}

fn write(place: &Place, kind: &str, module: &str) {
    let part = place.write("functions/.part", module);
    std::fs::rename(part, place.folder().join(format!("functions/{kind}.js"))).expect("it is renamed");
}

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

fn submit(place: &Place, kind: &str, payload: &str) -> Ran {
    place.run(["submit", "functions", kind, "--payload", payload, "--wait"])
}

/// The output of a task.
fn output(place: &Place, kind: &str, payload: &str) -> Value {
    let ran = submit(place, kind, payload);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.json()
}

/// The only task of this kind.
fn task(place: &Place, kind: &str) -> Value {
    let found = place.json(["ls", "--kind", kind]);
    place.json(["show", found[0]["id"].as_str().expect("an id")])
}

/// The pid of the only host, when it is idle.
fn host(place: &Place) -> i32 {
    until("the host is idle", || {
        let workers = place.json(["workers"]);
        let [worker] = workers.as_array().expect("a list").as_slice() else { return None };
        if worker["state"] != "idle" {
            return None;
        }
        i32::try_from(worker["pid"].as_i64()?).ok()
    })
}

fn a_function_is_a_file_and_a_task_gets_its_output_its_logs_and_its_files(engine: &str) {
    let place = place(
        engine,
        "",
        &[(
            "greet",
            "import { greeting } from './lib/words.mjs';\n\
             export default async (payload, ctx) => {\n  console.log('greets', payload.name);\n  \
             await ctx.file('card.txt', greeting);\n  return `${greeting}, ${payload.name}`;\n};",
        )],
    );
    std::fs::create_dir(place.folder().join("functions/lib")).expect("a folder");
    place.write("functions/lib/words.mjs", "export const greeting = 'Hello';");
    let _node = up(&place);
    assert_eq!(output(&place, "greet", r#"{"name": "Ada"}"#), json!("Hello, Ada"));
    let task = task(&place, "greet");
    let logs = place.done(["logs", task["id"].as_str().expect("an id")]);
    assert!(logs.contains("greets Ada"), "{logs}");
    assert_eq!(task["attempts"][0]["files"][0]["path"], "card.txt", "{task}");
    let written = place.folder().join("tasks/functions").join(task["id"].as_str().expect("an id"));
    assert_eq!(std::fs::read(written.join("card.txt")).expect("it is written"), b"Hello");
}

fn a_deaf_script_fails_with_its_cause_and_the_next_task_runs_on_the_same_node(engine: &str) {
    let place = place(engine, "cpu = \"100ms\"", &[("deaf", DEAF), ("well", "export default () => 'on'")]);
    let node = up(&place);
    let nodes = place.json(["nodes"]);
    let before = host(&place);
    assert_eq!(submit(&place, "deaf", "null").code, Some(1));
    let deaf = task(&place, "deaf");
    let error = &deaf["attempts"][0]["error"];
    assert_eq!(error["class"], "timeout", "{deaf}");
    assert_eq!(error["message"], "the function used more CPU time than its limit", "{deaf}");
    assert_eq!(deaf["crashes"], 0, "it is no crash: {deaf}");
    assert_eq!(output(&place, "well", "null"), json!("on"));
    assert_ne!(host(&place), before, "another host");
    assert_eq!(place.json(["nodes"])[0]["id"], nodes[0]["id"], "the same node");
    drop(node);
}

fn steps_survive_a_host_that_is_killed(engine: &str) {
    let module = "export default async (payload, ctx) => {\n\
        const first = await ctx.step('first', () => ctx.attempt);\n\
        if (ctx.attempt === 1) { ctx.log('waiting'); await new Promise((resolve) => setTimeout(resolve, 3600_000)); }\n\
        return [first, ctx.attempt] }";
    let place = place(engine, "timeout = \"5m\"", &[("steps", module)]);
    let _node = up(&place);
    let pid = host(&place);
    let id = place.done(["submit", "functions", "steps"]).trim().to_owned();
    until("it waits", || place.done(["logs", &id]).contains("waiting").then_some(()));
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("it is there");
    let task = until("it is done", || {
        let task = place.json(["show", &id]);
        (task["state"] == "completed").then_some(task)
    });
    assert_eq!(task["output"], json!([1, 2]), "the step of the first attempt was kept: {task}");
    assert_eq!(task["crashes"], 1, "{task}");
}

fn secrets_reach_the_function_and_no_record(engine: &str) {
    let place = place(
        engine,
        "secrets = [\"TOKEN\"]",
        &[(
            "tell",
            "export default (payload, ctx) => { console.log(ctx.secret('TOKEN')); return ctx.secret('TOKEN').length }",
        )],
    );
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("text");
    place.write("ostler.toml", format!("{config}\n[secrets]\nTOKEN = \"hunter2-hunter2\"\n"));
    let _node = up(&place);
    assert_eq!(output(&place, "tell", "null"), json!(15));
    let task = task(&place, "tell");
    let logs = place.done(["logs", task["id"].as_str().expect("an id")]);
    assert!(!logs.contains("hunter2") && logs.contains("TOKEN"), "{logs}");
}

fn a_changed_file_is_used_and_a_broken_one_fails_with_its_place(engine: &str) {
    let place = place(engine, "", &[("change", "export default () => 1")]);
    let _node = up(&place);
    assert_eq!(output(&place, "change", "null"), json!(1));
    write(&place, "change", "export default () => 2");
    assert_eq!(output(&place, "change", "null"), json!(2));
    write(&place, "change", "export default () => {\n  return 3 3\n}");
    let ran = submit(&place, "change", "null");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("SyntaxError") && ran.err.contains("change.js:2"), "{ran:?}");
    let doctor = place.run(["doctor"]);
    assert!(doctor.out.contains("the function \"change\" cannot be used"), "{doctor:?}");
    write(&place, "change", "export default () => 4");
    assert_eq!(output(&place, "change", "null"), json!(4));
    write(&place, "new", "export default () => 'new'");
    assert_eq!(output(&place, "new", "null"), json!("new"), "a new file is a new kind");
}

fn warm_functions_keep_their_state_and_fresh_ones_do_not(engine: &str) {
    let counter = "let calls = 0;\nexport default () => ++calls";
    for (reuse, last) in [("fresh", 1), ("warm", 3)] {
        let place = place(engine, &format!("reuse = \"{reuse}\""), &[("count", counter)]);
        let _node = up(&place);
        let calls: Vec<Value> = (0..3).map(|_| output(&place, "count", "null")).collect();
        assert_eq!(calls.last(), Some(&json!(last)), "{reuse}: {calls:?}");
    }
}

fn a_handler_of_requests_answers_a_payload_with_its_response(engine: &str) {
    let module = "export default {\n  async fetch(request, ctx) {\n    \
        const { name } = await request.json();\n    \
        if (request.headers.get('x-token') !== ctx.secret('TOKEN')) return new Response(null, { status: 403 });\n    \
        return Response.json({ hello: name, path: new URL(request.url).pathname }, { status: 201 })\n  }\n}";
    let place = place(engine, "secrets = [\"TOKEN\"]", &[("hook", module)]);
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("text");
    place.write("ostler.toml", format!("{config}\n[secrets]\nTOKEN = \"opensesame\"\n"));
    let _node = up(&place);
    let request = |token: &str| {
        json!({
            "url": "https://example.org/greet?x=1", "method": "POST",
            "headers": { "x-token": token }, "body": "{\"name\":\"Ada\"}",
        })
    };
    let answer = output(&place, "hook", &request("opensesame").to_string());
    assert_eq!(
        (&answer["status"], &answer["headers"]["content-type"]),
        (&json!(201), &json!("application/json"))
    );
    let body = answer["body"].as_str().expect("a text");
    assert_eq!(
        serde_json::from_str::<Value>(body).expect("JSON"),
        json!({ "hello": "Ada", "path": "/greet" })
    );
    assert_eq!(
        output(&place, "hook", &request("guess").to_string())["status"],
        403,
        "an answer is an output"
    );
}

#[test]
fn functions_on_threads_need_no_host() {
    let place =
        place("quickjs", "isolation = \"thread\"", &[("well", "export default (payload) => payload.n + 1")]);
    let _node = up(&place);
    assert_eq!(output(&place, "well", "{\"n\": 1}"), json!(2));
    let doctor = place.run(["doctor"]);
    assert!(doctor.out.contains("isolation = \"thread\""), "{doctor:?}");
}

#[cfg(not(feature = "v8"))]
#[test]
fn a_program_without_v8_refuses_it_with_a_sentence() {
    let place = place("v8", "", &[("well", "export default () => 1")]);
    place.refused(
        ["up"],
        2,
        "is \"v8\", but this program was built without the engine V8 (its feature \"v8\")",
    );
}

#[test]
fn the_environment_has_the_workers_of_a_pool_that_sets_none_and_the_doctor_shows_them() {
    let wait = "export default () => new Promise((resolve) => setTimeout(resolve, 3600_000))";
    let place = place("quickjs", "", &[("wait", wait)]);
    let config = std::fs::read_to_string(place.folder().join("ostler.toml")).expect("text");
    let without = |lines: &str| place.write("ostler.toml", config.replace("max_workers = 1\n", lines));
    let environment = |size: &'static str, most: &'static str| {
        move |mut command: std::process::Command| {
            command.env("WORKER_POOL_SIZE", size).env("MAX_QUEUED_WORKERS", most);
            command
        }
    };
    let doctor = |set: &dyn Fn(std::process::Command) -> std::process::Command| {
        ran(&mut set(place.command(["doctor"])))
    };
    without("");
    let three = environment("3", "7");
    let shown = doctor(&three);
    let sentence = "up to 3 workers (WORKER_POOL_SIZE), and at most 7 tasks claimed (MAX_QUEUED_WORKERS)";
    assert!(shown.out.contains(sentence), "{shown:?}");
    let node = Running::start(three(place.command(["up"])));
    assert!(node.line().contains("ready"));
    for _ in 0..5 {
        place.done(["submit", "functions", "wait"]);
    }
    let busy = || {
        let workers = place.json(["workers"]);
        workers.as_array().expect("a list").iter().filter(|worker| worker["state"] == "busy").count()
    };
    until("three run at once", || (busy() == 3).then_some(()));
    drop(node);

    without("max_workers = 2\nmax_claimed = 5\n");
    let shown = doctor(&three);
    let sentence = "up to 2 workers (max_workers), and at most 5 tasks claimed (max_claimed)";
    assert!(shown.out.contains(sentence), "the config has the last word: {shown:?}");

    without("");
    for (size, most, says) in [
        (
            "3",
            "2",
            "at most 2 tasks may be claimed (MAX_QUEUED_WORKERS), but there are 3 workers (WORKER_POOL_SIZE)",
        ),
        ("many", "9", "WORKER_POOL_SIZE is \"many\", but must be a whole number above zero"),
    ] {
        let set = environment(size, most);
        ran(&mut set(place.command(["up"]))).is_refused(2, says);
        let shown = doctor(&set);
        assert!(shown.code == Some(1) && shown.out.contains(says), "{shown:?}");
    }
}

#[test]
fn a_folder_that_is_missing_is_refused_with_a_sentence() {
    let place = place("quickjs", "", &[]);
    std::fs::remove_dir(place.folder().join("functions")).expect("it is empty");
    place.refused(["up"], 2, "the folder of functions");
    let doctor = place.run(["doctor"]);
    assert!(doctor.out.contains("cannot be read"), "{doctor:?}");
}

#[test]
fn the_host_is_for_nodes_only() {
    let place = Place::new();
    place.refused(["isolate-host"], 1, "is started by a node");
    let help = place.done(["--help"]);
    assert!(!help.contains("isolate-host"), "{help}");
}
