//! The real gemini and opencode, by the Agent Client Protocol: a job of ten items each, conversations that go on, and answers that are none.

use std::collections::BTreeMap;

use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use super::in_time;
use super::site::{Agent, Site, items, seconds};
use crate::gateway::is_begun;

const AGENTS: [Agent; 2] = [Agent::Gemini, Agent::OpenCode];
/// An agent that hangs fails its test before the test gives up.
const BOUNDS: &str = "timeout = \"3m\"\nidle_watchdog = \"60s\"";
/// What a request costs that bills 20,000 tokens and 1,000.
const REQUEST_USD: f64 = 0.025;
/// Requests for a task that ends by rule. Other requests, such as one for a title, are not counted.
const FEW: usize = 10;
/// Seconds in which it ends.
const SOON: f64 = 15.0;
/// Seconds that a cancelled agent has to end by itself, and that a busy machine adds.
const GRACE: f64 = 5.0;
const SLACK: f64 = 2.0;

#[test]
fn ten_items_are_asked_once_each_by_gemini_and_by_opencode_and_their_cost_is_known() {
    let lines = format!("max_workers = 2\n{BOUNDS}");
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, lines.as_str()))) else { return };
    let _node = site.up();
    let prompt = "[[item {{ item }}]][[tokens 20000 1000]][[say Done with {{ item }}.]] Say it.";
    let jobs = AGENTS.map(|agent| site.detach(agent, &[], prompt, &items(agent.name(), 10)));
    for (agent, job) in AGENTS.iter().zip(&jobs) {
        site.all_done(job);
        let results = site.results(job);
        let outputs: Vec<String> =
            results.iter().map(|one| one["output"].as_str().unwrap_or_default().to_owned()).collect();
        let expected: Vec<String> =
            items(agent.name(), 10).iter().map(|item| format!("Done with {item}.")).collect();
        assert_eq!(outputs, expected, "{agent:?}");
        for one in &results {
            assert_eq!(one["cost_usd"].as_f64(), Some(REQUEST_USD), "{agent:?}: {one}");
        }
    }
    let mut asked = BTreeMap::new();
    for request in site.llm.requests() {
        *asked.entry(request.item).or_insert(0) += 1;
    }
    assert_eq!(asked.len(), 20, "{asked:?}");
    assert!(asked.values().all(|count| *count == 1), "{asked:?}");
}

#[test]
fn the_real_agents_of_the_protocol_use_tools_and_go_on_with_a_conversation_and_record_it_once() {
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, BOUNDS))) else { return };
    let _node = site.up();
    let ids = AGENTS.map(|agent| {
        let mark = site.place.folder().join(format!("made-by-{}", agent.name()));
        let marks = format!("[[tokens 20000 1000]][[tool 1 echo yes > {}]]", mark.display());
        site.submit(agent, &format!("{marks}[[say It is made.]] Make it."))
    });
    for (agent, id) in AGENTS.iter().zip(&ids) {
        let task = site.done(id);
        assert_eq!(task["output"], "It is made.", "{agent:?}");
        let made = site.place.folder().join(format!("made-by-{}", agent.name()));
        assert_eq!(std::fs::read_to_string(made).unwrap_or_default().trim(), "yes", "{agent:?}");
        let log = site.place.done(["logs", id]);
        assert!(log.contains("echo yes"), "{agent:?}: {log}");
        if *agent == Agent::Gemini {
            of_another_minute(&site, id);
        }
        let session = last_session(&task);
        let payload = json!({"prompt": "[[say And again.]] Again.", "session": session});
        let id = site.submit_payload(*agent, &payload);
        let next = site.done(&id);
        assert_eq!(next["output"], "And again.", "{agent:?}");
        assert_eq!(last_session(&next), session, "{agent:?}");
        assert_eq!(task["attempts"][0]["cost_usd"].as_f64(), Some(2.0 * REQUEST_USD), "{agent:?}: {task}");
        assert_eq!(next["attempts"][0]["cost_usd"].as_f64(), Some(REQUEST_USD), "{agent:?}: {next}");
        let log = site.place.done(["logs", &id]);
        assert!(
            log.contains("And again.") && !log.contains("It is made."),
            "its history is not recorded again: {log}"
        );
        let last = site.llm.requests().into_iter().rev().find(|request| request.path.contains(agent.api()));
        assert!(last.is_some_and(|request| request.sha256.len() > 1), "{agent:?}: the model has the history");
    }
}

