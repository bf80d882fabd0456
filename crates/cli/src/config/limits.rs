//! The limits of a pool: `rate`, `concurrency` and `breaker`; and what else its queue keeps: `priority`, `key_until`.
//!
//! Each applies to the whole queue or, with a `key`, to each limit key. A task has one limit key and one cost, so all limits of
//! a pool use the same ones.

use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_config::{FoundValue, Section};
use ostler_core::{BreakerPolicy, Budget, KeyHold, PriorityOrder, Rate, Trip};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting, MAX_AMOUNT, MAX_WINDOW, MAX_WINDOWS, SetBy};
use ostler_store::paths::PayloadPath;
use ostler_store::views::QueueSettings;

/// The range of amounts and bursts.
const AMOUNTS: RangeInclusive<u64> = 1..=MAX_AMOUNT;
/// The range of concurrency, failures and at_least.
const COUNTS: RangeInclusive<u32> = 1..=1_000_000;
/// The windows of a rate.
const WINDOWS: [(&str, Duration); 4] = [
    ("per_second", Duration::from_secs(1)),
    ("per_minute", Duration::from_secs(60)),
    ("per_hour", Duration::from_secs(3_600)),
    ("per_day", Duration::from_secs(86_400)),
];
/// Stands for the key that a task was submitted with.
const GIVEN: &str = "limit_key";

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LimitSettings {
    /// The maximum number of waiting tasks.
    pub(crate) queue_limit: Option<u64>,
    /// The maximum number of running tasks, over all nodes.
    pub(crate) concurrency: Option<u32>,
    /// The maximum number of running tasks of one limit key, over all nodes.
    pub(crate) key_concurrency: Option<u32>,
    pub(crate) rate: Vec<Rate>,
    pub(crate) key_rate: Vec<Rate>,
    pub(crate) breaker: Option<BreakerSetting>,
    /// What its tasks may spend.
    pub(crate) budget: Option<Budget>,
    /// The payload path of the limit key.
    pub(crate) key: Option<PayloadPath>,
    /// The payload path of the cost.
    pub(crate) cost: Option<PayloadPath>,
    pub(crate) priority: PriorityOrder,
    /// How long tasks hold their unique keys.
    pub(crate) key_hold: KeyHold,
}

impl LimitSettings {
    /// The changes that a node makes to the limits of its queue when it starts; `before` are the current settings.
    pub(crate) fn bring(&self, before: &QueueSettings) -> Bring {
        let none = *self == Self::default();
        match before.set_by {
            SetBy::Hand if none => Bring { changes: Vec::new(), replaces: Replaces::Nothing },
            SetBy::Config => Bring { changes: self.changes(), replaces: Replaces::Nothing },
            SetBy::Hand => {
                let changes = self.changes();
                let mut after = before.clone();
                changes.iter().cloned().for_each(|change| after.apply(change));
                let same = QueueSettings { set_by: before.set_by, ..after } == *before;
                Bring { changes, replaces: if same { Replaces::Nothing } else { Replaces::SetByHand } }
            }
        }
    }

    /// Without those of the queue as a whole.
    pub(crate) fn of_keys(&self) -> Self {
        let breaker = self.breaker.filter(|breaker| breaker.scope == BreakerScope::Key);
        Self { concurrency: None, rate: Vec::new(), budget: None, breaker, ..self.clone() }
    }

    /// All limits, including those left out: limits removed from the file must be removed from the queue.
    fn changes(&self) -> Vec<QueueChange> {
        vec![
            QueueChange::Limit(self.queue_limit),
            QueueChange::Concurrency(self.concurrency),
            QueueChange::KeyConcurrency(self.key_concurrency),
            QueueChange::Rate(self.rate.clone()),
            QueueChange::KeyRate(self.key_rate.clone()),
            QueueChange::Breaker(self.breaker),
            QueueChange::Budget(self.budget),
            QueueChange::KeyPath(self.key.clone()),
            QueueChange::CostPath(self.cost.clone()),
            QueueChange::Priority(self.priority),
            QueueChange::KeyHold(self.key_hold),
            QueueChange::SetBy(SetBy::Config),
        ]
    }
}

