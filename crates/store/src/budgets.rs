//! Budgets of queues, as settings: which budgets a queue charges, and what a changed budget does. The rules are in `ostler_core::Budget`.

use ostler_core::{
    BUDGET_REACHED, Budget, BudgetVerdict, ChargeVerdict, Closed, Cost, Spending, Timestamp, Wait, ask_all,
};

use crate::error::Error;
use crate::views::{QueueRecord, QueueSettings};

/// A budget that the tasks of a queue are charged to: that of the queue, or that of the pool that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The queue that the budget is set for.
    pub queue: String,
    pub budget: Budget,
    pub spending: Spending,
}

/// Asks all budgets of a queue whether one more task may start.
#[must_use]
pub fn ask(charges: &[Charge], now: Timestamp) -> ChargeVerdict {
    ask_all(charges.iter().map(|charge| (&charge.budget, &charge.spending)), now)
}

/// Why and until when the budgets of a queue let nothing start; `None`: they do not.
#[must_use]
pub fn shut(charges: &[Charge], now: Timestamp) -> Option<Closed> {
    match ask(charges, now) {
        ChargeVerdict::Start(_) => None,
        ChargeVerdict::Wait(until) => Some(Closed { why: Wait::Budget, until }),
        ChargeVerdict::Reached(_) => Some(Closed { why: Wait::Budget, until: None }),
    }
}

/// Completes the queues of a survey: those that nothing else throttles may be throttled by a budget.
pub fn shut_queues(queues: &mut [QueueRecord], now: Timestamp) {
    let charge = |name: &str, queues: &[QueueRecord]| {
        let found = queues.iter().find(|queue| queue.name == name)?;
        let budget = found.settings.budget?;
        Some(Charge { queue: name.to_owned(), budget, spending: found.spending.clone().unwrap_or_default() })
    };
    for at in 0..queues.len() {
        let QueueRecord { name, settings, .. } = &queues[at];
        if queues[at].shut.is_none() && settings.is_charged() {
            let charges: Vec<Charge> =
                settings.charged(name).filter_map(|name| charge(name, queues)).collect();
            queues[at].shut = shut(&charges, now);
        }
    }
}

impl QueueSettings {
    /// Whether a budget may be charged for its tasks.
    #[must_use]
    pub const fn is_charged(&self) -> bool {
        self.budget.is_some() || self.pool.is_some()
    }

    /// The queues whose budgets are charged for its tasks, if they have one: the queue `own` itself, and its pool's.
    pub fn charged<'a>(&'a self, own: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::once(own).chain(self.serving_queue(own))
    }

    /// The pool that its costs are recorded for.
    #[must_use]
    pub fn pool_of<'a>(&'a self, own: &'a str) -> &'a str {
        self.pool.as_deref().unwrap_or(if crate::jobs::job_of(own).is_some() { "" } else { own })
    }

    /// Resumes a queue that a reached budget has paused, if the changed budget is not reached.
    pub fn resume_with_budget(&mut self, before: &Self, spending: &Spending, now: Timestamp) {
        let paused = self.paused.as_deref().is_some_and(|reason| reason.starts_with(BUDGET_REACHED));
        if !paused || self.budget == before.budget || self.paused != before.paused {
            return;
        }
        let reached = |budget| spending.ask(&budget, now) == BudgetVerdict::Reached;
        if !self.budget.is_some_and(reached) {
            self.paused = None;
        }
    }
}

/// Rejects a budget without a limit, and limits of nothing.
pub(crate) fn check_budget(budget: &Budget) -> Result<(), Error> {
    let Budget { total, per_day, reserve } = *budget;
    if total.is_none() && per_day.is_none() {
        return Err(Error::invalid("a budget needs an amount in total, or for a day"));
    }
    for (name, cost) in [("budget", total), ("budget of a day", per_day), ("reserve", reserve)] {
        if cost == Some(Cost::default()) {
            return Err(Error::invalid(format!(
                "{name} must be more than $0; to run nothing, pause the queue"
            )));
        }
    }
    Ok(())
}
