//! The end of a job's budget: says what was spent, and asks for a larger one.

use ostler_core::{JobId, parse_usd};
use ostler_ops::jobs::manage;
use ostler_store::Store;

use super::question::{Reply, ask, can_ask};
use crate::exit::say;
use crate::print::Format;
use crate::up::Signals;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetAnswer {
    /// The job goes on with a larger budget.
    Raised,
    /// The user decides later, or cannot be asked.
    Later,
    Interrupted,
}

/// Says why the job is paused, and asks for a larger budget where there is a terminal.
pub(crate) async fn decide(
    store: &dyn Store,
    job: JobId,
    why: &str,
    format: Format,
    signals: &mut Signals,
) -> anyhow::Result<BudgetAnswer> {
    let how = format!("to go on: ostler job resume {job} --max-cost USD");
    if !can_ask(format) {
        say(&format!("the job is paused: {why}; {how}"));
        return Ok(BudgetAnswer::Later);
    }
    say(&format!("the job is paused: {why}"));
    let question = "a larger budget in US dollars, or nothing to leave it paused: ".to_owned();
    match ask(question, signals).await? {
        Reply::Line(line) if !line.is_empty() => match parse_usd(&line) {
            Ok(total) => {
                manage::resume(store, &job.to_string(), Some(total)).await?;
                return Ok(BudgetAnswer::Raised);
            }
            Err(error) => say(&error),
        },
        Reply::Line(_) => {}
        Reply::Interrupted => return Ok(BudgetAnswer::Interrupted),
    }
    say(&how);
    Ok(BudgetAnswer::Later)
}
