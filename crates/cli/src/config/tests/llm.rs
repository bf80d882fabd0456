//! Pools of models in the config: their defaults, and what is refused.

use std::time::Duration;

use ostler_agent::llm::LlmPolicy;

use super::{PoolSettings, fault, good, policy, with_prices};

/// A pool of models with only the required keys, and the reference's examples for keys that have no default.
pub(super) fn plain() -> PoolSettings {
    let text = r#"
        [pool.labels]
        executor = "llm"
        api = "anthropic"
        model = "claude-sonnet-4-5"
        base_url = "http://127.0.0.1:11434"
        key_variable = "ANTHROPIC_API_KEY"
        headers = { "anthropic-beta" = "name" }
        system = "Answer in one sentence."
        prompt = "Label this text: {{ item }}"
        max_tokens = 1024
        extra = { temperature = 0.2 }
        schema = { type = "object", required = ["label"] }
    "#;
    with_prices(text)
}

fn pool(lines: &str) -> String {
    format!("[pool.labels]\nexecutor = \"llm\"\n{lines}")
}

#[test]
fn models_have_four_workers_and_ten_minutes() {
    let config = good(&pool("api = \"openai\""));
    let [pool] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    assert_eq!((pool.scale.min, pool.scale.max), (1, 4));
    assert_eq!(pool.overrides.timeout, Some(Duration::from_secs(600)));
    let policy: &LlmPolicy = policy(pool);
    assert_eq!((policy.schema_retries, policy.idle_watchdog), (2, Duration::from_secs(180)));
}

#[test]
fn an_account_is_that_of_an_agent_with_the_same_key_or_of_the_server() {
    let account = |lines: &str| good(&pool(lines)).pools[0].executor.account();
    let local = account("api = \"openai\"\nbase_url = \"http://127.0.0.1:11434/v1\"").expect("it has one");
    assert!(local.starts_with("llm-"), "{local}");
    let same = account("api = \"openai-responses\"\nbase_url = \"http://127.0.0.1:11434\"");
    assert_eq!(same.as_deref(), Some(local.as_str()));
    let other = account("api = \"openai\"\nbase_url = \"http://127.0.0.1:8080\"");
    assert_ne!(other.as_deref(), Some(local.as_str()));
}

#[test]
fn wrong_keys_of_models_are_refused_with_a_sentence() {
    for (lines, part) in [
        ("", "pool.labels.api is missing"),
        ("api = \"gemini\"", "pool.labels.api"),
        ("api = \"openai\"\nbase_url = \"ftp://x\"", "base_url is not an address such as"),
        ("api = \"openai\"\nkey_variable = \"a b\"", "key_variable is not the name of a variable"),
        ("api = \"openai\"\nheaders = { \"a b\" = \"x\" }", "is not a header"),
        ("api = \"openai\"\nextra = 3", "extra must be a table"),
        ("api = \"openai\"\nmax_tokens = 0", "max_tokens"),
        ("api = \"openai\"\nprompt = \"{{\"", "prompt is not a template"),
        ("api = \"openai\"\nmodle = \"x\"", "did you mean model?"),
        (
            "api = \"openai\"\nmodel = \"m-9\"\nbudget = { total = \"$5\" }",
            "the price of the model \"m-9\" is not known",
        ),
        ("api = \"openai\"\nbudget = { per_day = \"$5\" }", "\"model\" is missing"),
    ] {
        let line = fault(&pool(lines));
        assert!(line.contains(part), "{line}");
    }
}