/// The session of the last attempt. On a busy machine an earlier one may have found that the agent does not answer.
fn last_session(task: &Value) -> &Value {
    let attempts = task["attempts"].as_array().expect("a list");
    &attempts.last().expect("an attempt")["session_id"]
}

/// Renames the files of a conversation of gemini, which have the minute of their beginning in their names: in that minute gemini itself
/// destroys a session that it is to load.
fn of_another_minute(site: &Site, task: &str) {
    let files = walkdir::WalkDir::new(site.home(Agent::Gemini, task)).into_iter().filter_map(Result::ok);
    for file in files.filter(|file| file.path().extension().is_some_and(|end| end == "jsonl")) {
        let name = file.file_name().to_string_lossy().into_owned();
        let id = name.rsplit_once('-').expect("it ends with an id").1;
        let earlier = file.path().with_file_name(format!("session-2026-01-01T00-00-{id}"));
        std::fs::rename(file.path(), earlier).expect("it can be renamed");
    }
}

/// Waits until an agent has begun to work on a prompt, and that is written down.
fn begins_to_answer(site: &Site, agent: Agent, id: &str) {
    let home = site.home(agent, id);
    in_time("it has begun to answer", || is_begun(&home, id).then_some(()));
}

/// Kills a node while an agent answers, after it has used a tool. What `change` does happens before the next one starts. Returns the place and the task.
fn killed_in_an_answer(agent: Agent, change: impl FnOnce(&Site, &str)) -> Option<(Site, Value)> {
    let site = Site::new(&[(agent, BOUNDS)])?;
    let node = site.up();
    let marks =
        format!("[[item {}]][[tokens 20000 1000]][[tool 1 echo history]][[words 24 0.5]]", agent.name());
    let id = site.submit(agent, &format!("{marks} Say some words."));
    in_time("it has used a tool", || (site.llm.of(agent.name()).len() == 2).then_some(()));
    // The answer takes twelve seconds.
    begins_to_answer(&site, agent, &id);
    node.signal(ProcessSignal::KILL);
    drop(node);
    in_time("the agent died with the node", || site.processes().is_empty().then_some(()));
    change(&site, &id);
    let node = site.up();
    let task = site.done(&id);
    drop(node);
    let words: Vec<String> = (0..24).map(|number| format!("word{number}")).collect();
    assert_eq!(task["output"].as_str().map(str::trim), Some(words.join(" ").as_str()), "{agent:?}");
    assert_eq!(task["attempts"].as_array().map(Vec::len), Some(2), "{agent:?}: {task}");
    Some((site, task))
}

/// Gemini has `session/load`, and opencode `session/resume`.
#[test]
fn after_the_death_of_the_node_gemini_and_opencode_go_on_in_the_session_that_was_stored() {
    for agent in AGENTS {
        let earlier = |site: &Site, id: &str| {
            if agent == Agent::Gemini {
                site.is_kept(agent, id, "echo history");
                of_another_minute(site, id);
            }
        };
        let Some((site, task)) = killed_in_an_answer(agent, earlier) else { return };
        let sessions = [0, 1].map(|number| &task["attempts"][number]["session_id"]);
        assert!(sessions[0].is_string() && sessions[0] == sessions[1], "{agent:?}: {task}");
        let asked = site.llm.of(agent.name());
        assert_eq!(asked.len(), 3, "{agent:?}: the one in flight at the death is asked once more: {asked:?}");
        assert!(asked[2].last.contains("Go on."), "{agent:?}: {asked:?}");
        assert!(asked[2].sha256.len() > asked[0].sha256.len(), "{agent:?}: the model has the history");
        let log = site.place.done(["logs", task["id"].as_str().expect("an id")]);
        for words in ["Say some words.", "[tool_call ", "[assistant] word0 "] {
            assert_eq!(log.matches(words).count(), 1, "{agent:?}: \"{words}\" is recorded once: {log}");
        }
        // Opencode tells the cost of its session: what the attempt that died had not reported is in the next one.
        let requests = if agent == Agent::OpenCode { 2.0 } else { 1.0 };
        let cost = task["attempts"][1]["cost_usd"].as_f64();
        assert_eq!(cost, Some(requests * REQUEST_USD), "{agent:?}: its history is not paid again: {task}");
    }
}

