//! The last words of the demo: whether an agent is here, and the line to try with it.

use ostler_agent::{AgentProduct, Dialect};

use crate::doctor::is_program;

/// The agents that `--agent` takes, the first one preferred.
const AGENTS: [Dialect; 2] = [Dialect::Claude, Dialect::Codex];

pub(super) fn next_step() -> String {
    let is_here = |agent: &Dialect| agent.program().is_some_and(is_program);
    match AGENTS.iter().find(|agent| is_here(agent)) {
        Some(agent) => {
            format!(
                "\n{} is here. Let it read your files, one task for each:\n  {}",
                agent.name(),
                line(*agent)
            )
        }
        None => {
            let install: Vec<String> = AGENTS
                .iter()
                .filter_map(|agent| agent.product())
                .map(|AgentProduct { name, package }| format!("{name} (the package {package})"))
                .collect();
            format!(
                "\nNo agent is on the PATH. Install {}, log in, and let it read your files:\n  {}",
                install.join(" or "),
                line(AGENTS[0])
            )
        }
    }
}

fn line(agent: Dialect) -> String {
    format!(
        "ostler map --agent {} --pilot --prompt 'Summarize {{{{ file }}}} in one sentence.' --files '*.md'",
        agent.name()
    )
}
