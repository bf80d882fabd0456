//! Findings about settings that agents of the Agent Client Protocol cannot keep, or keep in another way.

use ostler_config::{FindingLevel, PoolFinding};

use crate::dialect::Dialect;
use crate::executor::AgentPolicy;
use crate::launch::PlanError;
use crate::settings::DEFAULT_MAX_TURNS;

/// The findings of a pool; none for other agents.
pub(super) fn of(policy: &AgentPolicy, pool: &str) -> Vec<PoolFinding> {
    let finding = |level, code, sentence: &str, advice| PoolFinding {
        code,
        level,
        sentence: format!("pool.{pool}{sentence}"),
        advice,
    };
    let mut findings = Vec::new();
    match policy.dialect {
        Dialect::Claude | Dialect::Codex | Dialect::CodexExec | Dialect::Command => return findings,
        Dialect::Gemini | Dialect::OpenCode => {}
        Dialect::Acp => {
            if policy.max_turns != DEFAULT_MAX_TURNS {
                findings.push(finding(
                    FindingLevel::Info,
                    "agent-iterations",
                    ".max_iterations: the protocol does not tell model requests; rounds of tools are counted instead",
                    "Set a \"timeout\" too",
                ));
            }
            if policy.max_task_cost.is_some() {
                findings.push(finding(
                    FindingLevel::Warning,
                    "agent-cost",
                    ".budget: it is kept only if the agent reports its cost, which the protocol leaves open",
                    "Look at \"ostler cost\" after the first tasks, and set a \"timeout\"",
                ));
            }
        }
    }
    if policy.dialect == Dialect::OpenCode && policy.provider.is_some() && policy.model.is_none() {
        let sentence = format!(": {}", PlanError::NoModel);
        findings.push(finding(FindingLevel::Error, "agent-model", &sentence, "Set \"model\""));
    }
    if policy.setting_sources.is_some() {
        let sentence = ".setting_sources: only claude has these";
        findings.push(finding(FindingLevel::Info, "agent-settings", sentence, "Leave it out"));
    }
    findings
}
