//! Budgets: the money that a queue may spend. Each claim reserves the expected cost of its task, and the end of the attempt settles it.
//!
//! Nothing is claimed when what is spent, what is reserved and the task's own reservation would pass the budget. So a budget is passed by
//! at most what the attempts in flight cost above their reservations.

use crate::outcome::Ending;
use crate::time::Timestamp;
use crate::usage::Cost;

/// Ended attempts whose costs the next reservations are estimated from.
pub const RECENT_COSTS: usize = 50;
/// The beginning of the reason with which a queue is paused when its budget is reached. A larger budget resumes such a queue.
pub const BUDGET_REACHED: &str = "its budget of ";

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// The day of a timestamp, counted from 1970-01-01. Days are those of UTC, so that all nodes agree on them.
#[must_use]
pub const fn day_of(at: Timestamp) -> i64 {
    at.millis().div_euclid(DAY_MS)
}

/// When a day begins.
#[must_use]
pub const fn day_start(day: i64) -> Timestamp {
    Timestamp::from_millis(day.saturating_mul(DAY_MS))
}

/// The limits of a queue's spending. At least one of the first two is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The limit of all spending since the budget was first set.
    pub total: Option<Cost>,
    /// For each day of UTC.
    pub per_day: Option<Cost>,
    /// The expected cost of one task until an attempt has ended; then it is the median of the recent ones. `None`: the first task runs alone.
    pub reserve: Option<Cost>,
}

/// What a queue with a budget has spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    pub spent: Cost,
    /// Held back for attempts in flight: what they are expected to spend yet.
    pub reserved: Cost,
    /// Attempts with a reservation.
    pub in_flight: u64,
    /// The day of `spent_today`; see [`day_of`].
    pub day: i64,
    pub spent_today: Cost,
    /// What the last attempts cost, the oldest first; at most [`RECENT_COSTS`].
    pub recent: Vec<Cost>,
}

/// What one attempt has of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostReservation {
    /// Still reserved.
    pub left: Cost,
    /// Spent by the attempt, which may be more than was reserved.
    pub spent: Cost,
}

/// Whether the cost of an attempt is charged to a budget, so that it has to be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    #[default]
    Free,
    Charged,
}

/// What the next task is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedCost {
    Known(Cost),
    /// No attempt has ended yet: the first one runs alone.
    Unknown,
}

impl ExpectedCost {
    /// The amount to reserve.
    const fn amount(self) -> Cost {
        match self {
            Self::Known(cost) => cost,
            Self::Unknown => Cost::from_nanos(0),
        }
    }
}

/// Whether a task may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetVerdict {
    /// Yes, with this reservation.
    Start(Cost),
    /// Not before an attempt in flight has ended: it may cost less than was reserved for it.
    WaitForSettlement,
    /// Not today.
    WaitUntil(Timestamp),
    /// Not with this budget: nothing is in flight that could free a part of it.
    Reached,
}

/// Whether a task may start that several budgets are charged for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargeVerdict {
    /// Yes, with these reservations, in the order of the budgets.
    Start(Vec<Cost>),
    /// Not before this time, or before an attempt in flight has ended.
    Wait(Option<Timestamp>),
    /// Not with this budget, by its place in the list.
    Reached(usize),
}

/// Asks all budgets that a task is charged to. A reached one comes first, because only a larger budget helps.
#[must_use]
pub fn ask_all<'a>(
    all: impl IntoIterator<Item = (&'a Budget, &'a Spending)>,
    now: Timestamp,
) -> ChargeVerdict {
    let (mut amounts, mut until, mut settles) = (Vec::new(), None, false);
    for (at, (budget, spending)) in all.into_iter().enumerate() {
        match spending.ask(budget, now) {
            BudgetVerdict::Start(amount) => amounts.push(amount),
            BudgetVerdict::WaitForSettlement => settles = true,
            BudgetVerdict::WaitUntil(time) => until = until.max(Some(time)),
            BudgetVerdict::Reached => return ChargeVerdict::Reached(at),
        }
    }
    match (settles, until) {
        (true, _) => ChargeVerdict::Wait(None),
        (false, Some(until)) => ChargeVerdict::Wait(Some(until)),
        (false, None) => ChargeVerdict::Start(amounts),
    }
}

/// How the end of an attempt concerns the estimate of the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It ran to its end.
    Ran,
    /// It failed, maybe before it could spend anything.
    Failed,
    /// It was interrupted: its cost is no estimate for others.
    Interrupted,
}

impl From<Ending> for Settlement {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Success => Self::Ran,
            Ending::Failed(_) => Self::Failed,
            Ending::NodeDied | Ending::HandedBack | Ending::Cancelled => Self::Interrupted,
        }
    }
}