/// The effect of a starting node on the limits of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bring {
    pub(crate) changes: Vec<QueueChange>,
    pub(crate) replaces: Replaces,
}

/// What the limits of a config replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// Nothing that was set by hand.
    Nothing,
    /// Different limits set by `ostler queue set`.
    SetByHand,
}

pub(super) fn read(pool: &mut Section<'_>, queue_limits: RangeInclusive<u64>) -> LimitSettings {
    let mut same = CommonLimits::default();
    let queue_limit = pool.find("queue_limit").and_then(|found| found.whole(queue_limits));
    let mut concurrency = pool.section("concurrency");
    let key_concurrency = concurrency.find("limit").and_then(|found| found.count(COUNTS));
    let total = concurrency.find("total").and_then(|found| found.count(COUNTS));
    same.key(concurrency.find("key"));
    concurrency.close(&[]);
    let (rate, key_rate) = rates(pool, &mut same);
    let breaker = breaker(pool, &mut same);
    let orders = PriorityOrder::ALL.map(|order| (order.name(), order));
    let priority = pool.find("priority").and_then(|found| found.one_of(&orders)).unwrap_or_default();
    let holds = KeyHold::NAMED.map(|hold| (hold.name().unwrap_or_default(), hold));
    let key_hold = pool.find("key_until").and_then(|found| found.one_of(&holds)).unwrap_or_default();
    LimitSettings {
        queue_limit,
        concurrency: total,
        key_concurrency,
        rate,
        key_rate,
        breaker,
        budget: None,
        key: same.key.and_then(|(_, key)| key),
        cost: same.cost.and_then(|(_, cost)| cost),
        priority,
        key_hold,
    }
}

/// What all limits of a pool share, and where it was set first.
#[derive(Default)]
struct CommonLimits {
    key: Option<(String, Option<PayloadPath>)>,
    cost: Option<(String, Option<PayloadPath>)>,
}

/// Whether a limit applies to the queue or to each key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LimitSubject {
    Queue,
    Key,
}

impl CommonLimits {
    fn key(&mut self, found: Option<FoundValue<'_>>) -> LimitSubject {
        let Some(found) = found else { return LimitSubject::Queue };
        let Some(text) = found.text() else { return LimitSubject::Key };
        let key = if text == GIVEN { Some(None) } else { path(&found, &text).map(Some) };
        let Some(key) = key else { return LimitSubject::Key };
        match &self.key {
            Some((place, known)) if *known != key => {
                found.refuse::<()>(format!("is {}, but {place} is different: {ONE_KEY}", found.shown()));
            }
            Some(_) => {}
            None => self.key = Some((found.path().to_owned(), key)),
        }
        LimitSubject::Key
    }

    /// Reads the cost of a rate; without one, each task counts as 1.
    fn cost(&mut self, rate: &mut Section<'_>) {
        let found = rate.find("cost");
        let place = found.as_ref().map_or_else(|| rate.path().to_owned(), |found| found.path().to_owned());
        let cost = match &found {
            Some(found) => match found.text().and_then(|text| path(found, &text)) {
                Some(cost) => Some(cost),
                None => return,
            },
            None => None,
        };
        match &self.cost {
            Some((known, other)) if *other != cost => {
                rate.fault("cost", format!("differs from that of {known}: {ONE_COST}"));
            }
            Some(_) => {}
            None => self.cost = Some((place, cost)),
        }
    }
}

const ONE_KEY: &str = "a task has one limit key, so all limits of a pool must use the same key";
const ONE_COST: &str = "a task has one cost, so all rates of a pool must use the same cost, or none";

fn path(found: &FoundValue<'_>, text: &str) -> Option<PayloadPath> {
    PayloadPath::parse(text).map_err(|error| found.refuse::<()>(format!("is invalid: {error}"))).ok()
}

