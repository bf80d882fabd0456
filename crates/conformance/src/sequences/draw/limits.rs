//! Limits of a random sequence: rates, breakers, budgets; and questions about costs.

use std::time::Duration;

use ostler_core::{BreakerPolicy, Budget, Cost, Rate, Trip};
use ostler_store::calls::QueueChange;
use ostler_store::costs::CostBy;
use ostler_store::gates::{BreakerScope, BreakerSetting};

use super::{DAY_MS, Drawer};
use crate::sequences::op::{Op, QUEUES};

impl Drawer {
    /// A budget that is soon reached.
    pub(super) fn budget(&mut self) -> QueueChange {
        QueueChange::Budget(self.maybe(80, |d| {
            let cost = |d: &mut Self, most: u64| Cost::from_nanos(d.chance.below(most) + 1);
            let total = d.maybe(70, |d| cost(d, 200));
            let per_day = if total.is_none() { Some(cost(d, 100)) } else { d.maybe(30, |d| cost(d, 100)) };
            Budget { total, per_day, reserve: d.maybe(40, |d| cost(d, 20)) }
        }))
    }

    pub(super) fn costs(&mut self) -> Op {
        let all = [
            CostBy::Task,
            CostBy::Attempt,
            CostBy::Queue,
            CostBy::Pool,
            CostBy::Account,
            CostBy::Model,
            CostBy::Day,
        ];
        Op::Costs {
            by: all[self.below(all.len())],
            queue: self.maybe(30, Self::queue),
            since_ms: self.maybe(30, |d| d.span(3 * DAY_MS)),
            until_ms: self.maybe(30, |d| d.span(3 * DAY_MS)),
        }
    }

    pub(super) fn served_by(&mut self) -> QueueChange {
        QueueChange::ServedBy(self.maybe(70, |d| QUEUES[d.queue()].to_owned()))
    }

    /// A rate that is low enough to be used up.
    pub(super) fn rate(&mut self) -> QueueChange {
        let windows = if self.chance.chance(15) { 0 } else { self.below(2) + 1 };
        let rates = (0..windows).map(|_| Rate {
            amount: self.below(4) as u64 + 1,
            per: Duration::from_millis(self.span(20_000)),
            burst: self.below(5) as u64 + 1,
        });
        let rates = rates.collect();
        if self.chance.chance(50) { QueueChange::Rate(rates) } else { QueueChange::KeyRate(rates) }
    }

    /// A breaker that opens quickly.
    pub(super) fn breaker(&mut self) -> BreakerSetting {
        let trip = if self.chance.chance(60) {
            Trip::Consecutive(self.below(2) as u32 + 1)
        } else {
            let window = Duration::from_millis(self.span(20_000));
            let at_least = self.below(3) as u32 + 1;
            Trip::Rate { failures_percent: 50, at_least, window }
        };
        let policy = BreakerPolicy { trip, reset: Duration::from_millis(self.span(10_000)) };
        let scope = BreakerScope::ALL[self.below(2)];
        BreakerSetting { policy, scope }
    }
}
