//! `ostler mcp`, asked by the client of the official library, `mcp` for Python. Needs the package registry, once.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::hands::Hands;
use crate::ostler::{Place, Running};
use crate::pool_jobs;

/// The version of the client.
const CLIENT: &str = "mcp==2.3.0";
const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/mcp_client.py");

/// A Python that has the client.
fn python() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-client");
        let python = folder.join("bin/python");
        let works = || {
            let tried = Command::new(&python).args(["-c", "import mcp"]).stderr(Stdio::null()).status();
            tried.is_ok_and(|is| is.success())
        };
        if !works() {
            let run = |program: &Path, args: &[&str]| {
                let done = Command::new(program).args(args).output().expect("it can be run");
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            };
            let place = folder.to_str().expect("the path is text");
            run(Path::new("python3"), &["-m", "venv", "--clear", place]);
            run(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", CLIENT]);
        }
        python
    })
}

/// A client of `ostler mcp`.
struct McpClient {
    child: Child,
    calls: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl McpClient {
    /// The newest protocol.
    fn of(place: &Place, options: &[&str]) -> Self {
        Self::by("auto", place, options)
    }

    fn by(mode: &str, place: &Place, options: &[&str]) -> Self {
        let arguments: Vec<&str> = ["mcp"].iter().chain(options).copied().collect();
        let command = place.command([""; 0]);
        let store = command.get_envs().find(|(name, _)| *name == "OSTLER_STORE").and_then(|(_, value)| value);
        let mut child = Command::new(python())
            .args([DRIVER, mode, env!("CARGO_BIN_EXE_ostler"), &json!(arguments).to_string()])
            .arg(place.folder())
            .arg(store.expect("there is a store"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (calls, answers) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { child, calls, answers: BufReader::new(answers) }
    }

    fn ask(&mut self, call: &str, arguments: Value) -> Value {
        let mut line = json!({ "call": call });
        line["arguments"] = arguments;
        let line = line.to_string() + "\n";
        self.calls.as_mut().expect("it is open").write_all(line.as_bytes()).expect("it is read");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{call}: {error}: {answer:?}"))
    }

    fn tools(&mut self) -> Vec<Value> {
        self.ask("list", json!({})).as_array().expect("a list").clone()
    }

    /// The text of a call that succeeds.
    fn text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask(tool, arguments);
        assert_eq!(answer["error"], false, "{tool}: {answer}");
        answer["text"].as_str().expect("a text").to_owned()
    }

    /// The JSON of a call that succeeds.
    fn json(&mut self, tool: &str, arguments: Value) -> Value {
        let text = self.text(tool, arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{tool}: {error}: {text}"))
    }

    /// The sentence of a call that fails.
    fn wrong(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.ask(tool, arguments);
        assert_eq!(answer["error"], true, "{tool}: {answer}");
        answer["text"].as_str().expect("a sentence").to_owned()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        drop(self.calls.take());
        let ended = self.child.wait();
        if !std::thread::panicking() {
            assert!(ended.is_ok_and(|status| status.success()), "the client ends well");
        }
    }
}

fn names(tools: &[Value]) -> BTreeSet<&str> {
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

const LOOKING: [&str; 10] =
    ["stats", "doctor", "nodes", "queues", "tasks", "task", "task_log", "task_result", "jobs", "job_results"];
const CHANGING: [&str; 5] = ["submit_task", "create_job", "steer_job", "steer_task", "steer_queue"];

#[test]
fn without_a_flag_there_are_only_tools_that_look_and_all_have_annotations() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "{}").to_string();
    let mut client = McpClient::of(&place, &[]);
    let about = client.ask("about", json!({}));
    assert_eq!((&about[1], &about[2]), (&"ostler".into(), &env!("CARGO_PKG_VERSION").into()));
    let tools = client.tools();
    assert_eq!(names(&tools), BTreeSet::from(LOOKING));
    for tool in &tools {
        let hints = &tool["annotations"];
        assert_eq!(
            (&hints["readOnlyHint"], &hints["destructiveHint"]),
            (&true.into(), &false.into()),
            "{tool}"
        );
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 40), "{tool}");
    }
    // A changing tool that is called all the same is refused, and changes nothing.
    let said = client.wrong("steer_task", json!({ "action": "cancel", "id": id }));
    assert!(said.contains("--allow-changes"), "{said}");
    assert_eq!(client.json("task", json!({ "id": id }))["state"], "queued");
    assert!(!place.folder().join("ostler.db.audit.jsonl").exists());
    drop(client);

