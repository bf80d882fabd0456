//! The gateway and `ostler run`: the reference gateway in `examples`, agents in the process, and handlers that ask them.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::ostler::{Place, Running, ran};
use crate::workers::until;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
pub(crate) const STAND_IN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_claude.py");
const LEASE: &str = "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n";

/// A handler that asks twice, waits for a file, and asks no more.
pub(crate) const HANDLER: &str = r#"
import os, time
from ostler import worker

@worker.task("run")
def run(payload, ctx):
    session = ctx.gateway().create_session()
    first = session.run_query(payload["prompt"])
    second = session.run_query("Do it.")
    print("both are answered", flush=True)
    while not os.path.exists(payload["finish"]):
        ctx.check()
        time.sleep(0.02)
    me = ctx.task()
    return {"first": first.text, "second": second.text, "session": session.id, "key": me.key, "attempts": me.attempts}

worker.run()
"#;

const HANDLER_JS: &str = r#"
const { worker, Transient } = require("ostler");
worker.task("run", async (payload, ctx) => {
  const session = await ctx.gateway().createSession({ userId: "custom" });
  const plan = await session.runQuery(`Plan: ${payload.prompt}`);
  const report = await session.runQuery("Report.", { maxIterations: 5 });
  const refused = await session.runQuery("busy").catch((error) => `${error.name}/${error.className}/${error.retryAfterMs}`);
  const own = await ctx.task();
  return { plan: plan.text, report: report.text, same: plan.sessionId === session.id, refused, prompt: own.payload.prompt };
});
worker.run();
"#;

/// The reference gateway.
pub(crate) struct Reference {
    child: Child,
    pub(crate) address: String,
    log: PathBuf,
}

impl Reference {
    pub(crate) fn start(folder: &Path, port: u16, rules: &Value) -> Self {
        let (script, log) = (folder.join("rules.json"), folder.join("gateway.log"));
        std::fs::write(&script, rules.to_string()).expect("the rules are written");
        let mut child = Command::new("python3")
            .args([&format!("{ROOT}/examples/gateway.py"), "--port", &port.to_string()])
            .args(["--script".as_ref(), script.as_os_str(), "--log".as_ref(), log.as_os_str()])
            .env("GATEWAY_TOKEN", "the-token-of-the-gateway")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, address, log }
    }

    /// The lines of its log that have this field.
    pub(crate) fn logged(&self, field: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line.get(field).is_some()).collect()
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place whose node has a pool "runs", with these lines and the token of the reference.
fn place(lines: &str) -> Place {
    let place = Place::new();
    place.write("ostler.toml", format!("{LEASE}[secrets]\nGATEWAY_TOKEN = \"${{GATEWAY_TOKEN}}\"\n[pool.runs]\nsecrets = [\"GATEWAY_TOKEN\"]\n{lines}\n"));
    place
}

fn http(address: &str) -> Place {
    place(&format!(
        "executor = \"http\"\ngateway = \"{address}\"\ntoken = \"GATEWAY_TOKEN\"\nmax_workers = 1\nretry = {{ attempts = 2, base = \"10ms\" }}"
    ))
}

/// A place whose pool "runs" has this handler, and this gateway.
pub(crate) fn handlers(command: &str, gateway: &str, lines: &str) -> Place {
    place(&format!(
        "executor = \"process\"\ncommand = {command}\ngateway = {gateway}\nmin_workers = 1\nmax_workers = 1\n\
         env = {{ PYTHONPATH = \"{ROOT}/sdk/python\", PYTHONDONTWRITEBYTECODE = \"1\" }}\nkeep_env = [\"PATH\"]\nretry = {{ base = \"10ms\" }}\n{lines}"
    ))
}

/// Puts the SDK beside handlers in JavaScript.
pub(crate) fn install_javascript_sdk(place: &Place) {
    let modules = place.folder().join("node_modules");
    std::fs::create_dir(&modules).expect("a folder");
    std::os::unix::fs::symlink(format!("{ROOT}/sdk/js"), modules.join("ostler")).expect("a link");
}

pub(crate) fn up(place: &Place) -> Running {
    let mut command = place.command(["up"]);
    command.env("HOME", place.folder()).env("GATEWAY_TOKEN", "the-token-of-the-gateway");
    let node = Running::start(command);
    assert!(node.line().contains("ready"));
    node
}

pub(crate) fn ended(place: &Place, id: &str, state: &str) -> Value {
    until(state, || {
        let task = place.json(["show", id]);
        (task["state"] == state).then_some(task)
    })
}

