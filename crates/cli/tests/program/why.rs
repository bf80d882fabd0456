//! Why a task waits, and the commands that `ostler show` and its page give: a shell runs exactly these, and the task starts.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use ostler_testkit::{MAX_WAIT, PageForm};
use serde_json::{Value, json};

use crate::ostler::{Place, Ran, Running, ran};
use crate::workers::until;

const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
const TOKEN: &str = "the-token-of-this-test";
/// Does what its payload says: `{"first": CLASS}` fails in this class once, `{"until": FILE}` ends when there is this file.
const WORKER: &str = r#"
import os, time
from ostler import QueueStop, RateLimited, Transient, UsageLimit, worker

CLASSES = {
    "transient": lambda: Transient("no route"),
    "rate_limited": lambda: RateLimited("slow down", after=3600),
    "usage_limit": lambda: UsageLimit("used up", after=3600),
    "queue_stop": lambda: QueueStop("the key is wrong"),
}

@worker.task("run")
def run(payload, ctx):
    payload = payload.get("item", payload)
    payload = payload if isinstance(payload, dict) else {}
    if "cents" in payload:
        ctx.usage(model="m", cost_usd=payload["cents"] / 100)
    if "first" in payload and ctx.attempt == 1:
        raise CLASSES[payload["first"]]()
    while "until" in payload and not os.path.exists(payload["until"]):
        time.sleep(0.01)

worker.run()
"#;

/// A node with these pools, of two workers each if they do not say more, and its API.
struct Site {
    place: Place,
    node: Option<(Running, String)>,
}

impl Site {
    /// A place with these pools; no node is up.
    fn of(place: Place, pools: &[(&str, &str)]) -> Self {
        let worker = place.write("worker.py", WORKER).display().to_string();
        let mut config = "[lease]\nttl = \"20s\"\nheartbeat = \"100ms\"\n[account.team]\n[account.small]\nconcurrency = 1\n".to_owned();
        for (pool, lines) in pools {
            let least = if lines.contains("min_workers") { "" } else { "min_workers = 0\n" };
            let most = if lines.contains("max_workers") { "" } else { "max_workers = 2\n" };
            config += &format!(
                "[pool.\"{pool}\"]\nexecutor = \"process\"\ncommand = [\"python3\", \"{worker}\"]\n{least}{most}\
                 retry = {{ attempts = 5, base = \"1h\", max = \"1h\" }}\ngrace = \"1s\"\n\
                 env = {{ PYTHONPATH = \"{SDK}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n{lines}\n"
            );
        }
        place.write("ostler.toml", config);
        Self { place, node: None }
    }

    /// The same with a node.
    fn up(place: Place, pools: &[(&str, &str)]) -> Self {
        let mut site = Self::of(place, pools);
        site.start(site.place.command(["up", "--listen", "127.0.0.1:0"]));
        site
    }

    fn start(&mut self, mut node: Command) {
        node.env("OSTLER_TOKEN", TOKEN).env("XDG_STATE_HOME", self.place.folder());
        let node = Running::start(node);
        let ready: Value = serde_json::from_str(&node.line()).expect("a line of JSON");
        let address = ready["listen"].as_str().unwrap_or_default().to_owned();
        self.node = Some((node, address));
    }

    fn submit(&self, queue: &str, payload: &Value, words: &[&str]) -> String {
        let payload = payload.to_string();
        let words = [&["submit", queue, "run", "--payload", &payload], words].concat();
        self.place.done(words).trim().to_owned()
    }

    /// A task that runs until [`end`](Self::end).
    fn busy(&self, queue: &str, words: &[&str]) -> String {
        let id = self.submit(queue, &json!({ "until": self.file() }), words);
        self.reaches(&id, &["running"]);
        id
    }

    fn file(&self) -> String {
        self.place.folder().join("end").display().to_string()
    }

    /// Ends the tasks that are busy.
    fn end(&self) {
        self.place.write("end", "");
    }

    fn shown(&self, id: &str) -> Value {
        self.place.json(["show", id])
    }

    fn reaches(&self, id: &str, states: &[&str]) {
        until(&format!("{id} becomes {states:?}"), || {
            states.contains(&self.shown(id)["state"].as_str()?).then_some(())
        });
    }