#[test]
fn a_session_that_gemini_or_opencode_has_lost_with_the_node_begins_anew_and_the_transcript_says_so() {
    for agent in AGENTS {
        let lost = |site: &Site, id: &str| {
            let files = walkdir::WalkDir::new(site.home(agent, id)).into_iter().filter_map(Result::ok);
            for file in files.filter(|file| file.file_type().is_file()) {
                let name = file.file_name().to_string_lossy().into_owned();
                if name.ends_with(".jsonl") || name.contains(".db") {
                    std::fs::remove_file(file.path()).expect("it can be removed");
                }
            }
        };
        let Some((site, task)) = killed_in_an_answer(agent, lost) else { return };
        let id = task["id"].as_str().expect("an id");
        let sessions = [0, 1].map(|number| &task["attempts"][number]["session_id"]);
        assert!(sessions[1].is_string() && sessions[0] != sessions[1], "{agent:?}: {task}");
        let log = site.place.done(["logs", id]);
        assert!(log.contains("is not there: a new one begins"), "{agent:?}: {log}");
        let asked = site.llm.of(agent.name());
        assert_eq!(asked.len(), 4, "{agent:?}: {asked:?}");
        assert!(asked[2].last.contains("Say some words."), "{agent:?}: {asked:?}");
    }
}

#[test]
fn answers_that_are_none_end_a_run_by_rule_and_an_agent_that_says_success_then_has_none() {
    let lines = format!("retry = {{ attempts = 1 }}\n{BOUNDS}");
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, lines.as_str()))) else { return };
    let _node = site.up();
    for broken in ["html", "truncated"] {
        site.llm.set(&json!({ "refuse": broken }));
        let ids =
            AGENTS.map(|agent| site.submit(agent, &format!("[[item {broken}-{}]] Say it.", agent.name())));
        for (agent, id) in AGENTS.iter().zip(&ids) {
            let task = site.ended(id, "failed");
            let error = &task["attempts"][0]["error"];
            assert_eq!(error["class"], "transient", "{agent:?}, {broken}: {error}");
            let asked = site.llm.of(&format!("{broken}-{}", agent.name()));
            let took = seconds(&task["finished_at"]) - asked[0].at;
            assert!(
                asked.len() < FEW && took < SOON,
                "{agent:?}, {broken}: {} requests in {took} s",
                asked.len()
            );
        }
    }
}

#[test]
fn a_tool_that_gemini_may_not_use_is_denied_at_once_and_the_task_ends() {
    let agent = Agent::Gemini;
    let Some(site) = Site::new(&[(agent, BOUNDS)]) else { return };
    let _node = site.up();
    let made = site.place.folder().join("made");
    let prompt = format!("[[tool 1 echo yes > {}]][[say I may not.]] Make it.", made.display());
    let id = site.submit_payload(agent, &json!({"prompt": prompt, "permission": "read-only"}));
    let task = site.done(&id);
    let log = site.place.done(["logs", &id]);
    assert!(log.contains("[warning] denied: execute"), "{log}");
    assert_eq!(task["output"], "I may not.", "{task}");
    assert!(!made.exists(), "it was run: {log}");
}

#[test]
fn gemini_and_opencode_end_soon_when_they_are_cancelled_in_an_answer_and_no_process_is_left() {
    let Some(site) = Site::new(&AGENTS.map(|agent| (agent, BOUNDS))) else { return };
    let _node = site.up();
    // The answer takes twelve seconds.
    let ids = AGENTS.map(|agent| {
        site.submit(agent, &format!("[[item {}]][[words 24 0.5]] Say some words.", agent.name()))
    });
    for (agent, id) in AGENTS.iter().zip(&ids) {
        begins_to_answer(&site, *agent, id);
        site.place.done(["cancel", id]);
    }
    for (agent, id) in AGENTS.iter().zip(&ids) {
        let task = site.ended(id, "cancelled");
        let took = seconds(&task["finished_at"]) - seconds(&task["cancel_requested_at"]);
        assert!(took < GRACE + SLACK, "{agent:?} ended {took} s after it was cancelled");
        let log = site.place.done(["logs", id]);
        assert!(log.contains("[assistant] word0 "), "{agent:?}: what it had said is kept: {log}");
        assert_eq!(site.llm.of(agent.name()).len(), 1, "{agent:?}");
    }
    in_time("no process is left", || site.processes().is_empty().then_some(()));
}
