//! What real agents leave behind: a background command, a process in a session of its own, an MCP server that does not end. The answer
//! comes all the same, and no process is left.

use std::time::Instant;

use super::site::{Agent, Site};
use super::{in_time, rounds};

const MCP_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testkit/tools/mcp_that_stays.py");
/// Commands that leave a process behind.
const COMMANDS: [&str; 3] = [
    "tail -f /dev/null & echo begun",
    "setsid tail -f /dev/null >/dev/null 2>&1 & echo begun",
    "nohup sh -c 'trap \"\" TERM; tail -f /dev/null' >/dev/null 2>&1 & echo begun",
];

/// An MCP server in the config of an agent.
fn mcp_config(agent: Agent) -> String {
    match agent {
        Agent::Claude => {
            format!(
                "mcp_config = '''{{\"mcpServers\":{{\"stays\":{{\"command\":\"python3\",\"args\":[\"{MCP_SERVER}\"]}}}}}}'''"
            )
        }
        Agent::Codex | Agent::CodexExec => format!(
            "mcp_config = '''\n[mcp_servers.stays]\ncommand = \"python3\"\nargs = [\"{MCP_SERVER}\"]\nenv_vars = [\"OF_THE_TEST\"]\n'''"
        ),
        Agent::Gemini | Agent::OpenCode => format!(
            "mcp_config = '''[{{\"name\":\"stays\",\"command\":\"python3\",\"args\":[\"{MCP_SERVER}\"],\"env\":[]}}]'''"
        ),
    }
}

fn nothing_is_left(agent: Agent) {
    let (runs, at_once) = if rounds().is_some() { (100, 8) } else { (COMMANDS.len(), COMMANDS.len()) };
    let lines = format!("max_workers = {at_once}\nstagger = \"50ms\"\n{}", mcp_config(agent));
    let Some(site) = Site::new(&[(agent, &lines)]) else { return };
    let _node = site.up();
    let began = Instant::now();
    let ids: Vec<String> = (0..runs)
        .map(|run| {
            let command = COMMANDS[run % COMMANDS.len()];
            site.submit(agent, &format!("[[tool 1 {command}]] Use it, run {run}."))
        })
        .collect();
    in_time("tools and servers run", || (!site.processes().is_empty()).then_some(()));
    for id in &ids {
        let task = site.done(id);
        assert_eq!(task["output"].as_str().map(str::trim), Some("word0 word1 word2"), "{task}");
        assert_eq!(task["attempts"].as_array().map(Vec::len), Some(1), "{task}");
    }
    assert_eq!(site.llm.requests().len(), 2 * runs, "a tool call and an answer for each");
    let took = began.elapsed();
    in_time("no process is left", || site.processes().is_empty().then_some(()));
    if rounds().is_some() {
        let last = began.elapsed() - took;
        println!(
            "{}: {runs} runs, {at_once} at once, {took:?}; no process was left {last:?} later",
            agent.name()
        );
    }
}

#[test]
fn claude_answers_and_no_process_of_it_is_left() {
    nothing_is_left(Agent::Claude);
}

#[test]
fn codex_answers_and_no_process_of_it_is_left() {
    nothing_is_left(Agent::Codex);
}

#[test]
fn codex_exec_answers_and_no_process_of_it_is_left() {
    nothing_is_left(Agent::CodexExec);
}

#[test]
#[ignore = "takes most of a minute"]
fn gemini_answers_and_no_process_of_it_is_left() {
    nothing_is_left(Agent::Gemini);
}

#[test]
#[ignore = "takes minutes"]
fn opencode_answers_and_no_process_of_it_is_left() {
    nothing_is_left(Agent::OpenCode);
}
