//! Gates, and what is set for them, as the text that a row keeps.

use std::time::Duration;

use ostler_core::{
    Breaker, BreakerPolicy, BreakerState, Bucket, Budget, Cost, Gate, Id, KeyHold, OutcomeCounts,
    PriorityOrder, Probe, Rate, TaskId, Timestamp, Trip,
};
use ostler_store::gates::{BreakerScope, BreakerSetting, SetBy};
use ostler_store::paths::PayloadPath;
use ostler_store::views::QueueSettings;
use serde::{Deserialize, Serialize};

use crate::codec::{Readable, json};

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct GateRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    held_until_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<BucketRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<ProbeRow>,
}

#[derive(Serialize, Deserialize)]
struct BucketRow {
    seen_ms: i64,
    rates: Vec<RateRow>,
    levels: Vec<i128>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    ahead: Vec<i128>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
struct RateRow {
    amount: u64,
    per_ms: u64,
    burst: u64,
}

#[derive(Serialize, Deserialize)]
struct BreakerRow {
    #[serde(flatten)]
    state: StateRow,
    in_a_row: u32,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    lately: Vec<(i64, u32, u32)>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum StateRow {
    Closed,
    Open { until_ms: i64 },
    HalfOpen { until_ms: i64 },
}

#[derive(Serialize, Deserialize)]
struct ProbeRow {
    task: String,
    token: u64,
}

/// The text that keeps a gate; `None` when it has nothing to remember.
pub fn gate_text(gate: &Gate) -> Option<String> {
    if *gate == Gate::default() {
        return None;
    }
    let row = GateRow {
        held_until_ms: gate.held_until.map(Timestamp::millis),
        bucket: gate.bucket.as_ref().map(bucket_row),
        breaker: gate.breaker.as_ref().map(breaker_row),
        probe: gate.probe.map(|probe| ProbeRow { task: probe.task.0.to_string(), token: probe.token }),
    };
    Some(serde_json::to_string(&row).expect("a gate has only texts and numbers"))
}

/// The gate that a text has. A text that cannot be read after an edit by hand throttles no task: a gate is what was observed,
/// and can be observed again.
pub fn gate_from(text: Option<String>) -> Gate {
    let Some(row) = text.and_then(|text| serde_json::from_str::<GateRow>(&text).ok()) else {
        return Gate::default();
    };
    let bucket = row.bucket.map(|row| {
        let rates: Vec<Rate> = row.rates.into_iter().map(rate_of).collect();
        Bucket::restored(&rates, Timestamp::from_millis(row.seen_ms), &row.levels, &row.ahead)
    });
    let probe = row.probe.and_then(|row| {
        let task: Id = row.task.parse().ok()?;
        Some(Probe { task: TaskId(task), token: row.token })
    });
    Gate {
        held_until: row.held_until_ms.map(Timestamp::from_millis),
        bucket,
        breaker: row.breaker.map(breaker_of),
        probe,
    }
}

/// The text that keeps a breaker.
pub fn breaker_text(breaker: &Breaker) -> String {
    serde_json::to_string(&breaker_row(breaker)).expect("a breaker has only texts and numbers")
}

/// The breaker that a text has. A text that cannot be read after an edit by hand is that of a closed one.
pub fn breaker_from(text: &str) -> Breaker {
    serde_json::from_str(text).map_or_else(|_| Breaker::closed(), breaker_of)
}

fn bucket_row(bucket: &Bucket) -> BucketRow {
    let (seen, levels, mut ahead) = bucket.kept();
    if ahead.iter().all(|ahead| *ahead == 0) {
        ahead.clear();
    }
    BucketRow { seen_ms: seen.millis(), rates: bucket.rates().map(rate_row).collect(), levels, ahead }
}

fn breaker_row(breaker: &Breaker) -> BreakerRow {
    let state = match breaker.state {
        BreakerState::Closed => StateRow::Closed,
        BreakerState::Open { until } => StateRow::Open { until_ms: until.millis() },
        BreakerState::HalfOpen { until } => StateRow::HalfOpen { until_ms: until.millis() },
    };
    let lately = |tally: &OutcomeCounts| (tally.since.millis(), tally.successes, tally.failures);
    BreakerRow { state, in_a_row: breaker.in_a_row, lately: breaker.lately.iter().map(lately).collect() }
}

fn breaker_of(row: BreakerRow) -> Breaker {
    let state = match row.state {
        StateRow::Closed => BreakerState::Closed,
        StateRow::Open { until_ms } => BreakerState::Open { until: Timestamp::from_millis(until_ms) },
        StateRow::HalfOpen { until_ms } => BreakerState::HalfOpen { until: Timestamp::from_millis(until_ms) },
    };
    let tally = |(since, successes, failures)| OutcomeCounts {
        since: Timestamp::from_millis(since),
        successes,
        failures,
    };
    Breaker { state, in_a_row: row.in_a_row, lately: row.lately.into_iter().map(tally).collect() }
}

// ---- what is set ----

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct RulesRow {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rate: Vec<RateRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key_rate: Vec<RateRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<SettingRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<BudgetRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_by: Option<String>,
}

/// Amounts in billionths of a dollar.
#[derive(Serialize, Deserialize)]
struct BudgetRow {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reserve: Option<u64>,
}

impl From<Budget> for BudgetRow {
    fn from(Budget { total, per_day, reserve }: Budget) -> Self {
        let [total, per_day, reserve] = [total, per_day, reserve].map(|cost| cost.map(Cost::nanos));
        Self { total, per_day, reserve }
    }
}

impl From<BudgetRow> for Budget {
    fn from(BudgetRow { total, per_day, reserve }: BudgetRow) -> Self {
        let [total, per_day, reserve] = [total, per_day, reserve].map(|nanos| nanos.map(Cost::from_nanos));
        Self { total, per_day, reserve }
    }
}

#[derive(Serialize, Deserialize)]
struct SettingRow {
    #[serde(flatten)]
    trip: TripRow,
    reset_ms: u64,
    scope: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "trip", rename_all = "snake_case")]
enum TripRow {
    Consecutive { failures: u32 },
    Rate { failures_percent: u8, at_least: u32, window_ms: u64 },
}

/// The text that keeps what is set for the limits of a queue; `None` when nothing is.
pub fn rules_text(settings: &QueueSettings) -> Option<String> {
    let gated = !settings.rate.is_empty() || !settings.key_rate.is_empty() || settings.breaker.is_some();
    let by_hand = settings.set_by == SetBy::Hand;
    let orders = settings.priority != PriorityOrder::default() || settings.key_hold != KeyHold::default();
    if !gated
        && !by_hand
        && !orders
        && settings.budget.is_none()
        && settings.concurrency.is_none()
        && !settings.reads_payloads()
    {
        return None;
    }
    let rates = |rates: &[Rate]| rates.iter().copied().map(rate_row).collect();
    let breaker = settings.breaker.map(|BreakerSetting { policy, scope }| SettingRow {
        trip: match policy.trip {
            Trip::Consecutive(failures) => TripRow::Consecutive { failures },
            Trip::Rate { failures_percent, at_least, window } => {
                TripRow::Rate { failures_percent, at_least, window_ms: millis(window) }
            }
        },
        reset_ms: millis(policy.reset),
        scope: scope.name().to_owned(),
    });
    let path = |path: &Option<PayloadPath>| path.as_ref().map(ToString::to_string);
    let row = RulesRow {
        rate: rates(&settings.rate),
        key_rate: rates(&settings.key_rate),
        breaker,
        concurrency: settings.concurrency,
        key_path: path(&settings.key_path),
        cost_path: path(&settings.cost_path),
        key_until: (settings.key_hold != KeyHold::default()).then(|| hold_text(settings.key_hold)),
        priority: (settings.priority != PriorityOrder::default())
            .then(|| settings.priority.name().to_owned()),
        budget: settings.budget.map(BudgetRow::from),
        set_by: by_hand.then(|| settings.set_by.name().to_owned()),
    };
    Some(serde_json::to_string(&row).expect("rules have only texts and numbers"))
}

/// Puts what a text keeps among the settings.
pub fn read_rules(text: Option<String>, settings: &mut QueueSettings) -> Readable<()> {
    let Some(row) = json::<RulesRow>(text)? else { return Ok(()) };
    settings.rate = row.rate.into_iter().map(rate_of).collect();
    settings.key_rate = row.key_rate.into_iter().map(rate_of).collect();
    settings.concurrency = row.concurrency;
    // A path of a later version leads nowhere.
    let path = |text: Option<String>| text.and_then(|text| PayloadPath::parse(&text).ok());
    (settings.key_path, settings.cost_path) = (path(row.key_path), path(row.cost_path));
    // Of a later version, what is not known here is the default.
    settings.key_hold = row.key_until.as_deref().and_then(hold_from).unwrap_or_default();
    settings.priority = row.priority.as_deref().and_then(PriorityOrder::named).unwrap_or_default();
    settings.budget = row.budget.map(Budget::from);
    settings.set_by = row.set_by.and_then(|name| SetBy::named(&name)).unwrap_or_default();
    settings.breaker = row.breaker.map(|row| BreakerSetting {
        policy: BreakerPolicy {
            trip: match row.trip {
                TripRow::Consecutive { failures } => Trip::Consecutive(failures),
                TripRow::Rate { failures_percent, at_least, window_ms } => {
                    Trip::Rate { failures_percent, at_least, window: Duration::from_millis(window_ms) }
                }
            },
            reset: Duration::from_millis(row.reset_ms),
        },
        // A scope of a later version reads as the wider one.
        scope: BreakerScope::named(&row.scope).unwrap_or(BreakerScope::Queue),
    });
    Ok(())
}

/// The text of a hold on a unique key: a name, or milliseconds.
fn hold_text(hold: KeyHold) -> String {
    match hold {
        KeyHold::For(span) => millis(span).to_string(),
        KeyHold::Removed | KeyHold::End => hold.name().unwrap_or_default().to_owned(),
    }
}

fn hold_from(text: &str) -> Option<KeyHold> {
    KeyHold::named(text).or_else(|| text.parse().ok().map(|ms| KeyHold::For(Duration::from_millis(ms))))
}

fn rate_row(rate: Rate) -> RateRow {
    RateRow { amount: rate.amount, per_ms: millis(rate.per), burst: rate.burst }
}

const fn rate_of(row: RateRow) -> Rate {
    Rate { amount: row.amount, per: Duration::from_millis(row.per_ms), burst: row.burst }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_comes_back_as_it_was() {
        let at = Timestamp::from_millis;
        let rates = [
            Rate { amount: 1_000_000_000, per: Duration::from_secs(366 * 86_400), burst: 1_000_000_000 },
            Rate { amount: 3, per: Duration::from_millis(7), burst: 1 },
        ];
        let mut bucket = Bucket::full(&rates, at(5));
        bucket.take(1_000_000, at(5));
        let higher = Rate { amount: 30, ..rates[1] };
        let bucket = bucket.with_rates(&[rates[0], higher], at(6));
        assert!(bucket.kept().2.iter().any(|ahead| *ahead > 0), "{bucket:?}");
        for state in [
            BreakerState::Closed,
            BreakerState::Open { until: at(i64::MAX) },
            BreakerState::HalfOpen { until: at(9) },
        ] {
            let lately = vec![OutcomeCounts { since: at(3), successes: 1, failures: u32::MAX }];
            let breaker = Breaker { state, in_a_row: 7, lately };
            let probe = Probe { task: TaskId(Id::from_bits(u128::MAX - 5)), token: u64::MAX };
            let gate = Gate {
                held_until: Some(at(-1)),
                bucket: Some(bucket.clone()),
                breaker: Some(breaker),
                probe: Some(probe),
            };
            let text = gate_text(&gate);
            assert_eq!(gate_from(text.clone()), gate, "{text:?}");
        }
        assert_eq!(gate_text(&Gate::default()), None);
        assert_eq!(gate_from(None), Gate::default());
        for nonsense in ["", "[]", "{\"bucket\":7}", "{\"probe\":{\"task\":\"?\",\"token\":1}}"] {
            assert_eq!(gate_from(Some(nonsense.to_owned())), Gate::default(), "{nonsense}");
        }
    }
}
