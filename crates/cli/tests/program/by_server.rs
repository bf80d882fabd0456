//! `--server`: the same output and exit codes as on the store, and commands that need the store itself.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::ostler::{Place, Ran, Running, ran};
use crate::workers::{WORKER, until};

const TOKEN: &str = "the-token-of-this-test";
const CONFIG: &str = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload }}\"]\nretry = { attempts = 1 }\naccount = \"claude\"\n[account.claude]\nconcurrency = 3\n";

struct Node {
    _running: Running,
    place: Place,
    url: String,
}

impl Node {
    fn up(place: Place) -> Self {
        Self::up_with(place, CONFIG)
    }

    fn up_with(place: Place, config: &str) -> Self {
        place.write("ostler.toml", config);
        let mut command = place.command(["up", "--listen", "127.0.0.1:0"]);
        command.env("OSTLER_TOKEN", TOKEN).env("XDG_STATE_HOME", place.folder());
        let running = Running::start(command);
        let ready: Value = serde_json::from_str(&running.line()).expect("a line of JSON");
        let url = format!("http://{}", ready["listen"].as_str().expect("an address"));
        Self { _running: running, place, url }
    }

    fn ask_as(&self, token: &str, words: &[&str]) -> Ran {
        // A folder without a config and without a store.
        let elsewhere = Place::new();
        let mut command = elsewhere.bare();
        command.args(["--server", &self.url]).args(words).env("OSTLER_TOKEN", token);
        ran(&mut command)
    }

    fn ask(&self, words: &[&str]) -> Ran {
        self.ask_as(TOKEN, words)
    }