    /// Waits until the task waits for these commands. They are the same with `--json`, for people, and on its page.
    fn commands(&self, id: &str, begin: &str) -> Vec<String> {
        let commands = until(&format!("a command {begin} for {id}"), || {
            let shown = self.shown(id);
            let commands = shown["frees"].as_array().expect("a list").iter();
            let commands: Vec<String> =
                commands.map(|frees| frees["command"].as_str().expect("a text").to_owned()).collect();
            commands.last().is_some_and(|last| last.starts_with(begin)).then_some(commands)
        });
        let told = self.place.done(["show", id]);
        for command in &commands {
            assert!(told.contains(&format!("to free it    {command}\n")), "{command}: {told}");
        }
        assert_eq!(self.on_page(id).unwrap_or_else(|| commands.clone()), commands);
        commands
    }

    /// The commands on the page of the task; `None`: no node is up.
    fn on_page(&self, id: &str) -> Option<Vec<String>> {
        let page = self.ask("GET", &format!("/tasks/{id}"), "")?;
        let (_, why) = page.split_once("<section id=\"why\"").unwrap_or_else(|| panic!("no page: {page}"));
        let (why, _) = why.split_once("</section>").expect("it ends");
        let commands = why.split("<code class=\"cmd\"").skip(1).map(|rest| {
            let (_, rest) = rest.split_once('>').expect("an element");
            let (command, _) = rest.split_once("</code>").expect("its end");
            command.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        });
        Some(commands.collect())
    }

    /// The answer of the node to a browser; `None`: no node is up.
    fn ask(&self, method: &str, path: &str, form: &str) -> Option<String> {
        let (_, address) = self.node.as_ref().filter(|(_, address)| !address.is_empty())?;
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(MAX_WAIT)).expect("a bound");
        let length = form.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/html\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(format!("{head}{form}").as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is answered");
        Some(answer)
    }

    /// Presses the button of a page that runs this operation and shows this command. What is asked is answered with yes.
    fn press(&self, path: &str, operation: &str, command: &str, typed: &[(&str, &str)]) {
        let page = self.ask("GET", path, "").expect("a node is up");
        let mut forms = PageForm::all(&page).into_iter();
        let found = forms.find(|form| form.operation == operation && form.text.contains(command));
        self.post(&found.unwrap_or_else(|| panic!("{path} has no {command}: {page}")), typed);
    }

    fn post(&self, form: &PageForm, typed: &[(&str, &str)]) {
        let path = format!("/do/{}", form.operation);
        let mut answer = self.ask("POST", &path, &form.body(typed)).expect("a node is up");
        if answer.starts_with("HTTP/1.1 200") {
            let mut asked = PageForm::all(&answer).into_iter();
            let question = asked.find(|asked| asked.operation == form.operation).expect("a question");
            answer = self.ask("POST", &path, &question.body(&[])).expect("a node is up");
        }
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
    }

    /// The part of the overview that says what is wrong.
    fn wrong(&self) -> String {
        let page = self.ask("GET", "/", "").expect("a node is up");
        let (_, found) =
            page.split_once("<section id=\"doctor\"").unwrap_or_else(|| panic!("no page: {page}"));
        found.split("</section>").next().unwrap_or_default().to_owned()
    }

    /// The line in a shell, in which `ostler` is the program.
    fn shell(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_ostler"));
        let bin = program.parent().expect("a program is in a folder").display();
        let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
        let own = self.place.command([""; 0]);
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env_clear();
        shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("PATH", path);
        shell.current_dir(self.place.folder()).stdin(Stdio::null());
        shell
    }

    fn run(&self, line: &str) -> Ran {
        let ran = ran(&mut self.shell(line));
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        ran
    }

    /// The task waits, its commands begin like this, and when a shell has run them in order, it runs.
    fn is_freed_by(&self, id: &str, begins: &[&str]) {
        let commands = self.commands(id, begins.last().expect("a command"));
        let all = commands.iter().zip(begins).all(|(command, begin)| command.starts_with(begin));
        assert!(all && commands.len() == begins.len(), "{commands:?} are not {begins:?}");
        assert_eq!(self.shown(id)["state"], "queued");
        for command in &commands {
            self.run(command);
        }
        self.reaches(id, &["running", "completed"]);
    }
}

/// Makes two tests of each function: one with the store in a file, one with it on a server.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            use crate::ostler::Place;

            #[test]
            fn on_a_file() {
                super::$test(Place::new());
            }

            #[test]
            fn on_a_server() {
                super::$test(Place::on_server());
            }
        })+
    };
}

