//! Prompts of jobs, as the server gets them; and what is asked again, and what is not.

use std::collections::BTreeMap;

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::site::{Agent, Site, items};
use super::{in_time, programs};
use crate::ostler::{Ran, Running, ran};

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sixteen items, of which two are the same, and some look like something else.
fn odd_items() -> Vec<String> {
    let odd = [
        "{{ 7 * 6 }}",
        "{% raw %}",
        "--dangerously-skip-permissions",
        "-",
        "the same",
        "the same",
        "a\n\n  b\u{e9}\u{1f40e}",
        "a\0b",
    ];
    let plain = items("plain ", 16 - odd.len() as u64);
    odd.into_iter().map(str::to_owned).chain(plain).collect()
}

#[test]
fn sixteen_claudes_that_start_at_once_get_their_prompts_word_for_word_and_break_no_config_file() {
    let Some(site) = Site::new(&[(Agent::Claude, "stagger = \"1ms\"")]) else { return };
    let items = odd_items();
    let lines: String = items.iter().map(|item| Value::from(item.as_str()).to_string() + "\n").collect();
    site.place.write("items.jsonl", lines);
    let map = |prompt: &str| {
        let words = [
            "map",
            "-j16",
            "--pool",
            "claude",
            "--kind",
            "ask",
            "--jsonl",
            "items.jsonl",
            "--prompt",
            prompt,
        ];
        ran(site.place.command(words).env("HOME", site.place.folder()))
    };
    let unknown = map("{{ item }} {{ author }}");
    unknown.is_refused(2, "`author` is not defined");
    assert_eq!(site.llm.requests().len(), 0, "a variable that is missing");
    let first = map("{{ item }}");
    assert_eq!(first.code, Some(0), "{first:?}");

    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for request in site.llm.requests() {
        for digest in request.sha256 {
            *asked.entry(digest).or_default() += 1;
        }
    }
    for item in &items {
        let same = items.iter().filter(|other| *other == item).count();
        assert_eq!(asked.get(&sha256(item)), Some(&same), "{item:?}: {:?}", site.llm.requests());
    }
    assert_eq!(site.llm.requests().len(), items.len());
    let broken = walkdir::WalkDir::new(site.place.folder()).into_iter().filter_map(Result::ok);
    let broken: Vec<_> =
        broken.filter(|file| file.file_name().to_string_lossy().contains("corrupted")).collect();
    assert!(broken.is_empty(), "{broken:?}");

    // What was paid for is not asked again.
    let again = map("{{ item }}");
    assert!(again.code == Some(0) && again.err.contains("all 16 items are already done"), "{again:?}");
    assert_eq!(site.llm.requests().len(), items.len());
}

#[test]
fn a_prompt_of_two_megabytes_and_one_that_looks_like_a_flag_arrive_as_they_are() {
    // A payload has a megabyte at most.
    let lines = "prompt = \"{% for n in range(2) %}{{ item }}{% endfor %}\"";
    let Some(site) = Site::new(&Agent::ALL.map(|agent| (agent, lines))) else { return };
    let _node = site.up();
    let submit = |agent: Agent, item: &str| {
        let file = site.place.write("payload.jsonl", json!({ "payload": item }).to_string() + "\n");
        let words = ["submit", "--jsonl", file.to_str().expect("text"), agent.name(), "ask", "--json"];
        let line: Value =
            serde_json::from_str(site.place.done(words).lines().next().expect("a line")).expect("JSON");
        line["id"].as_str().expect("an id").to_owned()
    };
    let long = "0123456789".repeat(100_000);
    for agent in Agent::ALL {
        // Codex takes 1,048,576 characters.
        let size = if agent == Agent::Claude { long.len() } else { long.len() / 2 };
        for item in [&long[..size], "--dangerously-skip-permissions", "-"] {
            let before = site.llm.requests().len();
            site.done(&submit(agent, item));
            let requests = site.llm.requests();
            assert_eq!(requests.len(), before + 1);
            let prompt = item.repeat(2);
            assert!(requests[before].sha256.contains(&sha256(&prompt)), "{agent:?}: {} bytes", prompt.len());
        }
    }
    let refused = site.ended(&submit(Agent::Codex, &long), "failed");
    assert_eq!(refused["error"]["class"], "permanent", "it is not repeated: {refused}");
}

/// The words of a job of this agent, which is found on the PATH.
fn map_agent(site: &Site, words: &[&str]) -> Ran {
    let bin = programs().expect("there is a site");
    let path = std::env::var("PATH").expect("there is a PATH");
    let mut command = site.place.command(["map", "--agent", "claude", "--model", Agent::Claude.model()]);
    command.args(words).env("HOME", site.place.folder()).env("PATH", format!("{}:{path}", bin.display()));
    command.env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", site.llm.port));
    ran(command.env("ANTHROPIC_API_KEY", "sk-of-a-test-0000"))
}

#[test]
fn a_finished_job_of_an_agent_asks_nothing_and_another_word_asks_for_all() {
    let Some(site) = Site::new(&[]) else { return };
    let map = |prompt: &str| map_agent(&site, &["--prompt", prompt, ":::", "a", "a", "b"]);
    assert_eq!(map("Say {{ item }}").code, Some(0));
    assert_eq!(site.llm.requests().len(), 3, "equal items run each once");
    assert_eq!(map("Say {{ item }}").code, Some(0));
    assert_eq!(site.llm.requests().len(), 3);
    assert_eq!(map("Tell {{ item }}").code, Some(0));
    assert_eq!(site.llm.requests().len(), 6);
}

#[test]
fn a_pilot_asks_once_over_restarts_until_it_is_approved_and_never_more_when_it_is_rejected() {
    let Some(site) = Site::new(&[(Agent::Codex, "")]) else { return };
    let prompt = "[[item {{ item }}]] Say some words.";
    let detach =
        |name: &str| site.detach(Agent::Codex, &["--pilot", "--name", name], prompt, &items(name, 4));
    let node = site.up();
    let jobs = ["yes", "no"].map(|name| {
        let job = detach(name);
        in_time("the pilot has ended", || {
            (site.place.json(["job", "show", &job])["state"] == "paused").then_some(())
        });
        job
    });
    let asked =
        |name: &str| site.llm.requests().iter().filter(|request| request.item.starts_with(name)).count();
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _node: Running = site.up();
    site.place.done(["submit", "other", "run", "--wait"]);
    assert_eq!((asked("yes"), asked("no")), (1, 1));
    site.place.done(["job", "reject", &jobs[1]]);
    site.place.done(["job", "approve", &jobs[0]]);
    site.all_done(&jobs[0]);
    assert_eq!((asked("yes"), asked("no")), (4, 1));
    let rejected = site.place.json(["job", "show", &jobs[1]]);
    assert_eq!((&rejected["tasks"]["completed"], &rejected["tasks"]["cancelled"]), (&json!(1), &json!(3)));
}
