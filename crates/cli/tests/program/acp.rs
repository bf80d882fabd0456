//! Agents of the Agent Client Protocol, with the real program and a stand-in: deaths of the node, settings that cannot be kept, and versions.

use std::os::unix::fs::PermissionsExt as _;

use ostler_testkit::ProcessSignal;
use serde_json::Value;

use crate::ostler::{Place, Running, ran};
use crate::workers::until;

const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/tests/tools/stand_in_acp.py");

/// A place whose node has a pool "helpers" of the stand-in, which can do this, with these lines.
fn place(abilities: &str, lines: &str) -> Place {
    let place = Place::new();
    let log = place.folder().join("log");
    let config = format!(
        "[lease]\nttl = \"5s\"\nheartbeat = \"100ms\"\npoll = \"200ms\"\n[pool.helpers]\nexecutor = \"agent\"\nagent = \"acp\"\n\
         command = [\"python3\", \"{STAND_IN}\"]\nconfig_folders = \"agents\"\nretry = {{ base = \"10ms\" }}\n\
         env = {{ STAND_IN_LOG = \"{}\", STAND_IN_CAN = \"{abilities}\" }}\n{lines}\n",
        log.display()
    );
    place.write("ostler.toml", config);
    place
}

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

fn submit(place: &Place, prompt: &str) -> String {
    let payload = Value::from(prompt).to_string();
    place.done(["submit", "helpers", "help", "--payload", &payload]).trim().to_owned()
}

fn log(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.folder().join("log")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_session_goes_on_after_the_death_of_the_node_and_its_history_is_recorded_once() {
    for abilities in ["resume", "load"] {
        let place = place(abilities, "");
        let node = up(&place);
        let id = submit(&place, "[[hang]]");
        until("it works", || place.done(["logs", &id]).contains("plan: ").then_some(()));
        node.signal(ProcessSignal::KILL);
        drop(node);
        let _node = up(&place);
        let task = until("it is done", || {
            let task = place.json(["show", &id]);
            (task["state"] == "completed").then_some(task)
        });
        assert_eq!(task["output"], "Prompts: 2, last: Go on.", "{abilities}");
        let attempts = task["attempts"].as_array().expect("a list");
        assert!(attempts.iter().all(|one| one["session_id"] == attempts[0]["session_id"]), "{task}");
        let prompts: Vec<Value> =
            log(&place).into_iter().filter(|line| line.get("prompt").is_some()).collect();
        assert_eq!(prompts.len(), 2, "the one in flight at the death, and the one that goes on: {prompts:?}");
        let shown = place.done(["logs", &id]);
        assert_eq!(shown.matches("It begins.").count(), 1, "{shown}");
        assert!(shown.contains("resumes the conversation") && !shown.contains("An old answer."), "{shown}");
    }
}

#[test]
fn a_few_words_of_an_agent_that_is_silent_then_are_followed_at_once_and_its_answer_is_whole() {
    let place = place("resume", "");
    let _node = up(&place);
    let gate = place.folder().join("gate");
    let id = submit(&place, &format!("[[pause {}]]", gate.display()));
    let follower = Running::start(place.command(["logs", "-f", &id]));
    // The agent says nothing more before they were seen.
    while !follower.line().contains("A few words, and") {}
    std::fs::write(&gate, "").expect("the gate opens");
    let task = until("it is done", || {
        let task = place.json(["show", &id]);
        (task["state"] == "completed").then_some(task)
    });
    assert_eq!(task["output"], "A few words, and then the rest.");
    let shown = place.done(["logs", &id]);
    assert_eq!(
        shown.matches("A few words, and").count(),
        2,
        "once as a part and once in the answer: {shown}"
    );
}

#[test]
fn settings_that_cannot_be_kept_are_named_by_the_check_of_the_config() {
    let check = |section: &str| {
        let place = Place::new();
        place.write("ostler.toml", format!("[pool.helpers]\nexecutor = \"agent\"\n{section}\n"));
        let ran = ran(&mut place.command(["config", "--check"]));
        format!("{}{}", ran.out, ran.err)
    };
    for (section, sentence) in [
        ("agent = \"acp\"", "command is missing: the program that speaks the Agent Client Protocol"),
        (
            "agent = \"acp\"\ncommand = [\"x\"]\nbase_url = \"http://127.0.0.1:1\"",
            "base_url is not known to agent = \"acp\"",
        ),
        ("agent = \"acp\"\ncommand = [\"x\"]\nmax_iterations = 7", "rounds of tools are counted instead"),
        (
            "agent = \"acp\"\ncommand = [\"x\"]\nbudget = { per_task = \"$1\" }",
            "only if the agent reports its cost",
        ),
        (
            "agent = \"gemini\"\nbudget = { per_task = \"$1\" }",
            "gemini does not say what it costs: set \"model\"",
        ),
        (
            "agent = \"gemini\"\nbase_url = \"http://127.0.0.1:1\"\nkey_variable = \"MY_KEY\"",
            "is not read by gemini",
        ),
        ("agent = \"opencode\"\nbase_url = \"http://127.0.0.1:1\"", "base_url needs `model`"),
        ("agent = \"opencode\"\nsetting_sources = \"project\"", "only claude has these"),
    ] {
        let said = check(section);
        assert!(said.contains(sentence), "{section}\n{said}");
    }
}

#[test]
fn another_program_and_another_generation_of_opencode_are_refused_before_anything_is_stored() {
    let place = Place::new();
    let bin = place.folder().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let install = |name: &str, version: &str| {
        let file = bin.join(name);
        std::fs::write(&file, format!("#!/bin/sh\necho '{version}'\n")).expect("a script");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    };
    install("opencode", "2.0.3");
    install("gemini", "Hello, world!");
    for (agent, sentence) in [
        ("opencode", "`opencode` is opencode 2.0.3, and a version before 2.0.0 is needed: install 1.18.33"),
        ("gemini", "`gemini --version` printed \"Hello, world!\": that is not Gemini CLI"),
        ("acp", "a program of your own needs a pool in ostler.toml"),
    ] {
        let mut command = place.command(["map", "--agent", agent, "--prompt", "Explain", ":::", "x"]);
        let ran = ran(command.env("PATH", &bin).env("HOME", place.folder().join("home")));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(sentence), "{ran:?}");
        assert!(!place.store().exists(), "a refusal makes no store");
    }
}
