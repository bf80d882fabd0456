//! Limits of a task go on after the death of its node: model requests, cost and time.

use std::time::Duration;

use ostler_testkit::ProcessSignal;
use serde_json::Value;

use super::site::{Agent, Site};
use super::{in_time, pause};

/// The agents that say what each request costs. `codex exec` says it at the end of a turn.
const AGENTS: [Agent; 2] = [Agent::Claude, Agent::Codex];

/// Runs tasks that call a tool without end, kills the node inside the second call, and lets another one go on.
fn killed_in_the_second_call(lines: &str) -> Option<(Site, Vec<Value>)> {
    let site = Site::new(&AGENTS.map(|agent| (agent, lines)))?;
    let node = site.up();
    let ids = AGENTS.map(|agent| {
        let ran = site.place.folder().join(format!("ran-{}", agent.name()));
        // The second call waits.
        let command = format!("echo x >> {0}; test $(wc -l < {0}) != 2 || tail -f /dev/null", ran.display());
        site.submit(
            agent,
            &format!("[[item {}]][[tokens 99985 3]][[tool 99 {command}]] Use it.", agent.name()),
        )
    });
    for (agent, id) in AGENTS.iter().zip(&ids) {
        let ran = site.place.folder().join(format!("ran-{}", agent.name()));
        in_time("the second call runs", || {
            std::fs::read_to_string(&ran).is_ok_and(|text| text.lines().count() == 2).then_some(())
        });
        in_time("the second call is stored", || {
            (site.place.done(["logs", id]).matches("tail -f").count() >= 2).then_some(())
        });
    }
    for (agent, id) in AGENTS.iter().zip(&ids) {
        let record = site.home(*agent, id).join("conversation.json");
        in_time("both requests are written down", || {
            std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"turns\":2")).then_some(())
        });
    }
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _node = site.up();
    let tasks = ids.iter().map(|id| site.ended(id, "failed")).collect();
    Some((site, tasks))
}

#[test]
fn model_requests_before_the_death_of_the_node_count() {
    let Some((site, tasks)) = killed_in_the_second_call("max_iterations = 3\nretry = { attempts = 1 }")
    else {
        return;
    };
    for (agent, task) in AGENTS.iter().zip(&tasks) {
        // Codex says when its tools have ended that it has asked, and may ask once more before it is interrupted. Without a memory of the
        // first attempt there would be five requests at least.
        let most = if *agent == Agent::Claude { 3 } else { 4 };
        let asked = site.llm.of(agent.name()).len();
        assert!((3..=most).contains(&asked), "{agent:?}: {asked} requests: {task}");
        let message = task["error"]["message"].as_str().expect("a text");
        assert!(message.contains("turns") || message.contains("model requests"), "{agent:?}: {message}");
    }
}

#[test]
fn money_that_was_spent_before_the_death_of_the_node_counts() {
    let lines = "budget = { per_task = \"$0.25\" }\nretry = { attempts = 1 }";
    let Some((site, tasks)) = killed_in_the_second_call(lines) else { return };
    for (agent, task) in AGENTS.iter().zip(&tasks) {
        let requests = site.llm.of(agent.name());
        // The third one passes the budget, and an agent may ask once more before it is stopped. Codex never says what the one cost whose
        // tool was running; without a memory of the first attempt it would ask six times.
        let most = if *agent == Agent::Claude { 4 } else { 5 };
        assert!((3..=most).contains(&requests.len()), "{agent:?}: {} requests: {task}", requests.len());
        assert!(
            task["error"]["message"].as_str().is_some_and(|message| message.contains("budget")),
            "{agent:?}: {task}"
        );
    }
}

#[test]
fn the_time_of_a_task_goes_on_after_the_death_of_its_node() {
    const TIMEOUT_SECONDS: u64 = 40;
    const BEFORE_SECONDS: u64 = 15;
    let lines = format!("timeout = \"{TIMEOUT_SECONDS}s\"\nretry = {{ attempts = 1 }}");
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, lines.as_str()))) else { return };
    let node = site.up();
    let ids = AGENTS.map(|agent| {
        site.submit(agent, &format!("[[item {}]][[words 1000 0.5]] Say some words.", agent.name()))
    });
    for agent in AGENTS {
        in_time("it has asked", || (!site.llm.of(agent.name()).is_empty()).then_some(()));
    }
    pause(Duration::from_secs(BEFORE_SECONDS));
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _node = site.up();
    for (agent, id) in AGENTS.iter().zip(&ids) {
        let task = site.ended(id, "failed");
        let attempts = task["attempts"].as_array().expect("a list");
        assert_eq!(attempts.len(), 2, "{agent:?}: {task}");
        assert_eq!(task["error"]["class"], "timeout", "{agent:?}: {task}");
        let last = attempts[1]["duration_ms"].as_u64().expect("a time");
        // Of the first attempt the last seconds may not be written down.
        let most = 1_000 * (TIMEOUT_SECONDS - BEFORE_SECONDS + 10);
        assert!(last <= most, "{agent:?}: the second attempt took {last} ms");
    }
}
