//! Draws budgets, and questions about costs.

use ostler_core::{Budget, Cost};
use ostler_store::calls::QueueChange;
use ostler_store::costs::CostBy;

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
}
