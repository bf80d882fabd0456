//! Draws settings of queues, and changes of gates, breakers and accounts.

use std::time::Duration;

use ostler_core::{BreakerPolicy, EndKind, ErrorClass, Overrides, Rate, Timestamp, Trip};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::outbox::{OutboxFilter, Subscription};

use super::super::op::{ACCOUNTS, AccountDraft, End, How, LIMIT_KEYS, Op, SUBSCRIBERS};
use super::Drawer;

impl Drawer {
    pub(super) fn subscription(&mut self, wants: OutboxFilter) -> Subscription {
        Subscription { name: SUBSCRIBERS[self.below(SUBSCRIBERS.len())].to_owned(), wants }
    }

    pub(super) fn tell(&mut self) -> OutboxFilter {
        EndKind::ALL.into_iter().filter(|_| self.chance.chance(50)).collect()
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

    pub(super) fn by_hand(&mut self) -> QueueChange {
        let key = LIMIT_KEYS[self.below(LIMIT_KEYS.len())].to_owned();
        let until = self.maybe(50, |_| Timestamp::ZERO);
        match self.below(6) {
            0 => QueueChange::OpenBreaker(until),
            1 => QueueChange::OpenKeyBreaker { key, until },
            2 => QueueChange::ResetBreaker,
            3 => QueueChange::ResetKeyBreaker(key),
            4 => QueueChange::EndHold,
            _ => QueueChange::EndKeyHold(key),
        }
    }

    /// Opens a breaker whose reset time has already passed: the next claimed task is the probe.
    pub(super) fn ask_for_a_probe(&mut self) -> Op {
        let breaker = self.breaker();
        let key = LIMIT_KEYS[self.below(LIMIT_KEYS.len())].to_owned();
        let until = Some(Timestamp::ZERO);
        let open = match breaker.scope {
            BreakerScope::Queue => QueueChange::OpenBreaker(until),
            BreakerScope::Key => QueueChange::OpenKeyBreaker { key, until },
        };
        Op::Configure { queue: self.queue(), changes: vec![QueueChange::Breaker(Some(breaker)), open] }
    }

    pub(super) fn overrides(&mut self) -> Overrides {
        let attempts = self.maybe(60, |d| d.below(4) as u32);
        let max_node_deaths = self.maybe(50, |d| d.below(3) as u32);
        Overrides { attempts, max_node_deaths, ..Overrides::NONE }
    }

    pub(super) fn change_an_account(&mut self) -> Op {
        let change = match self.below(6) {
            0 => AccountDraft::Hold { for_ms: self.maybe(80, |d| d.span(20_000)) },
            1 | 2 => AccountDraft::Release,
            3 => AccountDraft::Allowance(self.below(8) as u32),
            _ => AccountDraft::Cap(self.maybe(80, |d| d.below(5) as u32)),
        };
        Op::ChangeAccount { name: self.below(ACCOUNTS.len()), change }
    }

    /// The reset is near, so that much can happen after it.
    pub(super) fn reach_a_usage_limit(&mut self) -> Op {
        let end = self.end(How::Failed(ErrorClass::UsageLimit));
        Op::Finish(vec![(self.one(), End { retry_after_ms: Some(self.span(20_000)), ..end })])
    }
}
