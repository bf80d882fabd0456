//! Settings conflicts: the queue settings of a node in a form that can be compared with another node's. Two nodes that
//! serve one queue with different settings would overwrite each other's indefinitely.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_core::{Budget, Jitter, KeyHold, Overrides, PriorityOrder, Rate, SessionId, Trip};
use ostler_store::gates::{BreakerSetting, LIMIT_SETTINGS};
use ostler_store::node_settings::{METRICS, OF_THE_NODE, UNPRICED};
use ostler_store::paths::PayloadPath;
use ostler_store::views::{Liveness, NodeRecord, QueueSettings};
use serde_json::{Value, json};

use crate::config::{MetricsService, NodeConfig, PoolConfig};

/// The settings of one queue, by name, in readable form.
type SettingText = BTreeMap<String, String>;

/// A queue setting for which another live node has a different value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsConflict {
    pub queue: String,
    pub setting: String,
    /// The name of the other node.
    pub node: String,
    /// The value of the other node.
    pub there: String,
    /// The value of this node.
    pub here: String,
}

impl std::fmt::Display for SettingsConflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { queue, setting, node, there, here } = self;
        write!(
            f,
            "the queue \"{queue}\" has other settings on the node \"{node}\": {setting} is {there} there, and {here} here; use \
             the same settings, stop that node, or take over"
        )
    }
}

/// The settings of these pools, in the form that is compared. Pools without settings are left out.
pub(crate) fn text(pools: &[PoolConfig]) -> String {
    written(of_pools(pools))
}

/// What is stored with the node's session: the settings of its pools, and what is not compared with other nodes: that it serves metrics,
/// and why it is not known what the work of a pool costs.
pub(crate) fn session_text(config: &NodeConfig) -> String {
    let mut all = of_pools(&config.pools);
    let unpriced = |pool: &PoolConfig| {
        pool.unpriced.clone().map(|why| (format!("{UNPRICED}{}", pool.queue), Value::String(why)))
    };
    let mut own: serde_json::Map<String, Value> = config.pools.iter().filter_map(unpriced).collect();
    match config.metrics {
        MetricsService::Absent => {}
        MetricsService::Served => {
            own.insert(METRICS.to_owned(), json!("served"));
        }
    }
    if !own.is_empty() {
        all.insert(OF_THE_NODE.to_owned(), Value::Object(own));
    }
    written(all)
}

fn written(all: serde_json::Map<String, Value>) -> String {
    if all.is_empty() { String::new() } else { Value::Object(all).to_string() }
}

fn of_pools(pools: &[PoolConfig]) -> serde_json::Map<String, Value> {
    pools
        .iter()
        .filter(|pool| !pool.settings.is_empty())
        .map(|pool| {
            let fields = said(&brought(pool)).into_iter().map(|(name, value)| (name, Value::String(value)));
            (pool.queue.clone(), Value::Object(fields.collect()))
        })
        .collect()
}

fn brought(pool: &PoolConfig) -> QueueSettings {
    let mut settings = QueueSettings::default();
    pool.settings.iter().cloned().for_each(|change| settings.apply(change));
    settings
}

/// Whether a node that is up serves a queue with settings of its own.
#[must_use]
pub fn brings_settings(node: &NodeRecord, queue: &str) -> bool {
    node.liveness == Liveness::Alive && read(&node.settings).contains_key(queue)
}

/// The first setting for which a live node that joined before `own` has a different value.
pub(crate) fn difference(nodes: &[NodeRecord], own: SessionId, text: &str) -> Option<SettingsConflict> {
    let here = read(text);
    let before = nodes.iter().take_while(|node| node.session != own);
    before.filter(|node| node.liveness == Liveness::Alive).find_map(|node| {
        let there = read(&node.settings);
        here.iter().find_map(|(queue, ours)| {
            let theirs = there.get(queue)?;
            let (setting, here, there) = differs(ours, theirs)?;
            Some(SettingsConflict { queue: queue.clone(), setting, node: node.name.clone(), there, here })
        })
    })
}

fn differs(ours: &SettingText, theirs: &SettingText) -> Option<(String, String, String)> {
    let names = ours.keys().chain(theirs.keys());
    let value =
        |said: &SettingText, name: &String| said.get(name).cloned().unwrap_or_else(|| "not set".to_owned());
    names
        .map(|name| (name.clone(), value(ours, name), value(theirs, name)))
        .find(|(_, here, there)| here != there)
}

/// Parses the settings of another node; empty if unreadable, since another version may have written them.
fn read(text: &str) -> BTreeMap<String, SettingText> {
    serde_json::from_str(text).unwrap_or_default()
}