on_each_store!(
    what_holds_a_task_by_hand_or_by_its_time_ends_by_the_command_that_is_shown,
    what_a_service_or_a_failure_holds_goes_on_by_the_commands_that_are_shown,
    a_limit_is_raised_by_the_command_that_is_shown,
    items_of_jobs_start_by_the_command_that_is_shown,
    without_a_node_the_command_that_is_shown_starts_one,
    workers_that_failed_to_start_are_started_again_by_the_command_that_is_shown,
    what_the_doctor_finds_is_mended_by_the_button_beside_it,
    workers_and_nodes_are_steered_by_the_buttons_of_their_page,
);

fn workers_and_nodes_are_steered_by_the_buttons_of_their_page(place: Place) {
    let mut site = Site::up(place, &[("plain", "min_workers = 1\nmax_workers = 2")]);
    let ids = |site: &Site| -> Vec<String> {
        let all = site.place.json(["workers"]);
        let idle = all.as_array().expect("a list").iter().filter(|worker| worker["state"] == "idle");
        idle.map(|worker| worker["id"].as_str().expect("an id").to_owned()).collect()
    };
    let first = until("a worker is idle", || ids(&site).pop());
    site.press("/nodes", "workers.recycle", &format!("ostler recycle {first}"), &[]);
    let second = until("another one takes its place", || ids(&site).pop().filter(|id| *id != first));
    site.press("/nodes", "pools.recycle", "ostler recycle --all plain", &[]);
    until("and another one", || ids(&site).pop().filter(|id| *id != second));
    site.press("/nodes", "pools.resize", "ostler resize plain", &[("n:min", "2"), ("n:max", "2")]);
    until("there are two", || (ids(&site).len() == 2).then_some(()));
    site.press("/nodes", "nodes.drain", "ostler drain ", &[]);
    let (node, _) = site.node.take().expect("it is up");
    assert_eq!(node.end().0, Some(0), "it has drained");
}

fn what_the_doctor_finds_is_mended_by_the_button_beside_it(place: Place) {
    let site = Site::up(place, &[("plain", ""), ("broken", "")]);
    let place = &site.place;
    place.done(["pause", "plain", "--reason", "by hand"]);
    place.done(["breaker", "open", "broken"]);
    for (queue, sentence, operation, command) in [
        ("plain", "by hand", "queues.resume", "ostler resume plain"),
        ("broken", "The breaker of queue", "breakers.reset", "ostler breaker reset broken"),
    ] {
        let id = site.submit(queue, &json!({}), &[]);
        let button = until(&format!("the overview has the button {command}"), || {
            let found = site.wrong();
            let form = PageForm::all(&found).into_iter().find(|form| form.operation == operation);
            form.filter(|form| found.contains(sentence) && form.text.contains(command))
        });
        site.post(&button, &[]);
        site.reaches(&id, &["completed"]);
        until("the finding is gone", || (!site.wrong().contains(command)).then_some(()));
    }
}

fn what_holds_a_task_by_hand_or_by_its_time_ends_by_the_command_that_is_shown(place: Place) {
    let odd = "odd 'name'";
    let pools = ["plain", "paused", odd, "open", "keyed", "first", "held", "stopped"];
    let mut pools = pools.map(|pool| (pool, "")).to_vec();
    pools[6].1 = "account = \"team\"";
    let site = Site::up(place, &pools);
    let place = &site.place;

    let id = site.submit("plain", &json!({}), &["--in", "1h"]);
    site.is_freed_by(&id, &["ostler retry "]);
    let id = site.submit("plain", &json!({ "first": "transient" }), &[]);
    site.is_freed_by(&id, &["ostler retry "]);

    for queue in ["paused", odd] {
        place.done(["pause", queue, "--reason", "by hand"]);
        let id = site.submit(queue, &json!({}), &[]);
        site.is_freed_by(&id, &["ostler resume "]);
        place.done(["breaker", "open", queue]);
        let id = site.submit(queue, &json!({}), &[]);
        site.is_freed_by(&id, &["ostler breaker reset "]);
        place.done(["breaker", "open", queue, "--key", "a key"]);
        let id = site.submit(queue, &json!({}), &["--limit-key", "a key"]);
        site.is_freed_by(&id, &["ostler breaker reset "]);
    }
    place.done(["queue", "set", "open", "--breaker", "failures=1,reset=1h"]);
    site.submit("open", &json!({ "first": "transient" }), &[]);
    until("the breaker opens", || {
        (place.json(["queue", "show", "open"])["breaker_state"]["state"] == "open").then_some(())
    });
    let id = site.submit("open", &json!({}), &[]);
    site.is_freed_by(&id, &["ostler breaker reset open"]);

    place.done(["account", "hold", "team"]);
    let id = site.submit("held", &json!({}), &[]);
    site.is_freed_by(&id, &["ostler account release team"]);

    // What it waits for has a page of its own, with its own command.
    place.done(["pause", "first", "--reason", "by hand"]);
    let first = site.submit("first", &json!({}), &[]);
    let id = site.submit("plain", &json!({}), &["--after", &first]);
    let commands = site.commands(&id, "ostler show ");
    assert!(site.run(&commands[0]).out.contains("ostler resume first"));
    site.is_freed_by(&first, &["ostler resume first"]);
    site.reaches(&id, &["completed"]);
}