pub(crate) fn sessions(task: &Value) -> Vec<&Value> {
    task["attempts"].as_array().expect("a list").iter().map(|attempt| &attempt["session_id"]).collect()
}

pub(crate) fn kill(node: Running) {
    node.signal(ProcessSignal::KILL);
    drop(node);
}

#[test]
fn a_run_goes_through_the_external_gateway_and_its_id_names_it() {
    let folder = Place::new();
    let reference = Reference::start(folder.folder(), 0, &json!([]));
    let place = http(&reference.address);
    let _node = up(&place);
    let work = place.folder().join("project");
    std::fs::create_dir(&work).expect("a folder");
    let run = |words: &[&str]| {
        let first = ["run", "--prompt", "Analyze the codebase and generate a report", "--id", "job_abc123"];
        place.done([&first, words].concat()).trim().to_owned()
    };
    let folder = work.display().to_string();
    let answer = run(&["--folder", &folder, "--max-iterations", "50", "--wait"]);
    assert_eq!(answer, "\"Queries: 1, last: Analyze the codebase and generate a report\"");
    let again = run(&["--wait"]);
    assert_eq!(again, answer, "the same run");
    let task = place.json(["show", "key:job_abc123", "--queue", "runs"]);
    let id = task["id"].as_str().expect("an id");
    assert_eq!(run(&[]), id);
    let [created] = &reference.logged("created")[..] else { panic!("one session") };
    assert_eq!(
        (&created["user_id"], &created["workspace"]),
        (&json!(format!("worker_{id}")), &json!(folder))
    );
    let [query] = &reference.logged("query")[..] else { panic!("one query") };
    assert_eq!(query["options"], json!({"max_iterations": 50}));
    let attempt = &task["attempts"][0];
    assert_eq!((&attempt["session_id"], &attempt["cost_usd"]), (&created["created"], &json!(0.001)));
    let log = place.done(["logs", id]);
    for part in ["Analyze the codebase", "What was asked before?", "This is query 1 of the session."] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn a_job_over_a_gateway_asks_once_for_each_item_and_sends_no_field_of_the_job() {
    let folder = Place::new();
    let reference = Reference::start(folder.folder(), 0, &json!([]));
    let place = http(&reference.address);
    let map = || {
        let words = [
            "map",
            "--pool",
            "runs",
            "--prompt",
            "Read {{ item }}",
            "--model",
            "small",
            ":::",
            "a.md",
            "b.md",
        ];
        let mut command = place.command(words);
        let ran = ran(command.env("GATEWAY_TOKEN", "the-token-of-the-gateway"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };
    map();
    let queries = reference.logged("query");
    let mut inputs: Vec<&str> = queries.iter().filter_map(|query| query["input"].as_str()).collect();
    inputs.sort_unstable();
    assert_eq!(inputs, ["Read a.md", "Read b.md"], "{queries:?}");
    assert!(queries.iter().all(|query| query["options"] == json!({"model": "small"})), "{queries:?}");
    assert_eq!(place.json(["job", "show", "runs"])["cost_usd"], 0.002);
    assert!(map().err.contains("all 2 items are already done"));
    assert_eq!(reference.logged("query").len(), 2);
}

#[test]
fn after_the_death_of_the_node_a_run_goes_on_in_the_session_of_the_gateway() {
    let folder = Place::new();
    let gate = folder.folder().join("gate");
    let lines = json!([{"type": "text", "text": "It begins."}, {"type": "result", "output": "Done."}]);
    let rules = json!([{"when": "slow", "gate": gate, "lines": lines}]);
    let reference = Reference::start(folder.folder(), 0, &rules);
    let place = http(&reference.address);
    let node = up(&place);
    let id = place.done(["run", "--prompt", "slow work"]).trim().to_owned();
    until("what it said is stored", || place.done(["logs", &id]).contains("It begins.").then_some(()));
    kill(node);
    until("the gateway notices", || (!reference.logged("given_up").is_empty()).then_some(()));
    let _node = up(&place);
    until("it is asked again", || (reference.logged("query").len() == 2).then_some(()));
    std::fs::write(&gate, "").expect("the gate opens");
    let task = ended(&place, &id, "completed");
    assert_eq!(task["output"], "Done.");
    let [created] = &reference.logged("created")[..] else { panic!("one session") };
    assert_eq!(sessions(&task), [&created["created"], &created["created"]]);
    let queries = reference.logged("query");
    assert_eq!(queries[0]["key"], queries[1]["key"]);
    assert_ne!(queries[0]["query"], queries[1]["query"]);
    assert_eq!((&queries[0]["resumed"], &queries[1]["resumed"]), (&json!(false), &json!(true)));
}

#[test]
fn a_gateway_that_cannot_be_reached_fails_the_run_which_is_kept_and_requeued_by_hand() {
    let folder = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let place = http(&format!("http://127.0.0.1:{port}"));
    let _node = up(&place);
    let id = place.done(["run", "--prompt", "Hello", "--id", "job_1"]).trim().to_owned();
    let task = ended(&place, &id, "failed");
    let error = &task["attempts"][1]["error"];
    assert_eq!(error["class"], "transient");
    assert!(
        error["message"].as_str().is_some_and(|said| said.contains("cannot connect to 127.0.0.1")),
        "{error}"
    );
    let doctor = || {
        let mut command = place.command(["doctor"]);
        ran(command.env("GATEWAY_TOKEN", "the-token-of-the-gateway")).out
    };
    assert!(doctor().contains("does not answer: cannot connect"), "{}", doctor());
    let _reference = Reference::start(folder.folder(), port, &json!([]));
    assert!(!doctor().contains("does not answer"), "{}", doctor());
    place.done(["retry", &id]);
    assert_eq!(ended(&place, &id, "completed")["output"], "Queries: 1, last: Hello");
}

#[test]
fn what_a_gateway_refuses_has_its_class_and_a_broken_answer_is_asked_again() {
    let folder = Place::new();
    let rules = json!([
        {"when": "busy", "status": 429, "retry_after": 3600, "message": "too many"},
        {"when": "wrong", "status": 422, "message": "no such model"},
        {"when": "broken", "cut": true},
    ]);
    let reference = Reference::start(folder.folder(), 0, &rules);
    let place = http(&reference.address);
    let _node = up(&place);
    let run = |prompt: &str| place.done(["run", "--prompt", prompt]).trim().to_owned();
    let wrong = ended(&place, &run("wrong"), "failed");
    assert_eq!(wrong["attempts"][0]["error"]["class"], "permanent");
    let said = wrong["attempts"][0]["error"]["message"].as_str().expect("a message");
    assert!(said.contains("422") && said.contains("no such model"), "{said}");
    let broken = ended(&place, &run("broken"), "failed");
    assert_eq!(broken["attempts"][1]["error"]["class"], "transient");
    assert!(
        broken["attempts"][1]["error"]["message"].as_str().is_some_and(|said| said.contains("broke off"))
    );
    let busy = run("busy");
    let task = until("it waits", || {
        let task = place.json(["show", &busy]);
        (task["runs"] == 1 && task["state"] == "queued").then_some(task)
    });
    assert_eq!((&task["waits_for"], &task["failures"]), (&json!("rate_limited"), &json!(0)));
}

#[test]
fn a_cancelled_run_gives_its_query_up() {
    let folder = Place::new();
    let rules = json!([{"when": "slow", "gate": folder.folder().join("never")}]);
    let reference = Reference::start(folder.folder(), 0, &rules);
    let place = http(&reference.address);
    let _node = up(&place);
    let id = place.done(["run", "--prompt", "slow"]).trim().to_owned();
    until("it is asked", || (!reference.logged("query").is_empty()).then_some(()));
    place.done(["cancel", &id]);
    ended(&place, &id, "cancelled");
    until("the gateway notices", || (!reference.logged("given_up").is_empty()).then_some(()));
}

#[test]
fn a_handler_in_python_asks_twice_in_one_session_and_a_killed_node_costs_no_answer() {
    let folder = Place::new();
    let gate = folder.folder().join("gate");
    let reference = Reference::start(folder.folder(), 0, &json!([{"when": "Plan", "gate": gate}]));
    let gateway = format!("{{ url = \"{}\", token = \"GATEWAY_TOKEN\" }}", reference.address);
    let place = handlers("[\"python3\", \"handler.py\"]", &gateway, "");
    place.write("handler.py", HANDLER);
    let (id, task) = twice_killed(&place, "Plan it", &gate, || !reference.logged("query").is_empty());
    let [created] = &reference.logged("created")[..] else { panic!("one session") };
    assert_eq!(created["user_id"], format!("worker_{id}"));
    let inputs: Vec<Value> =
        reference.logged("query").into_iter().map(|query| query["input"].clone()).collect();
    assert_eq!(
        inputs,
        ["Plan it", "Plan it", "Do it."],
        "the one in flight at the first death is asked again"
    );
    assert!(sessions(&task).iter().all(|session| **session == created["created"]), "{task}");
    assert_eq!(task["output"]["second"], "Queries: 3, last: Do it.");
}

#[test]
fn a_handler_in_python_has_the_agent_of_its_node_and_the_conversation_goes_on_after_a_kill() {
    let folder = Place::new();
    let (gate, log) = (folder.folder().join("gate"), folder.folder().join("log"));
    let gateway = format!(
        "{{ agent = \"claude\", command = [\"python3\", \"{STAND_IN}\"], config_folders = \"agents\", \
         env = {{ STAND_IN_LOG = \"{}\", ANTHROPIC_API_KEY = \"none\" }} }}",
        log.display()
    );
    let place = handlers("[\"python3\", \"handler.py\"]", &gateway, "");
    place.write("handler.py", HANDLER);
    let logged = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line.get("prompt").is_some()).collect()
    };
    let prompt = format!("[[gate {}]]", gate.display());
    let agents = place.folder().join("agents");
    let begun = || !logged().is_empty() && is_begun(&agents, "query 1.1");
    let (_, task) = twice_killed(&place, &prompt, &gate, begun);
    let prompts: Vec<Value> = logged().iter().map(|line| line["prompt"].clone()).collect();
    assert_eq!(prompts, [prompt.as_str(), "Go on.", "Do it."], "each is paid once");
    assert!(logged().iter().all(|line| line["session"] == logged()[0]["session"]), "one conversation");
    assert_eq!(task["output"]["second"], "Prompts: 3, last: Do it.");
    let attempts = task["attempts"].as_array().expect("a list");
    let cost: f64 = attempts.iter().filter_map(|attempt| attempt["cost_usd"].as_f64()).sum();
    assert!(cost > 0.0, "{task}");
}

#[test]
fn what_an_agent_says_of_its_allowance_is_recorded_for_a_handler_that_asks_it() {
    let folder = Place::new();
    let notes = folder.write("notes.txt", "All is well. And more.");
    let gateway = format!(
        "{{ agent = \"claude\", command = [\"python3\", \"{STAND_IN}\"], config_folders = \"agents\", \
         env = {{ STAND_IN_LOG = \"{}\", ANTHROPIC_API_KEY = \"none\" }} }}",
        folder.folder().join("log").display()
    );
    let place = handlers("[\"python3\", \"handler.py\"]", &gateway, "");
    let handler = "from ostler import worker\n\n@worker.task(\"run\")\ndef run(payload, ctx):\n    \
                   return ctx.gateway().create_session().run_query(payload).text\n\nworker.run()\n";
    place.write("handler.py", handler);
    let _node = up(&place);
    let prompt = json!(format!("Summarize {}", notes.display())).to_string();
    let id = place.done(["submit", "runs", "run", "--payload", &prompt]);
    assert_eq!(ended(&place, id.trim(), "completed")["output"], "All is well.");
    let account = &place.json(["account", "ls"])[0];
    assert_eq!(
        (&account["usage"]["window"], &account["usage"]["used"]),
        (&json!("five_hour"), &json!(0.25)),
        "{account}"
    );
}

/// Whether an agent has begun to work on this query or task, and its home below the folder has that on record: the next attempt goes on
/// from there.
pub(crate) fn is_begun(folder: &Path, query: &str) -> bool {
    let records = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok);
    records.filter(|file| file.file_name() == "conversation.json").any(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        serde_json::from_str::<Value>(&text).is_ok_and(|record| record["begun"] == query)
    })
}

