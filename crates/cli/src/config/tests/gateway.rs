//! Gateways in the config: pools of queries, and the gateway of worker processes.

use std::time::Duration;

use ostler_agent::gateway::{GatewaySettings, GatewayWorkers};
use ostler_config::TakesPrompts;

use super::{PoolSettings, fault, good, policy, told, with_prices};

/// A pool of queries with only the required keys, and the reference's examples for keys that have no default.
pub(super) fn plain() -> PoolSettings {
    with_prices(
        "[pool.runs]\nexecutor = \"http\"\ngateway = \"http://127.0.0.1:8900\"\ntoken = \"GATEWAY_TOKEN\"\nprompt = \"Review {{ file }}\"",
    )
}

/// A pool of workers with this gateway.
fn workers(gateway: &str) -> String {
    format!("[pool.runs]\nexecutor = \"process\"\ncommand = [\"python3\", \"w.py\"]\ngateway = {gateway}")
}

#[test]
fn queries_have_four_workers_ten_minutes_and_slow_retries_and_take_prompts() {
    let config = good("[pool.runs]\nexecutor = \"http\"\ngateway = \"http://127.0.0.1:8900\"");
    let [pool] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    assert_eq!((pool.scale.min, pool.scale.max), (1, 4));
    let said = pool.overrides;
    assert_eq!((said.timeout, said.base), (Some(Duration::from_secs(600)), Some(Duration::from_secs(30))));
    assert_eq!(pool.executor.takes_prompts(), TakesPrompts::Yes);
}

#[test]
fn a_gateway_is_an_address_or_a_table() {
    for (gateway, shown) in [
        ("\"https://gateway.example/v1\"", "https://gateway.example"),
        ("{ url = \"http://127.0.0.1:8900\", idle_watchdog = \"1m\" }", "http://127.0.0.1:8900"),
    ] {
        let config = good(&workers(gateway));
        let workers: &GatewayWorkers = policy(&config.pools[0]);
        let GatewaySettings::External(found, _) = &workers.gateway else { panic!("{workers:?}") };
        assert_eq!(found.address.to_string(), shown);
    }
    let config = good(&workers("{ agent = \"claude\", model = \"m\", permission = \"edit\" }"));
    let found: &GatewayWorkers = policy(&config.pools[0]);
    let GatewaySettings::InProcess(agents) = &found.gateway else { panic!("{found:?}") };
    assert_eq!((agents.pool.as_str(), agents.model.as_deref()), ("runs", Some("m")));
    assert_eq!(config.pools[0].executor.takes_prompts(), TakesPrompts::No, "a handler says what it takes");
}

#[test]
fn a_wrong_gateway_is_one_sentence() {
    for (text, words) in [
        ("[pool.runs]\nexecutor = \"http\"".to_owned(), "gateway is missing"),
        ("[pool.runs]\nexecutor = \"http\"\ngateway = \"ftp://x\"".to_owned(), "begins with \"ftp:\""),
        (workers("\"gateway\""), "does not begin with http://"),
        (workers("5"), "must be the address of a gateway"),
        (workers("{ model = \"m\" }"), "gateway.agent is missing"),
        (workers("{ url = \"http://x\", agent = \"claude\" }"), "gateway.agent: unknown key"),
    ] {
        assert!(fault(&text).contains(words), "{text}: {:?}", told(&text));
    }
}

#[test]
fn a_token_that_could_be_read_on_its_way_is_a_finding() {
    let found = |address: &str| {
        let text = format!("[pool.runs]\nexecutor = \"http\"\ngateway = \"{address}\"\ntoken = \"T\"");
        good(&text).findings().iter().any(|finding| finding.code == "gateway-plain")
    };
    assert!(found("http://gateway.example"));
    assert!(!found("https://gateway.example") && !found("http://127.0.0.1:8900"));
}
