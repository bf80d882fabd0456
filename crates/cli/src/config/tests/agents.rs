//! Pools of agents in the config: their defaults, and the account that follows from them.

use std::time::Duration;

use ostler_agent::executor::AgentPolicy;
use ostler_core::Cost;

use super::{PoolSettings, fault, good, policy, with_prices};

/// A pool of agents with only the required keys, and the reference's examples for keys that have no default.
pub(super) fn plain() -> PoolSettings {
    let text = r#"
        [pool.reviews]
        executor = "agent"
        agent = "claude"
        command = ["npx", "claude"]
        prompt = "Review {{ file }}"
        model = "claude-sonnet-4-5"
        schema = { type = "object", required = ["score"] }
        mcp_config = "{\"mcpServers\":{}}"
        setting_sources = "project"
        base_url = "http://127.0.0.1:8080"
        budget = { per_task = "$1" }
        config_folders = "agents"
        cost_pattern = "cost: (.*)"
        session_pattern = "session: (.*)"
        worktrees = { repository = ".", base = "main" }
    "#;
    with_prices(text)
}

#[test]
fn agents_have_four_workers_ten_minutes_and_slow_retries() {
    let config = good("[pool.reviews]\nexecutor = \"agent\"\nagent = \"claude\"");
    let [pool] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    assert_eq!((pool.scale.min, pool.scale.max), (1, 4));
    let said = pool.overrides;
    assert_eq!((said.timeout, said.base), (Some(Duration::from_secs(600)), Some(Duration::from_secs(30))));
    let agents: &AgentPolicy = policy(pool);
    assert_eq!((agents.max_turns, agents.idle_watchdog), (50, Duration::from_secs(180)));
    let account = pool.executor.account().expect("an agent has an account");
    assert!(account.starts_with("claude"), "{account}");
}

#[test]
fn an_account_and_budgets_are_as_the_file_says() {
    let keys = "account = \"team\"\nbudget = { per_task = \"$1\", per_day = \"$50\", total = \"$500\" }";
    let pool = with_prices(&format!("[pool.reviews]\nexecutor = \"agent\"\nagent = \"claude\"\n{keys}"));
    let agents: &AgentPolicy = policy(&pool);
    assert_eq!(pool.account.as_deref(), Some("team"));
    assert_eq!(agents.max_task_cost, Cost::from_usd(1.0));
    let budget = pool.limits.budget.expect("all tasks together have a budget");
    assert_eq!((budget.per_day, budget.total), (Cost::from_usd(50.0), Cost::from_usd(500.0)));
    let plain = good("[pool.x]\nexecutor = \"command\"\ncommand = [\"true\"]");
    assert_eq!(plain.pools[0].account, None);
}

#[test]
fn a_budget_needs_to_know_what_the_work_costs() {
    let pool =
        |keys: &str| format!("[pool.reviews]\nexecutor = \"agent\"\nbudget = {{ total = \"$5\" }}\n{keys}");
    for (keys, part) in [
        ("agent = \"codex\"\nmodel = \"m-9\"", "the price of the model \"m-9\" is not known"),
        ("agent = \"codex\"", "codex does not say what it costs: set \"model\""),
        ("agent = \"command\"\ncommand = [\"x\"]", "\"cost_pattern\" is missing"),
    ] {
        let line = fault(&pool(keys));
        assert!(line.contains("pool.reviews.budget cannot be kept") && line.contains(part), "{line}");
    }
    good(&pool("agent = \"claude\""));
    // claude reports its cost at the end of a turn. To stop it before, its price is needed.
    good(&pool("agent = \"claude\"\nmodel = \"m-9\""));
    let per_task =
        "[pool.x]\nexecutor = \"agent\"\nagent = \"claude\"\nmodel = \"m-9\"\nbudget = { per_task = \"$1\" }";
    assert!(fault(per_task).contains("the price of the model \"m-9\" is not known"));
    good(&format!("{}\n[prices.m-9]\ninput = 1\noutput = 2", pool("agent = \"codex\"\nmodel = \"m-9\"")));
}

#[test]
fn a_config_folder_that_all_agents_of_a_pool_share_is_a_warning() {
    let finding = |agent: &str, variable: &str| {
        let text = format!(
            "[pool.reviews]\nexecutor = \"agent\"\nagent = \"{agent}\"\nenv = {{ {variable} = \"/srv/shared\" }}"
        );
        let found = good(&text).pools[0].findings();
        found
            .iter()
            .find(|finding| finding.code == "agent-shared-config")
            .map(|finding| finding.sentence.clone())
    };
    for (agent, variable) in [
        ("claude", "CLAUDE_CONFIG_DIR"),
        ("codex", "CODEX_HOME"),
        ("gemini", "GEMINI_CLI_HOME"),
        ("opencode", "XDG_DATA_HOME"),
    ] {
        let sentence = finding(agent, variable).expect("it is a finding");
        assert!(
            sentence.starts_with(&format!("pool.reviews.env sets {variable}: all of its agents share")),
            "{sentence}"
        );
        assert_eq!(finding(agent, "LANG"), None);
    }
    assert_eq!(finding("claude", "CODEX_HOME"), None, "claude does not read it");
}
