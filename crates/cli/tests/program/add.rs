//! `ostler add`: commands in the caller's folder, by a node that is started in the background; and `ostler wait`.

use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};

use crate::ostler::{Place, Ran, Running, ran};

const LOOK: Duration = Duration::from_millis(20);

/// A place with a state folder. Its nodes are killed on drop.
struct Scene(Place);

impl Scene {
    fn new() -> Self {
        Self(Place::new())
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.0.command(words);
        command.env("XDG_STATE_HOME", self.0.folder().join("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        ran(&mut self.command(words))
    }

    fn id(&self, words: &[&str]) -> String {
        let added = self.run(words);
        assert_eq!(added.code, Some(0), "{added:?}");
        added.out.trim().to_owned()
    }

    /// The nodes that are alive.
    fn nodes(&self) -> Vec<Value> {
        let nodes = self.0.json(["nodes"]);
        let all = nodes.as_array().expect("a list").iter();
        all.filter(|node| node["state"] == "alive").cloned().collect()
    }

    fn signal(&self, signal: ProcessSignal) {
        for node in self.nodes() {
            let pid = node["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
            let _ = kill_process(pid.expect("a pid"), signal);
        }
    }

    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let last = Instant::now() + MAX_WAIT;
        let (_never, nothing) = std::sync::mpsc::channel::<()>();
        while !so(self) {
            assert!(Instant::now() < last, "{what}");
            let _ = nothing.recv_timeout(LOOK);
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.0.store().exists() {
            self.signal(ProcessSignal::KILL);
        }
    }
}

#[test]
fn a_command_runs_in_the_folder_of_its_caller_by_a_node_that_is_started_once() {
    let scene = Scene::new();
    let mut first =
        scene.command(&["add", "--wait", "--env", "TOKEN", "--", "sh", "-c", "pwd; echo $TOKEN $OTHER"]);
    let first = ran(first.env("TOKEN", "t-1").env("OTHER", "o-1"));
    let folder = scene.0.folder().canonicalize().expect("a folder");
    assert_eq!(
        (first.code, first.out.as_str()),
        (Some(0), format!("{}\nt-1\n", folder.display()).as_str()),
        "{first:?}"
    );
    assert!(first.err.contains("started a node in the background; to stop it: ostler drain "), "{first:?}");
    let second = scene.run(&["add", "--wait", "echo one word is a script | tr a-z A-Z"]);
    assert_eq!((second.code, second.out.as_str()), (Some(0), "ONE WORD IS A SCRIPT\n"), "{second:?}");
    assert!(!second.err.contains("started"), "{second:?}");
    assert_eq!(scene.nodes().len(), 1);
    let list = scene.0.done(["ls"]);
    assert!(list.contains("commands") && !list.contains("t-1"), "{list}");

    // It ends as it was said, and the next command gets a node again.
    let name =
        first.err.split("ostler drain ").nth(1).and_then(|rest| rest.split(';').next()).expect("a name");
    scene.0.done(["drain", name]);
    scene.until("the node drains", |scene| scene.nodes().is_empty());
    let third = scene.run(&["add", "--wait", "--", "echo", "again"]);
    assert!(third.out == "again\n" && third.err.contains("started a node"), "{third:?}");
}

#[test]
fn callers_at_once_start_one_node() {
    let scene = Scene::new();
    let adding: Vec<Running> = (0..6)
        .map(|number| Running::start(scene.command(&["add", "--", "echo", &number.to_string()])))
        .collect();
    let mut started = 0;
    for caller in adding {
        let errors = caller.errors();
        started += errors.iter().filter(|line| line.contains("started a node")).count();
        let (code, lines) = caller.end();
        assert_eq!((code, lines.len()), (Some(0), 1), "{errors:?}");
    }
    assert_eq!((started, scene.nodes().len()), (1, 1));
}

#[test]
fn a_node_that_was_killed_is_replaced_by_the_next_command() {
    let scene = Scene::new();
    scene.id(&["add", "--", "true"]);
    scene.signal(ProcessSignal::KILL);
    let next = scene.run(&["add", "--wait", "--", "echo", "here"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "here\n"), "{next:?}");
}

#[test]
fn the_log_has_both_streams_of_a_command_and_its_output_is_what_it_was() {
    let scene = Scene::new();
    let id = scene.id(&["add", "--", "sh", "-c", "echo out; echo err >&2; echo no end | tr -d '\\n'"]);
    let waited = scene.run(&["wait", &id]);
    assert_eq!((waited.code, waited.out), (Some(0), format!("{id} completed\n")));
    let log = scene.run(&["logs", &id]).out;
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "no end", "out"], "{log}");
    assert_eq!(scene.0.json(["show", &id])["output"], "out\nno end");
}

#[test]
fn wait_says_how_each_task_ended_and_fails_with_them() {
    let scene = Scene::new();
    let good = scene.id(&["add", "--key", "good", "--", "true"]);
    let bad = scene.id(&["add", "--", "sh", "-c", "echo why >&2; exit 3"]);
    let both = scene.run(&["wait", "key:good", &bad, "--queue", "commands"]);
    assert_eq!(both.code, Some(1), "{both:?}");
    assert_eq!(both.out, format!("{good} completed\n{bad} failed: exit code 3: why\n"));
    let views = scene.run(&["wait", &good, &bad, "--json"]).json();
    assert_eq!((&views[0]["state"], &views[1]["error"]["exit_code"]), (&json!("completed"), &json!(3)));
    assert_eq!(scene.0.json(["show", &bad])["runs"], 1, "a command is not retried unless that was asked for");
    let long = scene.id(&["add", "--", "sleep", "600"]);
    let late = scene.run(&["wait", &long, "--timeout", "20ms"]);
    late.is_refused(1, "has not finished");
    scene.0.done(["kill", &long]);
    let killed = scene.run(&["wait", &long]);
    assert_eq!((killed.code, killed.out), (Some(1), format!("{long} cancelled\n")));
    // After one that fails, nothing runs.
    let after = scene.id(&["add", "--after", &bad, "--", "true"]);
    assert_eq!(scene.run(&["wait", &after]).code, Some(1));
}

#[test]
fn what_cannot_be_added_is_refused_before_anything_is_stored() {
    let scene = Scene::new();
    scene
        .run(&["add", "--env", "NOT_SET", "--", "true"])
        .is_refused(2, "--env NOT_SET: this variable is not set");
    scene.run(&["add", "--env", "A=b", "--", "true"]).is_refused(2, "the name of an environment variable");
    let server = ["add", "--all-env", "--store", "postgres://anna@127.0.0.1:1/jobs", "--", "true"];
    scene.run(&server).is_refused(2, "--all-env is refused on PostgreSQL");
    assert_eq!(scene.run(&["add"]).code, Some(2));
    assert!(!scene.0.store().exists());
    let mut all = scene.command(&["add", "--all-env", "--wait", "echo $SOME"]);
    assert_eq!(ran(all.env("SOME", "thing")).out, "thing\n");
}

#[test]
fn a_pool_of_the_config_runs_the_commands_if_there_is_one() {
    let scene = Scene::new();
    scene.0.write("ostler.toml", "[pool.commands]\nexecutor = \"adhoc\"\nmax_workers = 1\n");
    let node = Running::start(scene.command(&["up"]));
    assert!(node.line().contains("ready"));
    let added = scene.run(&["add", "--wait", "--", "echo", "mine"]);
    assert_eq!((added.code, added.out.as_str()), (Some(0), "mine\n"), "{added:?}");
    assert!(!added.err.contains("started"), "{added:?}");
    assert_eq!(scene.nodes().len(), 1);
}

#[test]
fn only_one_node_for_added_commands_is_up() {
    let scene = Scene::new();
    let node = Running::start(scene.command(&["up", "--commands"]));
    assert!(node.line().contains("ready"));
    scene.run(&["up", "--commands"]).is_refused(2, "a node for added commands is up already");
    let added = scene.run(&["add", "--wait", "--", "echo", "served"]);
    assert!(added.out == "served\n" && !added.err.contains("started"), "{added:?}");
}