fn said(settings: &QueueSettings) -> SettingText {
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let path = |path: &Option<PayloadPath>| path.as_ref().map(ToString::to_string);
    let rates = |rates: &[Rate]| {
        let one = |rate: &Rate| format!("{} per {:?}, {} at once", rate.amount, rate.per, rate.burst);
        (!rates.is_empty()).then(|| rates.iter().map(one).collect::<Vec<_>>().join(" and "))
    };
    let limits = [
        settings.limit.map(|limit| limit.to_string()),
        number(settings.concurrency),
        number(settings.key_concurrency),
        path(&settings.key_path),
        path(&settings.cost_path),
        rates(&settings.rate),
        rates(&settings.key_rate),
        settings.breaker.as_ref().map(breaker),
        (settings.priority != PriorityOrder::default()).then(|| settings.priority.name().to_owned()),
        settings.key_hold.name().filter(|_| settings.key_hold != KeyHold::default()).map(str::to_owned),
        settings.budget.as_ref().map(budget),
    ];
    LIMIT_SETTINGS
        .into_iter()
        .zip(limits)
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .chain(settings.account.clone().map(|account| ("account".to_owned(), account)))
        .chain(rules("", &settings.overrides))
        .chain(settings.kinds.iter().flat_map(|(kind, overrides)| rules(&format!("kind.{kind}."), overrides)))
        .collect()
}

/// The retry and timeout settings, with this prefix to their names.
fn rules(begin: &str, overrides: &Overrides) -> Vec<(String, String)> {
    let Overrides { attempts, backoff, base, max, jitter, max_crashes, max_node_deaths, timeout } =
        *overrides;
    let span = |span: Option<Duration>| span.map(|span| format!("{span:?}"));
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let jitter = jitter.map(|jitter| match jitter {
        Jitter::Off => "off".to_owned(),
        Jitter::Half => "on".to_owned(),
    });
    [
        ("retry.attempts", number(attempts)),
        ("retry.backoff", backoff.map(|backoff| backoff.name().to_owned())),
        ("retry.base", span(base)),
        ("retry.max", span(max)),
        ("retry.jitter", jitter),
        ("retry.max_crashes", number(max_crashes)),
        ("retry.max_node_deaths", number(max_node_deaths)),
        ("timeout", span(timeout)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((format!("{begin}{name}"), value?)))
    .collect()
}

fn budget(budget: &Budget) -> String {
    let Budget { total, per_day, reserve } = *budget;
    let amounts = [("", total), (" a day", per_day), (" reserved for a task", reserve)];
    let shown = amounts.into_iter().filter_map(|(of, cost)| Some(format!("{}{of}", cost?)));
    shown.collect::<Vec<_>>().join(", ")
}

fn breaker(setting: &BreakerSetting) -> String {
    let BreakerSetting { policy, scope } = setting;
    let trip = match policy.trip {
        Trip::Consecutive(failures) => format!("{failures} failures in a row"),
        Trip::Rate { failures_percent, at_least, window } => {
            format!("{failures_percent} % of at least {at_least} in {window:?}")
        }
    };
    format!("{trip}, reset after {:?}, for each {}", policy.reset, scope.name())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ostler_core::{Id, Timestamp};
    use ostler_exec::Inline;

    use super::*;

    #[test]
    fn that_a_node_serves_metrics_and_lacks_a_price_is_published_and_not_compared() {
        let plain = NodeConfig::new("anna", Vec::new());
        let serving = NodeConfig { metrics: MetricsService::Served, ..plain.clone() };
        let pool = PoolConfig::new("answers", Arc::new(Inline::new()), 1);
        let unpriced = PoolConfig { unpriced: Some("no price".to_owned()), ..pool.clone() };
        let unpriced = NodeConfig { pools: vec![unpriced], ..serving.clone() };
        let priced = NodeConfig { pools: vec![pool], ..plain.clone() };
        let record = |config: &NodeConfig| NodeRecord {
            session: SessionId(Id::from_bits(1)),
            name: "anna".to_owned(),
            host: None,
            pid: 1,
            version: "0.1.0".to_owned(),
            ttl: Duration::from_secs(60),
            settings: session_text(config),
            joined_at: Timestamp::from_millis(0),
            liveness: Liveness::Alive,
            replies: Vec::new(),
        };
        assert!(record(&serving).serves_metrics() && !record(&plain).serves_metrics());
        assert!(record(&unpriced).serves_metrics());
        assert_eq!(record(&unpriced).unpriced("answers").as_deref(), Some("no price"));
        assert_eq!((record(&unpriced).unpriced("other"), record(&priced).unpriced("answers")), (None, None));
        let own = SessionId(Id::from_bits(2));
        assert_eq!(difference(&[record(&unpriced)], own, &session_text(&priced)), None);
        assert_eq!(difference(&[record(&serving)], own, &session_text(&plain)), None);
        assert_eq!(difference(&[record(&plain)], own, &session_text(&serving)), None);
    }
}
