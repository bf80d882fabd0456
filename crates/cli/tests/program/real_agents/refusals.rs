//! Refusals that are no usage limit: throttling slows an account down, and what only a person can mend stops the queue.

use serde_json::json;

use super::in_time;
use super::site::{Agent, Site, items};

const AGENTS: [Agent; 2] = [Agent::Claude, Agent::Codex];
const PROMPT: &str = "[[item {{ item }}]] Say some words.";

#[test]
fn throttling_slows_the_account_down_and_the_queue_goes_on() {
    let lines = "account = \"shared\"\nretry = { base = \"100ms\" }";
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, lines))) else { return };
    site.llm.set(&json!({"refuse": "throttled", "after": 1, "times": 5}));
    let _node = site.up();
    let jobs = AGENTS.map(|agent| site.detach(agent, &["-j2"], PROMPT, &items(agent.name(), 3)));
    for job in &jobs {
        in_time("the job is done", || {
            let account = site.place.json(["account", "show", "shared"]);
            assert!(account["held"].is_null(), "{account}");
            let shown = site.place.json(["job", "show", job]);
            assert!(shown["paused"].is_null() && shown["tasks"]["failed"] == 0, "{shown}");
            (shown["state"] == "completed").then_some(())
        });
    }
    assert_eq!((site.llm.answered(429).len(), site.llm.answered(200).len()), (5, 6));
}

/// Two workers, and a refusal that no repetition changes.
fn stop_the_queue(agent: Agent, refusal: &str) {
    let Some(site) = Site::new(&[(agent, "max_workers = 2\nretry = { base = \"100ms\" }")]) else { return };
    site.llm.set(&json!({"refuse": refusal}));
    let ids: Vec<String> =
        (0..6).map(|number| site.submit(agent, &format!("[[item {number}]] Say it."))).collect();
    let _node = site.up();
    let queue = in_time("the queue is paused, and nothing of it runs", || {
        let queue = site.place.json(["queue", "show", agent.name()]);
        let is_still = ids.iter().all(|id| site.place.json(["show", id])["state"] == "queued");
        (queue["paused"].is_string() && is_still).then_some(queue)
    });
    site.place.done(["submit", "other", "run", "--wait"]);
    let requests = site.llm.requests();
    assert!((1..=2).contains(&requests.len()), "{agent:?}, {refusal}: {} requests: {queue}", requests.len());
    for id in &ids {
        let task = site.place.json(["show", id]);
        assert_eq!(task["failures"], 0, "{task}");
    }
}

#[test]
fn a_wrong_key_stops_the_queue_of_claude_after_one_request_of_each_worker() {
    stop_the_queue(Agent::Claude, "unauthorized");
}

#[test]
fn a_wrong_key_stops_the_queue_of_codex_after_one_request_of_each_worker() {
    stop_the_queue(Agent::Codex, "unauthorized");
}

#[test]
fn an_unpaid_account_stops_the_queue_of_claude_after_one_request_of_each_worker() {
    stop_the_queue(Agent::Claude, "billing");
}

#[test]
fn a_used_up_quota_stops_the_queue_of_codex_after_one_request_of_each_worker() {
    stop_the_queue(Agent::Codex, "quota");
}
