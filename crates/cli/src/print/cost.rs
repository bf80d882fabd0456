//! Costs and budgets, for people.

use ostler_core::Cost;
use ostler_ops::cost::CostDimension;
use ostler_wire::cost::{BudgetView, CostReport, CostView};

use super::Looks;
use super::table::{Cell, Paint, Table};

/// The costs by one dimension, and their sum.
pub(crate) fn costs(report: &CostReport, by: CostDimension, looks: Looks) -> String {
    if report.costs.is_empty() {
        return "nothing was spent\n".to_owned();
    }
    let head = by.name().to_uppercase();
    let mut table =
        Table::new(&[&head, "COST", "ESTIMATED", "RUNS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"]);
    for view in &report.costs {
        table.row(cells(&name(view), view, Paint::Plain));
    }
    table.row(cells("total", &report.total, Paint::Strong));
    table.render(looks)
}

fn name(view: &CostView) -> String {
    let key = view.key.clone().unwrap_or_else(|| "-".to_owned());
    view.attempt.map_or_else(|| key.clone(), |number| format!("{key} {number}"))
}

fn cells(name: &str, view: &CostView, paint: Paint) -> Vec<Cell> {
    let number = |number: u64| Cell::from(number.to_string());
    let estimated = if view.estimated_usd > 0.0 { money(view.estimated_usd) } else { String::new() };
    vec![
        Cell::painted(name, paint),
        Cell::painted(money(view.cost_usd), paint),
        estimated.into(),
        number(view.runs),
        number(view.input_tokens),
        number(view.output_tokens),
        number(view.cache_read_tokens),
        number(view.cache_write_tokens),
    ]
}

pub(super) fn money(usd: f64) -> String {
    Cost::from_usd(usd).unwrap_or_default().to_string()
}

/// The lines of a budget: what it allows, and what is spent of it.
pub(super) fn budget(view: &BudgetView) -> [(&'static str, Option<String>); 2] {
    let total = view.total_usd.map(money);
    let per_day = view.per_day_usd.map(|usd| format!("{} a day", money(usd)));
    let limits: Vec<String> = total.into_iter().chain(per_day).collect();
    let reserve = match view.expected_usd {
        Some(usd) => format!("; a task is expected to cost {}", money(usd)),
        None => "; the first task runs alone".to_owned(),
    };
    let today = if view.per_day_usd.is_some() {
        format!(", {} today", money(view.spent_today_usd))
    } else {
        String::new()
    };
    let over = if view.over_usd > 0.0 {
        format!(", {} over the budget", money(view.over_usd))
    } else {
        String::new()
    };
    let spent = format!(
        "{}{today}{over}; {} reserved for {} in flight",
        money(view.spent_usd),
        money(view.reserved_usd),
        view.in_flight
    );
    [("budget", Some(format!("{}{reserve}", limits.join(", ")))), ("  spent", Some(spent))]
}