/// The rates of the queue, and of its keys.
fn rates(pool: &mut Section<'_>, same: &mut CommonLimits) -> (Vec<Rate>, Vec<Rate>) {
    let Some(found) = pool.find("rate") else { return (Vec::new(), Vec::new()) };
    let (mut queue, mut keys) = (Vec::new(), Vec::new());
    for mut section in found.tables("{ per_minute = 60 }") {
        let of = same.key(section.find("key"));
        same.cost(&mut section);
        let rate = rate(&mut section);
        section.close(&[]);
        match of {
            LimitSubject::Queue => queue.extend(rate),
            LimitSubject::Key => keys.extend(rate),
        }
    }
    if queue.len() > MAX_WINDOWS || keys.len() > MAX_WINDOWS {
        found.refuse::<()>(format!("has more than {MAX_WINDOWS} windows, the maximum"));
    }
    (queue, keys)
}

fn rate(section: &mut Section<'_>) -> Option<Rate> {
    let burst = section.find("burst").and_then(|found| found.whole(AMOUNTS));
    let windows = section.choose(&WINDOWS.map(|(name, _)| name));
    let [(at, found)] = windows.as_slice() else {
        let names = WINDOWS.map(|(name, _)| name).join(", ");
        return section.refuse(format!(
            "has {} of {names}, but must have exactly one; for several rates use a list",
            windows.len()
        ));
    };
    let amount = found.whole(AMOUNTS)?;
    let usual = Rate::even(amount, WINDOWS[*at].1);
    Some(Rate { burst: burst.unwrap_or(usual.burst), ..usual })
}

fn breaker(pool: &mut Section<'_>, same: &mut CommonLimits) -> Option<BreakerSetting> {
    let mut section = pool.find("breaker")?.table()?;
    let of = same.key(section.find("key"));
    let reset = section.find("reset");
    if reset.is_none() {
        section.fault("reset", "is missing: how long it stays open before one task is tried, such as \"5m\"");
    }
    let reset = reset.and_then(|found| span(&found));
    let trip = trip(&mut section);
    section.close(&[]);
    let scope = match of {
        LimitSubject::Queue => BreakerScope::Queue,
        LimitSubject::Key => BreakerScope::Key,
    };
    Some(BreakerSetting { policy: BreakerPolicy { trip: trip?, reset: reset? }, scope })
}

fn trip(section: &mut Section<'_>) -> Option<Trip> {
    let chosen = section.choose(&["failures", "share"]);
    match chosen.as_slice() {
        [(0, failures)] => {
            for (_, found) in section.choose(&["window", "at_least"]) {
                found.refuse::<()>("can only be used with share, not with failures");
            }
            failures.count(COUNTS).map(Trip::Consecutive)
        }
        [(_, share)] => {
            let failures_percent = share.percent();
            let at_least =
                section.required("at_least", "the minimum number of finished attempts, such as 20");
            let at_least = at_least.and_then(|found| found.count(COUNTS));
            let window = section.required("window", "how far back to look, such as \"1m\"");
            let window = window.and_then(|found| span(&found));
            Some(Trip::Rate { failures_percent: failures_percent?, at_least: at_least?, window: window? })
        }
        _ => section.refuse(
            "must have either failures (the number in a row) or share (the fraction of failures in a window)",
        ),
    }
}