/// Kills the node in the middle of the first query, and again when both are answered. Returns the task.
pub(crate) fn twice_killed(
    place: &Place,
    prompt: &str,
    gate: &Path,
    asked: impl Fn() -> bool,
) -> (String, Value) {
    let finish = place.folder().join("finish");
    let payload = json!({"prompt": prompt, "finish": finish}).to_string();
    let node = up(place);
    let words = ["submit", "runs", "run", "--payload", &payload, "--key", "job_abc123"];
    let id = place.done(words).trim().to_owned();
    until("it is asked", || asked().then_some(()));
    until("it is running", || {
        (place.json(["show", &id])["attempts"][0]["session_id"].is_string()).then_some(())
    });
    kill(node);
    std::fs::write(gate, "").expect("the gate opens");
    let node = up(place);
    until("both are answered", || place.done(["logs", &id]).contains("both are answered").then_some(()));
    kill(node);
    std::fs::write(&finish, "").expect("it may finish");
    let _node = up(place);
    let task = ended(place, &id, "completed");
    assert_eq!((&task["output"]["key"], &task["output"]["attempts"]), (&json!("job_abc123"), &json!(3)));
    let log = place.done(["logs", &id]);
    assert!(log.contains("query 1.2 was answered in an earlier attempt"), "{log}");
    (id, task)
}

