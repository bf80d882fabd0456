//! The end of a pilot: shows what its items cost and took, and asks whether the others run.

use ostler_core::JobId;
use ostler_ops::jobs::pilot::{self, PilotResult};
use ostler_store::Store;

use super::question::{Reply, ask, can_ask};
use crate::exit::say;
use crate::print::{Format, how_long};
use crate::up::Signals;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PilotAnswer {
    Approved,
    Rejected,
    /// The user decides later, or cannot be asked.
    Later,
    Interrupted,
}

/// Pauses the job, shows the result, and asks where there is a terminal.
pub(crate) async fn decide(
    store: &dyn Store,
    job: JobId,
    at_once: u32,
    format: Format,
    signals: &mut Signals,
) -> anyhow::Result<PilotAnswer> {
    pilot::wait_for_approval(store, job).await?;
    let result = pilot::result(store, job).await?;
    say(&sentence(&result, at_once));
    let answer = if can_ask(format) {
        match ask(format!("run {}? [y/n] ", others(&result)), signals).await? {
            Reply::Line(line) => answer_of(&line),
            Reply::Interrupted => return Ok(PilotAnswer::Interrupted),
        }
    } else {
        PilotAnswer::Later
    };
    let id = job.to_string();
    match answer {
        PilotAnswer::Approved => drop(pilot::approve(store, &id).await?),
        PilotAnswer::Rejected => {
            let items = pilot::reject(store, &id).await?.tasks;
            say(&format!("rejected: {items} items were cancelled"));
        }
        PilotAnswer::Later | PilotAnswer::Interrupted => {
            let others = others(&result);
            say(&format!(
                "to run {others}: ostler job approve {id}; to give them up: ostler job reject {id}"
            ));
        }
    }
    Ok(answer)
}

/// Neither yes nor no means later.
fn answer_of(line: &str) -> PilotAnswer {
    match line {
        "y" | "Y" | "yes" => PilotAnswer::Approved,
        "n" | "N" | "no" => PilotAnswer::Rejected,
        _ => PilotAnswer::Later,
    }
}

fn others(result: &PilotResult) -> String {
    if result.rest == 1 { "the other item".to_owned() } else { format!("the other {} items", result.rest) }
}

fn sentence(result: &PilotResult, at_once: u32) -> String {
    let items = if result.items == 1 { "1 item".to_owned() } else { format!("{} items", result.items) };
    let failed = if result.failed > 0 { format!(", {} failed", result.failed) } else { String::new() };
    let cost = |cost: Option<ostler_core::Cost>, word: &str| {
        cost.map(|cost| format!(", {word}{cost}")).unwrap_or_default()
    };
    format!(
        "pilot: {items}{failed}, {}{}; {} will take about {}{}",
        how_long(result.took),
        cost(result.cost, ""),
        others(result),
        how_long(result.time_of_rest(at_once)),
        cost(result.cost_of_rest(), "about "),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_core::Cost;

    use super::*;

    #[test]
    fn a_pilot_says_what_the_other_items_will_cost_and_take() {
        let result = PilotResult {
            items: 2,
            failed: 0,
            rest: 9,
            cost: Cost::from_usd(0.5),
            took: Duration::from_secs(20),
        };
        assert_eq!(
            sentence(&result, 4),
            "pilot: 2 items, 20s, $0.50; the other 9 items will take about 30s, about $2.25"
        );
        let free = PilotResult { items: 1, failed: 1, rest: 1, cost: None, took: Duration::from_secs(5) };
        assert_eq!(sentence(&free, 1), "pilot: 1 item, 1 failed, 5s; the other item will take about 5s");
    }
}