    let mut client = McpClient::by("legacy", &place, &["--allow-changes"]);
    let tools = client.tools();
    assert_eq!(names(&tools), LOOKING.into_iter().chain(CHANGING).collect());
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).expect("it is listed");
        (tool["annotations"]["readOnlyHint"].clone(), tool["annotations"]["destructiveHint"].clone())
    };
    assert_eq!(hints("submit_task"), (false.into(), false.into()));
    assert_eq!(hints("steer_queue"), (false.into(), false.into()));
    assert_eq!(hints("steer_task"), (false.into(), true.into()));
    assert_eq!(hints("steer_job"), (false.into(), true.into()));
    // An older client is served too.
    assert_eq!(client.json("stats", json!({}))["tasks"]["queued"], 1);
}

/// What the workers have answered, of the results that are there.
fn outputs(results: &str) -> Vec<String> {
    let lines = results.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let outputs = lines.filter_map(|line| serde_json::from_str::<Value>(line["output"].as_str()?).ok());
    outputs.filter_map(|output| Some(output["got"].as_str()?.to_owned())).collect()
}

#[test]
fn a_job_is_created_watched_approved_and_its_results_are_read() {
    let place = pool_jobs::place();
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    let mut client = McpClient::of(&place, &["--allow-changes"]);
    assert!(client.text("nodes", json!({})).contains("docs"));
    let input = json!({
        "pool": "docs", "kind": "review", "items": ["a", "b", "c"], "pilot": 1, "name": "letters", "idempotency_key": "once"
    });
    let created = client.json("create_job", input.clone());
    let job = created["id"].as_str().expect("an id").to_owned();
    // A repeated call makes nothing twice.
    assert_eq!(client.json("create_job", input)["id"], *job);
    pool_jobs::until("the pilot has run", || client.json("jobs", json!({ "job": job }))["state"] == "paused");
    let shown = client.text("job_results", json!({ "job": "letters" }));
    assert_eq!(outputs(&shown), ["a"], "{shown}");
    client.json("steer_job", json!({ "job": job, "action": "approve" }));
    pool_jobs::until("the job is complete", || {
        client.json("jobs", json!({ "job": job }))["state"] == "completed"
    });
    assert_eq!(outputs(&client.text("job_results", json!({ "job": job }))), ["a", "b", "c"]);
    assert_eq!(client.json("jobs", json!({})).as_array().map(Vec::len), Some(1));
    // Changes are in the audit, by name.
    let audit = std::fs::read_to_string(place.folder().join("ostler.db.audit.jsonl")).expect("there is one");
    let audit: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let made = |operation: &str| {
        audit.iter().filter(|line| line["operation"] == operation && line["who"] == "mcp").count()
    };
    assert_eq!((made("jobs.create"), made("jobs.approve")), (4, 2), "{audit:?}");
    drop(client);
    drop(node);
}

#[test]
fn every_tool_answers_and_the_reason_why_a_task_waits_is_read() {
    for place in [Place::new(), Place::on_server()] {
        let mut client = McpClient::of(&place, &["--allow-changes"]);
        let first = client.json(
            "submit_task",
            json!({ "queue": "mail", "kind": "send", "payload": { "to": "anna" }, "in": "1h" }),
        );
        let first = first["id"].as_str().expect("an id").to_owned();
        let task = client.json("task", json!({ "id": first }));
        assert_eq!(
            (&task["waits_for"], &task["payload"]["to"]),
            (&"scheduled".into(), &"anna".into()),
            "{task}"
        );
        let second = client.json("submit_task", json!({ "queue": "mail", "kind": "send", "after": [first] }));
        let task = client.json("task", json!({ "id": second["id"] }));
        assert_eq!((&task["waits_for"], &task["after"]), (&"dependency".into(), &json!([first])), "{task}");
        client.json(
            "steer_queue",
            json!({ "queue": "mail", "action": "pause", "reason": "the provider is down" }),
        );
        let queue = client.text("queues", json!({ "queue": "mail" }));
        assert!(queue.contains("the provider is down"), "{queue}");
        assert!(client.text("queues", json!({})).contains("mail"));
        client.json("steer_queue", json!({ "queue": "mail", "action": "resume" }));
        assert_eq!(
            client.json("tasks", json!({ "state": "queued", "limit": 1 }))["tasks"].as_array().map(Vec::len),
            Some(1)
        );
        assert_eq!(client.json("task_result", json!({ "id": first, "wait": "1ms" }))["state"], "queued");
        client.json("steer_task", json!({ "id": first, "action": "cancel" }));
        assert_eq!(client.json("task_result", json!({ "id": first }))["state"], "cancelled");
        client.json("steer_task", json!({ "id": first, "action": "retry", "from_scratch": true }));
        assert!(client.json("task_log", json!({ "id": first }))["events"].is_array());
        assert!(client.json("doctor", json!({})).is_array());
        assert_eq!(client.json("stats", json!({ "queue": "mail" }))["tasks"]["queued"], 1);
        assert_eq!(client.json("nodes", json!({})), json!([]));
        assert_eq!(client.json("jobs", json!({})), json!([]));
    }
}