#[test]
fn the_example_of_a_run_handler_keeps_its_report() {
    let folder = Place::new();
    let reference = Reference::start(folder.folder(), 0, &json!([]));
    let gateway = format!("{{ url = \"{}\", token = \"GATEWAY_TOKEN\" }}", reference.address);
    let place = handlers(&format!("[\"python3\", \"{ROOT}/examples/run_handler.py\"]"), &gateway, "");
    let _node = up(&place);
    let work = place.folder().join("project");
    std::fs::create_dir(&work).expect("a folder");
    let words = ["run", "--pool", "runs", "--prompt", "Count the files", "--max-iterations", "7", "--wait"];
    let folder = work.display().to_string();
    let answer = place.done([&words[..], &["--folder", &folder]].concat());
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["plan"], "Queries: 1, last: Make a plan for this, in three steps: Count the files");
    let report = std::fs::read_to_string(work.join("report.md")).expect("a report");
    assert_eq!(report, "Queries: 2, last: Follow the plan, and write the report.\n");
    assert_eq!(reference.logged("query")[0]["options"], json!({"max_iterations": 7}));
}

#[test]
fn a_handler_in_javascript_asks_the_gateway_and_gets_the_class_of_a_refusal() {
    let folder = Place::new();
    let rules = json!([{"when": "busy", "status": 429, "retry_after": 2}]);
    let reference = Reference::start(folder.folder(), 0, &rules);
    let gateway = format!("{{ url = \"{}\", token = \"GATEWAY_TOKEN\" }}", reference.address);
    let place = handlers("[\"node\", \"handler.cjs\"]", &gateway, "");
    place.write("handler.cjs", HANDLER_JS);
    install_javascript_sdk(&place);
    let _node = up(&place);
    let answer = place.done(["run", "--pool", "runs", "--prompt", "Tea", "--wait"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(
        answer,
        json!({
            "plan": "Queries: 1, last: Plan: Tea",
            "report": "Queries: 2, last: Report.",
            "same": true,
            "refused": "TaskError/rate_limited/2000",
            "prompt": "Tea"
        })
    );
    assert_eq!(reference.logged("created")[0]["user_id"], "custom");
    let task = place.json(["ls"]);
    let shown = place.json(["show", task[0]["id"].as_str().expect("an id")]);
    assert_eq!(shown["attempts"][0]["cost_usd"], json!(0.002), "both queries");
}

#[test]
fn a_handler_without_a_gateway_says_so_at_once() {
    let place = place(&format!(
        "executor = \"process\"\ncommand = [\"python3\", \"handler.py\"]\nmin_workers = 1\nmax_workers = 1\n\
         env = {{ PYTHONPATH = \"{ROOT}/sdk/python\" }}"
    ));
    place.write("handler.py", HANDLER);
    let _node = up(&place);
    let ran = place.run(["submit", "runs", "run", "--payload", "{\"prompt\":\"x\"}", "--wait"]);
    ran.is_refused(1, "the pool has no gateway");
}

#[test]
fn a_run_needs_a_prompt_and_a_pool() {
    let none = Place::new();
    none.refused(["run", "--prompt", "x"], 2, "name one with --pool");
    assert!(!none.store().exists(), "nothing was created");
    let agent = "executor = \"agent\"\nagent = \"command\"\ncommand = [\"cat\"]\n";
    none.write("ostler.toml", "[pool.shell]\nexecutor = \"command\"\ncommand = [\"true\"]\n");
    none.refused(["run", "--prompt", "x"], 2, "has no pool that takes prompts");
    none.refused(
        ["run", "--prompt", "x", "--pool", "other"],
        2,
        "has no pool \"other\"; its pools are shell",
    );
    none.write("ostler.toml", format!("[pool.a]\n{agent}[pool.b]\n{agent}"));
    none.refused(["run", "--prompt", "x"], 2, "say which with --pool: a, b");
    none.refused(["run", "--prompt", " "], 2, "the prompt is empty");
    none.refused(["run", "--prompt", "x", "--max-iterations", "0"], 2, "0 is not in 1..=10000");
    none.refused(["run", "--prompt", "x", "--pool", "a", "--folder", "nowhere"], 2, "is not a folder");
    let id = none.done(["run", "--prompt", "x", "--pool", "b", "--model", "m"]);
    assert_eq!(none.json(["show", id.trim()])["payload"], json!({"prompt": "x", "model": "m"}));
}
