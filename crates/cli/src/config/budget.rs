//! Money in the config: the `budget` of a pool, and the table `[prices]`.

use ostler_config::{Section, TaskBudgets};
use ostler_core::price::{Price, PriceSource, PriceTable, TokenPrice};
use ostler_core::{Budget, Cost};

/// The budgets of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolBudgets {
    /// That of its queue.
    pub(super) queue: Option<Budget>,
    /// That of each task, for kinds that enforce one.
    pub(super) per_task: Option<Cost>,
}

pub(super) fn read(pool: &mut Section<'_>, tasks: TaskBudgets) -> PoolBudgets {
    let Some(mut section) = pool.find("budget").and_then(|found| found.table()) else {
        return PoolBudgets::default();
    };
    let mut money = |key| section.find(key).and_then(|found| found.money());
    let (total, per_day, reserve) = (money("total"), money("per_day"), money("reserve"));
    let per_task = match tasks {
        TaskBudgets::Enforced => money("per_task"),
        TaskBudgets::Unsupported => None,
    };
    let limits = total.is_some() || per_day.is_some();
    if reserve.is_some() && !limits {
        section.fault("reserve", "can only be used with total or per_day");
    } else if !limits && per_task.is_none() && !section.has("total") && !section.has("per_day") {
        section.fault_all("must have total or per_day: an amount such as \"$5\"");
    }
    section.close(&[]);
    PoolBudgets { queue: limits.then_some(Budget { total, per_day, reserve }), per_task }
}

/// The prices of the user, over these.
pub(super) fn prices(section: &Section<'_>, mut table: PriceTable) -> PriceTable {
    for (model, found) in section.entries() {
        let Some(mut section) = found.table() else { continue };
        let mut price = |key| section.find(key).and_then(|found| found.money()).and_then(per_million);
        let (input, output) = (price("input"), price("output"));
        let (cache_read, cache_write) = (price("cache_read"), price("cache_write"));
        let cache_write_1h = price("cache_write_1h");
        for key in ["input", "output"] {
            if !section.has(key) {
                section.fault(key, "is missing: US dollars for a million tokens, such as \"$3\"");
            }
        }
        section.close(&[]);
        if let (Some(input), Some(output)) = (input, output) {
            let source = PriceSource::Config;
            let price = Price { input, output, cache_read, cache_write, cache_write_1h, source };
            table = table.with(model, price);
        }
    }
    table
}

fn per_million(cost: Cost) -> Option<TokenPrice> {
    TokenPrice::per_million(cost.usd())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fault, good, pool};
    use super::*;
    use ostler_core::Usage;

    fn usd(amount: f64) -> Option<Cost> {
        Cost::from_usd(amount)
    }

    #[test]
    fn a_budget_is_for_all_tasks_or_for_a_day() {
        let budget = |lines: &str| good(&pool(lines)).pools.remove(0).limits.budget;
        assert_eq!(budget(""), None);
        let total = Budget { total: usd(5.0), per_day: None, reserve: usd(0.1) };
        assert_eq!(budget(r#"budget = { total = "$5", reserve = "$0.10" }"#), Some(total));
        let day = Budget { total: None, per_day: usd(2.5), reserve: None };
        assert_eq!(budget("budget = { per_day = 2.5 }"), Some(day));
    }

    #[test]
    fn a_budget_that_limits_nothing_is_refused() {
        for (text, sentence) in [
            ("budget = {}", "pool.shell.budget must have total or per_day"),
            ("budget = { reserve = 1 }", "pool.shell.budget.reserve can only be used with total or per_day"),
            ("budget = { total = 0 }", "pool.shell.budget.total is 0, but must be more than $0"),
            ("budget = { total = \"much\" }", "pool.shell.budget.total is much: expected an amount"),
            ("budget = { total = 1, per_task = 1 }", "pool.shell.budget.per_task: unknown key"),
            ("budget = 5", "pool.shell.budget is 5"),
        ] {
            let line = fault(&pool(text));
            assert!(line.contains(sentence), "{text}: {line}");
        }
    }

    #[test]
    fn prices_of_the_user_are_for_a_million_tokens_and_win() {
        let table = good("[prices.\"m-1\"]\ninput = \"$3\"\noutput = 15\n").prices;
        let model = Some("m-1".to_owned());
        let usage = Usage { model, input_tokens: 1_000_000, output_tokens: 100_000, ..Usage::default() };
        assert_eq!(table.cost(&usage), usd(4.5));
        assert!(table.of("claude-sonnet-4-5").is_some(), "the built-in ones stay");
        let line = fault("[prices.m]\ninput = \"$3\"");
        assert!(line.contains("prices.m.output is missing"), "{line}");
        let line = fault("[prices.m]\ninput = \"$3\"\noutput = \"$3\"\ncached = \"$1\"");
        assert!(line.contains("prices.m.cached: unknown key"), "{line}");
    }
}