fn what_a_service_or_a_failure_holds_goes_on_by_the_commands_that_are_shown(place: Place) {
    let pools =
        [("asked", ""), ("keyed", ""), ("used", "account = \"team\""), ("alone", ""), ("stopped", "")];
    let site = Site::up(place, &pools);
    let place = &site.place;
    // The task waits, and so does its queue or its key: it takes both commands.
    for (queue, class, more, begins) in [
        ("asked", "rate_limited", &[][..], &["ostler retry ", "ostler queue release asked"][..]),
        (
            "keyed",
            "rate_limited",
            &["--limit-key", "k"],
            &["ostler retry ", "ostler queue release keyed --key k"],
        ),
        ("used", "usage_limit", &[], &["ostler account release team"]),
        ("alone", "usage_limit", &[], &["ostler retry ", "ostler queue release alone"]),
        ("stopped", "queue_stop", &[], &["ostler resume stopped"]),
    ] {
        let id = site.submit(queue, &json!({ "first": class }), more);
        site.is_freed_by(&id, begins);
        site.reaches(&id, &["completed"]);
    }
    let failed = site.submit("alone", &json!({ "first": "transient" }), &["--attempts", "1"]);
    site.reaches(&failed, &["failed"]);
    let id = site.submit("alone", &json!({}), &["--after", &failed, "--if-failed", "wait"]);
    site.is_freed_by(&id, &["ostler dead replay "]);
    let cancelled = site.submit("alone", &json!({}), &["--in", "1h"]);
    place.done(["cancel", &cancelled]);
    let id = site.submit("alone", &json!({}), &["--after", &cancelled, "--if-failed", "wait"]);
    site.is_freed_by(&id, &["ostler retry "]);
}

fn a_limit_is_raised_by_the_command_that_is_shown(place: Place) {
    let pools = ["slow", "slow-key", "burst", "debt", "narrow", "narrow-key", "few", "small", "dear"];
    let mut pools = pools.map(|pool| (pool, "")).to_vec();
    pools[6].1 = "max_workers = 1";
    pools[7].1 = "account = \"small\"";
    let site = Site::up(place, &pools);
    let place = &site.place;
    for (queue, limit, before, begin) in [
        ("slow", "--rate=1/h", 1, "ostler queue set slow --rate 2/1h"),
        ("slow-key", "--key-rate=1/h", 1, "ostler queue set slow-key --key-rate 2/1h"),
        ("burst", "--rate=2/h,burst=2", 2, "ostler queue set burst --rate 4/1h,burst=4"),
    ] {
        place.done(["queue", "set", queue, limit]);
        for _ in 0..before {
            let first = site.submit(queue, &json!({}), &["--limit-key", "k"]);
            site.reaches(&first, &["completed"]);
        }
        let id = site.submit(queue, &json!({}), &["--limit-key", "k"]);
        site.is_freed_by(&id, &[begin]);
    }
    // Raised again and again: each time the next one goes.
    for begin in ["ostler queue set slow --rate 4/1h", "ostler queue set slow --rate 8/1h"] {
        let id = site.submit("slow", &json!({}), &[]);
        site.is_freed_by(&id, &[begin]);
    }
    place.done(["queue", "set", "debt", "--rate", "2/h"]);
    let dear = site.submit("debt", &json!({}), &["--cost", "9"]);
    site.reaches(&dear, &["completed"]);
    let id = site.submit("debt", &json!({}), &[]);
    site.is_freed_by(&id, &["ostler queue set debt --rate none"]);

    place.done(["queue", "set", "narrow", "--concurrency", "1"]);
    place.done(["queue", "set", "narrow-key", "--key-concurrency", "1"]);
    for (queue, begin) in [
        ("narrow", "ostler queue set narrow --concurrency 2"),
        ("narrow-key", "ostler queue set narrow-key --key-concurrency 2"),
        ("few", "ostler resize few 1 2"),
        ("small", "ostler account cap small 2"),
    ] {
        site.busy(queue, &["--limit-key", "k"]);
        let id = site.submit(queue, &json!({}), &["--limit-key", "k"]);
        site.is_freed_by(&id, &[begin]);
    }
    site.end();

    place.done(["queue", "set", "dear", "--budget", "1"]);
    let first = site.submit("dear", &json!({ "cents": 100 }), &[]);
    site.reaches(&first, &["completed"]);
    let id = site.submit("dear", &json!({ "cents": 1 }), &[]);
    site.is_freed_by(&id, &["ostler queue set dear --budget 2"]);
}