impl Budget {
    /// The reason for a pause when it is reached.
    #[must_use]
    pub fn reason(&self, spending: &Spending) -> String {
        let expected = match spending.expected(self) {
            ExpectedCost::Known(cost) => format!("one task is expected to cost {cost}"),
            ExpectedCost::Unknown => "the cost of a task is not known".to_owned(),
        };
        match self.total {
            Some(total) if spending.passes(total, spending.spent, spending.expected(self)) => {
                format!("{BUDGET_REACHED}{total} is reached: {} spent, and {expected}", spending.spent)
            }
            Some(_) | None => {
                let per_day = self.per_day.unwrap_or_default();
                format!("{BUDGET_REACHED}{per_day} a day is too small: {expected}")
            }
        }
    }
}

impl Spending {
    /// What the next task is expected to cost: what others have cost, which a pilot has found out, or what was set before one has ended.
    #[must_use]
    pub fn expected(&self, budget: &Budget) -> ExpectedCost {
        self.median().or(budget.reserve).map_or(ExpectedCost::Unknown, ExpectedCost::Known)
    }

    fn median(&self) -> Option<Cost> {
        let mut costs = self.recent.clone();
        costs.sort_unstable();
        costs.get(costs.len() / 2).copied()
    }

    /// Whether one more task may start.
    #[must_use]
    pub fn ask(&self, budget: &Budget, now: Timestamp) -> BudgetVerdict {
        let expected = self.expected(budget);
        if expected == ExpectedCost::Unknown && self.in_flight > 0 {
            return BudgetVerdict::WaitForSettlement;
        }
        let blocked =
            if self.in_flight > 0 { BudgetVerdict::WaitForSettlement } else { BudgetVerdict::Reached };
        if budget.total.is_some_and(|total| self.passes(total, self.spent, expected)) {
            return blocked;
        }
        if let Some(per_day) = budget.per_day
            && self.passes(per_day, self.spent_on(day_of(now)), expected)
        {
            // What does not fit into an empty day never will.
            let fits_tomorrow = expected.amount() <= per_day;
            return if fits_tomorrow { BudgetVerdict::WaitUntil(end_of_day(now)) } else { blocked };
        }
        BudgetVerdict::Start(expected.amount())
    }

    /// Whether one more task would pass a limit. A task of unknown cost may use up what is left, but needs something left.
    fn passes(&self, limit: Cost, spent: Cost, expected: ExpectedCost) -> bool {
        match expected {
            ExpectedCost::Known(cost) => spent + self.reserved + cost > limit,
            ExpectedCost::Unknown => spent + self.reserved >= limit,
        }
    }

    fn spent_on(&self, day: i64) -> Cost {
        if self.day == day { self.spent_today } else { Cost::default() }
    }

    /// How much more than the whole budget is spent.
    #[must_use]
    pub fn excess(&self, budget: &Budget) -> Cost {
        budget.total.map_or_else(Cost::default, |total| self.spent.less(total))
    }

    /// An attempt starts with this reservation.
    pub fn reserve(&mut self, amount: Cost) -> CostReservation {
        self.reserved = self.reserved + amount;
        self.in_flight += 1;
        CostReservation { left: amount, spent: Cost::default() }
    }

    /// An attempt has spent this: first what is reserved for it, then more.
    pub fn spend(&mut self, of: &mut CostReservation, cost: Cost, now: Timestamp) {
        let day = day_of(now);
        self.spent_today = self.spent_on(day) + cost;
        self.day = day;
        self.spent = self.spent + cost;
        self.reserved = self.reserved.less(cost.min(of.left));
        of.left = of.left.less(cost);
        of.spent = of.spent + cost;
    }

    /// An attempt ended: what it did not spend of its reservation is free again.
    pub fn settle(&mut self, of: CostReservation, how: Settlement) {
        self.release(of);
        let counts = match how {
            Settlement::Ran => true,
            Settlement::Failed => of.spent > Cost::default(),
            Settlement::Interrupted => false,
        };
        if counts {
            self.recent.push(of.spent);
            let excess = self.recent.len().saturating_sub(RECENT_COSTS);
            self.recent.drain(..excess);
        }
    }