    fn done(&self, words: &[&str]) -> String {
        let ran = self.ask(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        ran.out
    }

    /// Both print the same. What changes by itself in between, such as a worker that becomes idle, is asked for again.
    fn assert_same(&self, words: &[&str]) {
        let mut here = self.place.run(words);
        for _ in 0..50 {
            let there = self.ask(words);
            let again = self.place.run(words);
            if timeless(&here.out) == timeless(&again.out) {
                assert_eq!(
                    (here.code, timeless(&here.out)),
                    (there.code, timeless(&there.out)),
                    "ostler {words:?}"
                );
                return;
            }
            here = again;
        }
        panic!("the answer of {words:?} changes at every call");
    }

    /// A change that may be repeated: at the node it is reported as it is when it is repeated on the store.
    fn assert_reported_alike(&self, words: &[&str]) {
        self.place.run(words);
        let (here, there) = (self.place.run(words), self.ask(words));
        assert_eq!(
            (here.code, timeless(&here.out), here.err),
            (there.code, timeless(&there.out), there.err),
            "ostler {words:?}"
        );
    }
}

/// The output without ages, such as `12s`, and without the width of their columns. JSON has none: it stays as it is.
fn timeless(out: &str) -> String {
    let is_age = |word: &str| {
        let word = word.trim_matches(|c: char| "(),".contains(c));
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(['s', 'm', 'h'])
            && word.chars().all(|c| c.is_ascii_digit() || ".msh".contains(c))
    };
    let line = |line: &str| {
        line.split_whitespace()
            .map(|word| if is_age(word) { "(age)" } else { word })
            .collect::<Vec<_>>()
            .join(" ")
    };
    if out.starts_with(['{', '[']) {
        out.to_owned()
    } else {
        out.lines().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Tasks of every sort: completed, failed, cancelled, waiting.
fn with_tasks(node: &Node) -> (String, String) {
    let id = |text: String| text.trim().to_owned();
    let good = id(node.done(&["submit", "shell", "run", "--payload", "\"echo hello\"", "--key", "first"]));
    let bad = id(node.done(&["submit", "shell", "run", "--payload", "\"echo wrong >&2; exit 3\""]));
    assert_eq!(
        node.ask(&["submit", "shell", "run", "--payload", "\"echo waited\"", "--wait"]).out,
        "\"waited\"\n"
    );
    for word in ["one", "two"] {
        node.done(&["submit", "parked", "odd", "--payload", &format!("\"{word}\""), "--in", "1h"]);
    }
    let cancelled = id(node.done(&["submit", "parked", "even"]));
    node.done(&["cancel", &cancelled]);
    // Both have ended when their logs do.
    node.done(&["logs", "-f", &good]);
    node.done(&["logs", "-f", &bad]);
    (good, bad)
}

fn compares(place: Place) {
    let node = Node::up(place);
    let (good, bad) = with_tasks(&node);
    for words in [
        &["ls"][..],
        &["ls", "--state", "failed"],
        &["ls", "--queue", "parked", "--limit", "1"],
        &["show", &good],
        &["show", &bad],
        &["show", "key:first", "--queue", "shell"],
        &["logs", &bad],
        &["dead", "ls"],
        &["dead", "show", &bad],
        &["queue", "ls"],
        &["queue", "show", "shell"],
        &["breaker", "ls"],
        &["nodes"],
        &["stats"],
        &["stats", "--queue", "shell"],
        &["schedule", "ls"],
        &["account", "ls"],
        &["job", "ls"],
        &["cost"],
    ] {
        node.assert_same(&[words, &["--json"]].concat());
        node.assert_same(words);
    }
}

#[test]
fn a_node_prints_what_its_store_prints() {
    compares(Place::new());
}

#[test]
fn a_node_on_a_server_prints_what_its_store_prints() {
    compares(Place::on_server());
}

#[test]
fn actions_by_a_node_report_as_on_the_store() {
    let node = Node::up(Place::new());
    let (good, bad) = with_tasks(&node);
    assert!(node.done(&["pause", "parked", "--reason", "by hand"]).starts_with("parked is paused"));
    assert_eq!(node.done(&["resume", "parked"]), "parked is resumed\n");
    assert_eq!(
        node.done(&["dead", "replay", &bad, "--payload", "\"echo mended\""]),
        format!("{bad} queued again\n")
    );
    node.done(&["logs", "-f", &bad]);
    assert!(node.place.done(["show", &bad]).contains("\"mended\""), "it ran with the other payload");
    node.ask(&["retry", &good]).is_refused(2, "ostler retry --again");
    let copy = node.done(&["retry", "--again", &good]);
    assert_eq!(copy.trim().len(), good.len());
    node.ask(&["cancel", "--queue", "parked"]).is_refused(2, "add --yes");
    assert_eq!(node.done(&["cancel", "--queue", "parked", "--yes"]), "2 tasks: 2 cancelled\n");
    let lines =
        "{\"queue\":\"later\",\"kind\":\"run\"}\n{\"queue\":\"later\",\"kind\":\"run\",\"key\":\"k\"}\n";
    let elsewhere = Place::new();
    let file = elsewhere.write("tasks.jsonl", lines);
    let made = node.done(&["submit", "--jsonl", &file.to_string_lossy()]);
    assert_eq!(made.lines().count(), 2);
    assert_eq!(node.place.json(["ls", "--queue", "later"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn exit_codes_are_those_of_a_store() {
    let node = Node::up(Place::new());
    let missing = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    node.ask(&["show", missing]).is_refused(4, "there is no task");
    node.ask(&["cancel", missing]).is_refused(4, "there is no task");
    node.ask(&["job", "show", "nothing"]).is_refused(4, "nothing");
    node.place.done(["queue", "set", "tiny", "--queue-limit", "1"]);
    node.done(&["submit", "tiny", "run"]);
    node.ask(&["submit", "tiny", "run"]).is_refused(5, "full");
    node.ask(&["submit", "shell", "run", "--payload", "\"exit 3\"", "--wait"]).is_refused(1, "exit code 3");
    node.ask_as("another-token", &["ls"]).is_refused(3, "OSTLER_TOKEN");
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let nowhere = format!("http://127.0.0.1:{port}");
    Place::new().refused(["ls", "--server", &nowhere], 3, "ostler up");
    Place::new().refused(["ls", "--server", "ftp://x"], 2, "http://host:port");
    for words in [
        &["db", "check"][..],
        &["db", "prune", "--completed-older", "1d"],
        &["up"],
        &["demo"],
        &["map", "echo {}", ":::", "a"],
        &["map", "--detach", "echo {}", ":::", "a"],
        &["map", "--pool", "shell", "--kind", "run", ":::", "a"],
        &["map", "--detach", "--once", "--pool", "shell", "--kind", "run", ":::", "a"],
        &["config", "--default"],
    ] {
        node.ask(words).is_refused(2, "this command has no --server");
    }
    node.ask(&["run", "--prompt", "Go"]).is_refused(2, "--pool");
    node.ask(&["ls", "--store", "x.db"]).is_refused(2, "--server");
}

fn changes_alike(place: Place) {
    let node = Node::up(place);
    let (good, bad) = with_tasks(&node);
    node.place.done(["submit", "later", "run", "--in", "1h", "--limit-key", "acme"]);
    node.place
        .done(["map", "--detach", "--pool", "shell", "--kind", "run", "--name", "letters", ":::", "true"]);
    // A payload of the pool is a script, and that of an item is none: it fails.
    let has_failed = || (node.place.json(["job", "show", "letters"])["state"] == "failed").then_some(());
    until("the item fails", has_failed);
    let retried = node.done(&["job", "retry-failed", "letters", "--from-scratch"]);
    assert!(retried.starts_with("retried: 1 task of "), "{retried}");
    until("it fails again", has_failed);
    // Then the node lets go of it.
    let resize = ["job", "set", "letters", "--concurrency", "2"];
    until("no process runs it", || (node.place.run(resize).code == Some(4)).then_some(()));
    for words in [
        &[
            "queue",
            "set",
            "parked",
            "--rate",
            "60/m",
            "--concurrency",
            "3",
            "--budget",
            "$5",
            "--key",
            "payload.a",
        ][..],
        &[
            "queue",
            "set",
            "parked",
            "--rate",
            "none",
            "--budget",
            "none",
            "--priority",
            "strict",
            "--key-until",
            "end",
        ],
        &["queue", "set", "shell", "--breaker", "failures=5,reset=5m"],
        &["queue", "set", "parked"],
        &["queue", "set", "parked", "--reserve", "1"],
        &["queue", "release", "parked"],
        &["queue", "release", "later", "--key", "acme"],
        &["queue", "release", "absent"],
        &["queue", "unsubscribe", "parked", "absent"],
        &["breaker", "open", "parked"],
        &["breaker", "reset", "parked"],
        &["breaker", "open", "later", "--key", "acme"],
        &["breaker", "open", "absent"],
        &["account", "hold", "claude", "--reason", "by a test"],
        &["account", "cap", "claude", "4"],
        &["account", "cap", "claude", "none"],
        &["account", "release", "claude"],
        &["account", "show", "absent"],
        &[
            "schedule",
            "add",
            "nightly",
            "parked",
            "run",
            "--cron",
            "0 3 * * *",
            "--timezone",
            "Europe/Berlin",
        ],
        &["schedule", "pause", "nightly"],
        &["schedule", "add", "nightly", "parked", "run", "--every", "5h", "--payload", "{\"a\":1.10}"],
        &["schedule", "show", "nightly"],
        &["schedule", "resume", "nightly"],
        &["schedule", "rm", "nightly"],
        &["schedule", "add", "never", "parked", "run", "--cron", "x"],
        &["resize", "shell", "2", "5"],
        &["resize", "shell", "5", "2"],
        &["resize", "absent", "1"],
        &["recycle", "absent"],
        &["recycle", "--any", "absent"],
        &["drain", "absent"],
        &["resume", "--node", "absent"],
        &["continue", &good, "--prompt", "more"],
        &["continue", &good, "--prompt", " "],
        &["job", "set", "letters", "--concurrency", "2"],
        &["job", "add", "letters", "true"],
        &["job", "add", "absent", "true"],
        &["job", "approve", "letters"],
        &["show", "key:absent"],
        &["show", "zzzz"],
        &["dead", "show", &good],
        &["queue", "show", "absent"],
        &["amend", &bad, "--base", "5s", "--max", "1s"],
    ] {
        node.assert_reported_alike(words);
    }
}

#[test]
fn changes_by_a_node_are_reported_as_on_its_file() {
    changes_alike(Place::new());
}

#[test]
fn changes_by_a_node_are_reported_as_on_its_server() {
    changes_alike(Place::on_server());
}

#[test]
fn a_node_takes_prompts_and_detached_jobs_and_prunes() {
    // A prompt is a script for this pool, and an item is a script too.
    let config = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload.prompt }}\"]\nretry = { attempts = 1 }\n\
                  [pool.items]\nexecutor = \"command\"\ncommand = [\"sh\", \"-c\", \"{{ payload.item }}\"]\nretry = { attempts = 1 }\n\
                  [keep]\ncompleted = \"1s\"\n";
    let node = Node::up_with(Place::new(), config);
    let run = ["run", "--pool", "shell", "--prompt", "echo $0 it", "--model", "m-1", "--id", "job_1"];
    let id = node.done(&run).trim().to_owned();
    let again = node.ask(&run);
    assert_eq!((again.out.trim(), again.code), (id.as_str(), Some(0)));
    assert!(again.err.contains("a run with this id already exists"), "{again:?}");
    assert_eq!(node.done(&[&run[..], &["--wait"]].concat()).trim(), "\"sh it\"");
    let task = node.place.json(["show", "key:job_1", "--queue", "shell"]);
    assert_eq!((&task["kind"], &task["payload"]["model"]), (&"run".into(), &"m-1".into()), "{task}");

    let map = [
        "map",
        "--detach",
        "--pool",
        "items",
        "--kind",
        "go",
        "--name",
        "letters",
        "--retries",
        "2",
        "--jobs",
        "3",
    ];
    // Items work in the folder of the command, which has to be there.
    let mut command = node.place.bare();
    command
        .args(["--server", &node.url])
        .args(map)
        .args([":::", "echo a", "echo b"])
        .env("OSTLER_TOKEN", TOKEN);
    let job = ran(&mut command).out.trim().to_owned();
    let view = || node.place.json(["job", "show", &job]);
    until("the items are done", || (view()["tasks"]["completed"] == 2).then_some(()));
    let outputs: Vec<_> = node.done(&["job", "export", "letters"]).lines().map(str::to_owned).collect();
    assert!(outputs.len() == 2 && outputs[1].contains("\"output\":\"b\""), "{outputs:?}");
    let item = node.place.json(["ls", "--queue", &format!("job {job}"), "--limit", "1"]);
    let item = node.place.json(["show", item[0]["id"].as_str().expect("an id")]);
    assert_eq!(item["kind"], "go", "{item}");

    // Its retention, which the store is asked to keep to by its command line too.
    let pruned = || node.done(&["db", "prune", "--json"]);
    until("the run is old enough", || (!pruned().contains("\"tasks\":0")).then_some(()));
    node.ask(&["show", &id]).is_refused(4, "there is no task");
}

#[test]
fn by_a_filter_and_as_json_each_task_is_named_as_on_the_store() {
    let node = Node::up(Place::new());
    let park = || node.place.done(["submit", "parked", "run", "--in", "1h"]).trim().to_owned();
    let act = ["cancel", "--queue", "parked", "--yes", "--json"];
    let (first, here) = (park(), node.place.done(act));
    let (second, there) = (park(), node.done(&act));
    assert_eq!(there.replace(&second, &first), here);
    // Copies are made one by one, too.
    let good = node.done(&["submit", "shell", "run", "--payload", "\"true\""]).trim().to_owned();
    node.done(&["logs", "-f", &good]);
    let copied = node.done(&["retry", "--again", "--queue", "shell", "--yes"]);
    assert_eq!(copied, "1 task: 1 copied\n");
    assert_eq!(node.ask(&["cancel", "--queue", "absent", "--yes"]).out, "no tasks match\n");
}

#[test]
fn a_drain_is_asked_for_and_taken_back_by_a_node() {
    let node = Node::up(Place::new());
    let gate = node.place.folder().join("gate");
    let script = format!("\"while [ ! -e {} ]; do sleep 0.05; done\"", gate.display());
    let id = node.done(&["submit", "shell", "run", "--payload", &script]).trim().to_owned();
    until("it runs", || (node.place.json(["show", &id])["state"] == "running").then_some(()));
    let name = node.place.json(["nodes"])[0]["name"].as_str().expect("a name").to_owned();
    assert!(node.done(&["drain", &name]).contains("is draining: it will finish its running tasks and exit"));
    assert!(node.done(&["resume", "--node", &name]).contains("is no longer draining"));
    assert!(node.done(&["resume", "--node", &name]).contains("was not draining"));
    std::fs::write(&gate, "").expect("the gate opens");
    node.done(&["submit", "shell", "run", "--payload", "\"true\"", "--wait"]);
}

#[test]
fn workers_are_replaced_by_a_node() {
    let config = format!(
        "[pool.docs]\nexecutor = \"process\"\ncommand = [\"python3\", \"{WORKER}\", \"well\"]\nmin_workers = 1\nmax_workers = 1\n"
    );
    let node = Node::up_with(Place::new(), &config);
    let before = RefCell::new(String::new());
    // The only one, and another one than before.
    let idle = || {
        let workers = node.place.json(["workers"]).as_array().cloned().expect("a list");
        let [worker] = workers.as_slice() else { return None };
        let id = worker["id"].as_str().expect("an id").to_owned();
        (worker["state"] == "idle" && id != *before.borrow()).then_some(id)
    };
    let worker = until("a worker is idle", idle);
    assert_eq!(node.done(&["recycle", &worker]), format!("worker {worker} is being replaced\n"));
    before.replace(worker);
    for words in [["recycle", "--any", "docs"], ["recycle", "--all", "docs"]] {
        let worker = until("another one is idle", idle);
        let done = node.done(&[&words[..], &["--json"]].concat());
        assert_eq!(done, format!("{{\"recycled\":[\"{worker}\"],\"busy\":[]}}\n"));
        before.replace(worker);
    }
}

#[test]
fn a_login_link_is_made_by_a_node() {
    let node = Node::up(Place::new());
    let link = node.done(&["open", "--print"]);
    assert!(link.starts_with(&format!("{}/login#", node.url)), "{link}");
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let link: Value = serde_json::from_str(&node.done(&["open", id, "--print", "--json"])).expect("JSON");
    assert!(
        link["link"].as_str().is_some_and(|link| link.contains(&format!("/login?to=tasks/{id}#"))),
        "{link}"
    );
    // A link for a visitor who may only look.
    let link = node.done(&["open", "--print", "--readonly"]);
    let body = serde_json::json!({ "token": link.trim().split_once('#').expect("a text").1 }).to_string();
    let host = node.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).expect("it listens");
    let length = body.len();
    let head = format!(
        "POST /login HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is sent");
    let mut who = String::new();
    stream.read_to_string(&mut who).expect("it is answered");
    assert!(who.contains("\"access\":\"read\""), "{who}");
    node.ask_as("another-token", &["open", "--print"]).is_refused(3, "OSTLER_TOKEN");
}