fn items_of_jobs_start_by_the_command_that_is_shown(place: Place) {
    let site = Site::up(
        place,
        &[("docs", ""), ("shared", "rate = { per_hour = 1 }"), ("tight", "concurrency = { total = 1 }")],
    );
    let place = &site.place;
    let job = |pool: &str, options: &[&str], items: &[&str]| {
        let words = ["map", "--pool", pool, "--kind", "run", "--detach"];
        place.done([&words, options, &[":::"], items].concat()).trim().to_owned()
    };
    let queued = |job: &str| {
        let queue = place.json(["job", "show", job])["queue"].as_str().expect("a queue").to_owned();
        until("an item waits", || {
            let tasks = place.json(["ls", "--queue", &queue, "--state", "queued"]);
            tasks[0]["id"].as_str().map(str::to_owned)
        })
    };
    let piloted = job("docs", &["--pilot", "--name", "piloted"], &["1", "2"]);
    until("the pilot has ended", || {
        (place.json(["job", "show", &piloted])["state"] == "paused").then_some(())
    });
    site.is_freed_by(&queued(&piloted), &["ostler job approve "]);

    // The breaker of a pool holds its jobs, too: the item cannot have run before its job is paused.
    place.done(["breaker", "open", "docs"]);
    let paused = job("docs", &["--name", "paused"], &["3"]);
    place.done(["job", "pause", &paused]);
    place.done(["breaker", "reset", "docs"]);
    site.is_freed_by(&queued(&paused), &["ostler job resume "]);

    // The limits are those of the pool.
    let slow = job("shared", &["--name", "slow"], &["4", "5"]);
    until("one has run", || (place.json(["job", "show", &slow])["tasks"]["completed"] == 1).then_some(()));
    site.is_freed_by(&queued(&slow), &["ostler queue set shared --rate 2/1h"]);
    site.busy("tight", &[]);
    let tight = job("tight", &["--name", "tight"], &["6"]);
    site.is_freed_by(&queued(&tight), &["ostler queue set tight --concurrency 2"]);
    place.done(["breaker", "open", "docs"]);
    let open = job("docs", &["--name", "open"], &["7"]);
    site.is_freed_by(&queued(&open), &["ostler breaker reset docs"]);
    site.end();
}

fn without_a_node_the_command_that_is_shown_starts_one(place: Place) {
    let mut site = Site::of(place, &[("plain", "")]);
    let id = site.submit("plain", &json!({}), &[]);
    let commands = site.commands(&id, "ostler up");
    assert_eq!(commands, ["ostler up"]);
    // The shell becomes the node, so that the test can end it.
    let node = site.shell(&format!("exec {}", commands[0]));
    site.start(node);
    site.reaches(&id, &["completed"]);
}

fn workers_that_failed_to_start_are_started_again_by_the_command_that_is_shown(place: Place) {
    let site = Site::up(place, &[("plain", "")]);
    let good = std::fs::read(site.place.folder().join("worker.py")).expect("it is there");
    site.place.write("worker.py", "raise SystemExit('not yet')\n");
    let id = site.submit("plain", &json!({}), &[]);
    until("the queue is paused", || {
        site.place.json(["queue", "show", "plain"])["paused"].as_str().map(|_| ())
    });
    let commands = site.commands(&id, "ostler resume plain");
    site.place.write("worker.py", good);
    site.run(&commands[0]);
    site.reaches(&id, &["completed"]);
}
