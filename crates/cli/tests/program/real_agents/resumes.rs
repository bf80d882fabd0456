//! After the death of its node an agent goes on with its conversation: in a request, and inside a tool call.

use ostler_testkit::ProcessSignal;

use super::in_time;
use super::site::{Agent, Site};
use crate::up::appears;

/// What a request costs that bills 99,985 tokens and 3.
const DIME: f64 = 0.1;

#[test]
fn the_real_agents_answer_and_go_on_after_the_death_of_their_node_and_ask_nothing_twice() {
    let Some(site) = Site::new(&Agent::ALL.map(|agent| (agent, ""))) else { return };
    let node = site.up();
    let ids = Agent::ALL.map(|agent| site.submit(agent, "[[words 8 0.5]] Say some words."));
    in_time("each has asked", || (site.llm.requests().len() == Agent::ALL.len()).then_some(()));
    // The answer takes four seconds.
    for (agent, id) in Agent::ALL.iter().zip(&ids) {
        site.is_kept(*agent, id, "Say some words.");
    }
    node.signal(ProcessSignal::KILL);
    drop(node);
    let _node = site.up();
    for (agent, id) in Agent::ALL.iter().zip(&ids) {
        let task = site.done(id);
        let words = "word0 word1 word2 word3 word4 word5 word6 word7";
        assert_eq!(task["output"].as_str().map(str::trim), Some(words), "{agent:?}");
        let attempts = task["attempts"].as_array().expect("a list");
        assert_eq!(attempts.len(), 2, "{agent:?}: {task}");
        assert!(attempts[0]["session_id"].is_string(), "{agent:?}: {task}");
        assert_eq!(attempts[0]["session_id"], attempts[1]["session_id"], "{agent:?}");
        assert!(site.place.done(["logs", id]).contains("resumes the conversation"), "{agent:?}");
    }
    let requests = site.llm.requests();
    for (path, agents) in [("/v1/messages", 1), ("/v1/responses", 2)] {
        let asked = requests.iter().filter(|request| request.path == path).count();
        assert_eq!(asked, 2 * agents, "the one in flight at the death, and the one that goes on: {path}");
    }
}

#[test]
fn an_agent_that_dies_inside_a_tool_call_goes_on_in_the_same_session_and_each_request_is_paid_once() {
    let Some(site) = Site::new(&Agent::ALL.map(|agent| (agent, ""))) else { return };
    let node = site.up();
    let started = |agent: Agent| site.place.folder().join(format!("started-{}", agent.name()));
    let ids = Agent::ALL.map(|agent| {
        let command = format!("echo yes > {}; tail -f /dev/null", started(agent).display());
        site.submit(
            agent,
            &format!("[[item {}]][[tokens 99985 3]][[tool 1 {command}]] Use it.", agent.name()),
        )
    });
    for (agent, id) in Agent::ALL.iter().zip(&ids) {
        in_time("its tool runs", || started(*agent).exists().then(|| appears(&started(*agent))));
        site.is_kept(*agent, id, "tail -f /dev/null");
        // What an agent said before its tool ran is stored, or on its way.
        in_time("the call is stored", || site.place.done(["logs", id]).contains("tail -f").then_some(()));
    }
    // Usage is written down within a second.
    let record = site.home(Agent::Claude, &ids[0]).join("conversation.json");
    in_time("what claude used is written down", || {
        std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"output\":3")).then_some(())
    });
    node.signal(ProcessSignal::KILL);
    drop(node);
    in_time("the tools died with the node", || site.processes().is_empty().then_some(()));
    let _node = site.up();
    for (agent, id) in Agent::ALL.iter().zip(&ids) {
        let task = site.done(id);
        assert!(site.place.done(["logs", id]).contains("resumes the conversation"), "{agent:?}");
        let requests = site.llm.of(agent.name());
        assert_eq!(requests.len(), 2, "{agent:?}: {requests:?}");
        assert!(!requests[0].session.is_empty(), "{agent:?}: {requests:?}");
        assert_eq!(requests[0].session, requests[1].session, "{agent:?}");
        // Codex says what a request cost when its tools have ended, and then never of this one.
        let known = if *agent == Agent::Claude { 2.0 } else { 1.0 };
        let spent: f64 = task["attempts"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["cost_usd"].as_f64())
            .sum();
        assert!((spent - known * DIME).abs() < 1e-6, "{agent:?} has spent {spent}: {task}");
    }
}