#[test]
fn malformed_input_is_refused_with_a_sentence() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "{}").to_string();
    let mut client = McpClient::of(&place, &["--allow-changes"]);
    for (tool, arguments, words) in [
        ("task", json!({}), "id: it is missing"),
        ("task", json!({ "id": "" }), "id: it must not be empty"),
        ("task", json!({ "id": ["x"] }), "id: expected a text"),
        ("task", json!({ "id": "01JC8Z0Q4M9T7N3V5X1B2D6F8H" }), "not_found"),
        ("task", json!({ "id": id, "colour": "red" }), "colour: task has no such argument"),
        ("tasks", json!({ "state": "lost" }), "state"),
        ("tasks", json!({ "limit": 0 }), "limit: expected a whole number"),
        ("steer_task", json!({ "id": id }), "action: expected one of cancel, retry"),
        ("steer_task", json!({ "id": id, "action": "drop" }), "action: expected one of"),
        ("steer_task", json!({ "id": id, "action": "retry", "steps": 1 }), "steps"),
        ("steer_job", json!({ "job": "none", "action": "approve" }), "not_found"),
        ("submit_task", json!({ "kind": "send" }), "queue"),
        ("submit_task", json!({ "queue": "mail", "kind": "send", "priority": 1000 }), "priority"),
        (
            "submit_task",
            json!({ "queue": "mail", "kind": "send", "idempotency_key": "a\nb" }),
            "idempotency_key",
        ),
        ("create_job", json!({ "pool": "docs", "items": [] }), "items"),
    ] {
        let said = client.wrong(tool, arguments.clone());
        assert!(said.contains(words), "{tool} {arguments}: {said}");
    }
    let unknown = client.ask("drop_everything", json!({}));
    assert!(unknown["refused"].as_str().is_some_and(|said| said.contains("no tool")), "{unknown}");
    assert_eq!(client.json("task", json!({ "id": id }))["state"], "queued");
}

#[test]
fn a_big_answer_is_cut_with_a_mark() {
    let place = Place::new();
    let hands = Hands::join(&place);
    // One text that is too long.
    let big = hands.enqueue("mail", "send", &json!({ "text": "x".repeat(300_000), "last": 1 }).to_string());
    // And many short ones.
    hands.enqueue_many(900, "mail", "send", "{}");
    let mut client = McpClient::of(&place, &[]);
    let shown = client.text("task", json!({ "id": big.to_string() }));
    assert!(shown.len() < 60_000 && shown.contains("[cut: 297952 bytes more]"), "{} bytes", shown.len());
    assert!(
        shown.contains("\"last\":1") && shown.contains("\n[cut: long texts in this answer of "),
        "{shown}"
    );
    let listed = client.text("tasks", json!({ "limit": 1000 }));
    assert!(listed.len() < 60_000, "{} bytes", listed.len());
    assert!(
        listed.contains("[cut: this is the beginning of an answer of ")
            && listed.contains("`ostler ls --json`")
    );
    // What fits has no mark.
    assert!(!client.text("tasks", json!({ "limit": 1 })).contains("[cut"));
}

#[test]
fn the_skill_names_the_tools_that_there_are() {
    let place = Place::new();
    let skill = place.done(["mcp", "--skill"]);
    assert!(skill.starts_with("---\nname: ostler\ndescription: "), "{skill}");
    for tool in LOOKING.iter().chain(&CHANGING) {
        assert!(skill.contains(tool), "{tool} is not in SKILL.md");
    }
    assert!(!place.store().exists(), "the skill needs no store");
    // Who only looks creates no store.
    place.refused(["mcp"], 3, "there is no store");
}