    /// Gives back a reservation.
    pub fn release(&mut self, of: CostReservation) {
        self.reserved = self.reserved.less(of.left);
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

const fn end_of_day(now: Timestamp) -> Timestamp {
    day_start(day_of(now) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_millis(DAY_MS * 20_000 + DAY_MS / 2);

    fn usd(amount: f64) -> Cost {
        Cost::from_usd(amount).expect("an amount")
    }

    fn total(amount: f64) -> Budget {
        Budget { total: Some(usd(amount)), ..Budget::default() }
    }

    /// Runs one task that costs this.
    fn run(spending: &mut Spending, budget: &Budget, cost: f64) {
        let BudgetVerdict::Start(amount) = spending.ask(budget, NOON) else { panic!("it may not start") };
        let mut held = spending.reserve(amount);
        spending.spend(&mut held, usd(cost), NOON);
        spending.settle(held, Settlement::Ran);
    }

    #[test]
    fn the_first_task_runs_alone_and_the_median_is_reserved_for_the_next_ones() {
        let (mut spending, budget) = (Spending::default(), total(1.0));
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::Start(Cost::default()));
        let mut first = spending.reserve(Cost::default());
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::WaitForSettlement);
        spending.spend(&mut first, usd(0.1), NOON);
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::WaitForSettlement);
        spending.settle(first, Settlement::Ran);
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::Start(usd(0.1)));
        run(&mut spending, &budget, 0.3);
        run(&mut spending, &budget, 0.2);
        assert_eq!(spending.expected(&budget), ExpectedCost::Known(usd(0.2)));
        let set = Budget { reserve: Some(usd(0.05)), ..budget };
        assert_eq!(spending.expected(&set), ExpectedCost::Known(usd(0.2)), "it is known better");
        assert_eq!(Spending::default().expected(&set), ExpectedCost::Known(usd(0.05)));
    }

    #[test]
    fn a_reached_budget_waits_for_what_is_in_flight_and_then_says_what_one_task_costs() {
        let (mut spending, budget) = (Spending::default(), total(0.3));
        run(&mut spending, &budget, 0.1);
        let mut held = spending.reserve(usd(0.2));
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::WaitForSettlement);
        spending.spend(&mut held, usd(0.05), NOON);
        assert_eq!((spending.spent, spending.reserved), (usd(0.15), usd(0.15)));
        spending.spend(&mut held, usd(0.2), NOON);
        assert_eq!((spending.spent, spending.reserved), (usd(0.35), usd(0.0)));
        spending.settle(held, Settlement::Interrupted);
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::Reached);
        assert_eq!(spending.excess(&budget), usd(0.05));
        let reason = "its budget of $0.30 is reached: $0.35 spent, and one task is expected to cost $0.10";
        assert_eq!(budget.reason(&spending), reason);
        assert_eq!(spending.ask(&total(0.45), NOON), BudgetVerdict::Start(usd(0.1)));
    }

    #[test]
    fn a_day_that_is_used_up_waits_for_the_next_and_too_small_a_day_never_comes() {
        let mut spending = Spending::default();
        let budget = Budget { per_day: Some(usd(0.25)), ..Budget::default() };
        run(&mut spending, &budget, 0.1);
        run(&mut spending, &budget, 0.1);
        let midnight = Timestamp::from_millis(DAY_MS * 20_001);
        assert_eq!(spending.ask(&budget, NOON), BudgetVerdict::WaitUntil(midnight));
        assert_eq!(spending.ask(&budget, midnight), BudgetVerdict::Start(usd(0.1)));
        let small = Budget { per_day: Some(usd(0.05)), ..Budget::default() };
        assert_eq!(spending.ask(&small, midnight), BudgetVerdict::Reached);
        let reason = "its budget of $0.05 a day is too small: one task is expected to cost $0.10";
        assert_eq!(small.reason(&spending), reason);
    }

    #[test]
    fn a_failure_that_cost_nothing_and_an_interrupted_attempt_are_no_sample() {
        let mut spending = Spending::default();
        for (cost, how) in [(0.0, Settlement::Failed), (0.5, Settlement::Interrupted)] {
            let mut held = spending.reserve(Cost::default());
            spending.spend(&mut held, usd(cost), NOON);
            spending.settle(held, how);
        }
        assert_eq!(spending.recent, []);
        let mut held = spending.reserve(Cost::default());
        spending.spend(&mut held, usd(0.5), NOON);
        spending.settle(held, Settlement::Failed);
        assert_eq!(spending.recent, [usd(0.5)]);
        assert_eq!((spending.in_flight, spending.reserved, spending.spent), (0, Cost::default(), usd(1.0)));
    }

    #[test]
    fn the_sample_is_bounded() {
        let (mut spending, budget) = (Spending::default(), total(1_000.0));
        (0..=RECENT_COSTS).for_each(|_| run(&mut spending, &budget, 0.01));
        assert_eq!(spending.recent.len(), RECENT_COSTS);
    }
}