/// The duration of a window or a reset.
fn span(found: &FoundValue<'_>) -> Option<Duration> {
    let span = found.duration()?;
    if span > MAX_WINDOW {
        return found.refuse(format!("is {}, but must be at most 366d", found.shown()));
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fault, good, pool};
    use super::*;

    fn limits(lines: &str) -> LimitSettings {
        good(&pool(lines)).pools.remove(0).limits
    }

    fn tenant() -> Option<PayloadPath> {
        PayloadPath::parse("payload.tenant").ok()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn nothing_said_is_no_limit() {
        assert_eq!(limits(""), LimitSettings::default());
    }

    #[test]
    fn a_file_without_limits_leaves_those_that_were_set_by_hand() {
        let rate = |rate| vec![Rate { amount: rate, per: MINUTE, burst: 6 }];
        let by_hand = QueueSettings { rate: rate(9), set_by: SetBy::Hand, ..QueueSettings::default() };
        let none = limits("");
        assert_eq!(none.bring(&by_hand), Bring { changes: Vec::new(), replaces: Replaces::Nothing });
        // Limits that an earlier file had, and this one has not, are removed.
        let by_file = QueueSettings { set_by: SetBy::Config, ..by_hand.clone() };
        assert_eq!(none.bring(&by_file), Bring { changes: none.changes(), replaces: Replaces::Nothing });
        let some = limits("rate = { per_minute = 60 }");
        assert_eq!(some.bring(&by_hand), Bring { changes: some.changes(), replaces: Replaces::SetByHand });
        let same = QueueSettings { rate: rate(60), ..by_hand };
        assert_eq!(some.bring(&same).replaces, Replaces::Nothing, "they are the same");
    }

    #[test]
    fn a_rate_is_for_the_queue_or_with_a_key_for_each_key() {
        let queue = limits("rate = { per_minute = 60 }");
        assert_eq!(queue.rate, [Rate { amount: 60, per: MINUTE, burst: 6 }]);
        assert_eq!((queue.key_rate.len(), queue.key, queue.cost), (0, None, None));
        let keys = limits(r#"rate = { per_second = 3, key = "payload.tenant", burst = 9 }"#);
        assert_eq!(keys.key_rate, [Rate { amount: 3, per: Duration::from_secs(1), burst: 9 }]);
        assert_eq!((keys.rate.len(), keys.key), (0, tenant()));
        let given = limits(r#"rate = { per_day = 3, key = "limit_key" }"#);
        assert_eq!((given.key_rate.len(), given.key), (1, None));
    }

    #[test]
    fn several_windows_are_a_list_and_may_have_a_cost() {
        let both = limits(
            r#"
            [[pool.shell.rate]]
            per_second = 10
            cost = "payload.tokens"
            [[pool.shell.rate]]
            per_hour = 1000
            cost = "payload.tokens"
            key = "payload.tenant"
            "#,
        );
        assert_eq!((both.rate.len(), both.key_rate.len(), both.key), (1, 1, tenant()));
        assert_eq!(both.cost.map(|cost| cost.to_string()).as_deref(), Some("payload.tokens"));
        let rates = "[{ per_second = 1 }, { per_minute = 20 }, { per_hour = 100 }, { per_day = 500 }]";
        assert_eq!(limits(&format!("rate = {rates}")).rate.len(), 4);
    }

    #[test]
    fn concurrency_is_for_each_key_and_in_total() {
        let both = limits(r#"concurrency = { limit = 2, total = 20, key = "payload.tenant" }"#);
        assert_eq!((both.key_concurrency, both.concurrency, both.key), (Some(2), Some(20), tenant()));
        let given = limits("concurrency = { limit = 2 }");
        assert_eq!((given.key_concurrency, given.concurrency, given.key), (Some(2), None, None));
        let turns = limits(r#"concurrency = { key = "payload.tenant" }"#);
        assert_eq!((turns.key_concurrency, turns.key), (None, tenant()));
    }

    #[test]
    fn a_breaker_counts_failures_or_a_share_of_them() {
        let reset = 5 * MINUTE;
        let row = limits(r#"breaker = { failures = 5, reset = "5m" }"#).breaker.expect("a breaker");
        let policy = BreakerPolicy { trip: Trip::Consecutive(5), reset };
        assert_eq!(row, BreakerSetting { policy, scope: BreakerScope::Queue });
        let share = limits(
            r#"breaker = { share = 0.5, window = "1m", at_least = 20, reset = "5m", key = "payload.tenant" }"#,
        );
        let policy =
            BreakerPolicy { trip: Trip::Rate { failures_percent: 50, at_least: 20, window: MINUTE }, reset };
        assert_eq!(share.breaker, Some(BreakerSetting { policy, scope: BreakerScope::Key }));
        assert_eq!(share.key, tenant());
    }

    #[test]
    fn what_cannot_work_is_one_sentence() {
        for (text, sentence) in [
            (
                "rate = 60",
                "pool.shell.rate is 60, but must be a table such as { per_minute = 60 }, or a list of such",
            ),
            ("rate = [60]", "pool.shell.rate contains 60, but must be a table such as { per_minute = 60 }"),
            (
                "rate = {}",
                "pool.shell.rate has 0 of per_second, per_minute, per_hour, per_day, but must have exactly one",
            ),
            ("rate = { per_minute = 1, per_hour = 2 }", "has 2 of per_second"),
            (
                "rate = { per_minute = 0 }",
                "pool.shell.rate.per_minute is 0, but must be a whole number from 1",
            ),
            ("rate = { per_minute = 1, burst = 0 }", "pool.shell.rate.burst is 0"),
            (
                "rate = { per_minut = 1, per_hour = 1 }",
                "rate.per_minut: unknown key; did you mean per_minute?",
            ),
            (
                "rate = { per_minute = 1, key = \"tenant\" }",
                "pool.shell.rate.key is invalid: \"tenant\" is no path",
            ),
            ("rate = { per_minute = 1, cost = 3 }", "pool.shell.rate.cost is 3, but must be a string"),
            (
                "rate = [{ per_minute = 1 }, { per_hour = 1, cost = \"payload.x\" }]",
                "pool.shell.rate[2].cost differs from that of pool.shell.rate[1]: a task has one cost",
            ),
            (
                "rate = { per_minute = 1, key = \"payload.a\" }\nbreaker = { failures = 1, reset = \"1s\", key = \"payload.b\" }",
                "pool.shell.breaker.key is \"payload.b\", but pool.shell.rate.key is different: a task has one limit key",
            ),
            (
                "concurrency = { key = \"limit_key\" }\nrate = { per_minute = 1, key = \"payload.a\" }",
                "pool.shell.rate.key is \"payload.a\", but pool.shell.concurrency.key is different",
            ),
            ("concurrency = { total = 0 }", "pool.shell.concurrency.total is 0"),
            ("breaker = { reset = \"5m\" }", "pool.shell.breaker must have either failures"),
            (
                "breaker = { failures = 5, share = 0.5, reset = \"5m\" }",
                "pool.shell.breaker must have either failures",
            ),
            ("breaker = { failures = 5 }", "pool.shell.breaker.reset is missing"),
            ("breaker = { failures = 0, reset = \"5m\" }", "pool.shell.breaker.failures is 0"),
            (
                "breaker = { failures = 5, reset = \"367d\" }",
                "pool.shell.breaker.reset is \"367d\", but must be at most 366d",
            ),
            (
                "breaker = { failures = 5, window = \"1m\", reset = \"5m\" }",
                "pool.shell.breaker.window can only be used with share",
            ),
            (
                "breaker = { share = 0.5, window = \"1m\", reset = \"5m\" }",
                "pool.shell.breaker.at_least is missing",
            ),
            (
                "breaker = { share = 0.5, at_least = 2, reset = \"5m\" }",
                "pool.shell.breaker.window is missing",
            ),
        ] {
            let line = fault(&pool(text));
            assert!(line.contains(sentence), "{text}: {line}");
        }
        for share in ["0", "0.001", "1.5", "50", "-0.5", "nan", "inf", "\"half\""] {
            let text =
                format!("breaker = {{ share = {share}, window = \"1m\", at_least = 20, reset = \"5m\" }}");
            let line = fault(&pool(&text));
            assert!(line.contains("but must be a fraction from 0.01 to 1.0"), "{share}: {line}");
        }
        let many = ["{ per_minute = 1 }"; 5].join(", ");
        assert!(fault(&pool(&format!("rate = [{many}]"))).contains("has more than 4 windows"));
    }

    #[test]
    fn the_reference_names_the_keys_of_which_only_one_is_given() {
        for (key, _) in WINDOWS {
            assert!(super::super::DEFAULT.contains(key), "{key}");
        }
        for key in ["share", "window", "at_least", GIVEN] {
            assert!(super::super::DEFAULT.contains(key), "{key}");
        }
    }
}
