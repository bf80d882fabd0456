//! Claim gates of queues and limit keys: their settings, their records, and the bounds of both. The rules are
//! in `ostler_core::Gate`.

use std::time::Duration;

use ostler_core::{
    BreakerPolicy, BreakerState, Closed, Gate, GateRules, GateVerdict, Rate, Timestamp, Trip, Wait,
};

use crate::accounts::AccountRecord;
use crate::calls::QueueChange;
use crate::error::Error;
use crate::views::QueueSettings;

/// Windows of one rate limit.
pub const MAX_WINDOWS: usize = 4;
/// The largest amount or burst of a rate limit.
pub const MAX_AMOUNT: u64 = 1_000_000_000;
/// The longest window of a rate limit or a breaker, and the longest reset time of a breaker.
pub const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The maximum cost of one task.
pub const MAX_COST: u32 = 1_000_000;
/// Limit keys shown in a survey.
pub const MAX_KEYS_SHOWN: usize = 100;
/// Due limit keys that one claim settles; the next claim continues.
pub const MAX_DUE_KEYS: usize = 64;

/// The limits among the queue settings, by the names under which a node stores them with its session.
pub const LIMIT_SETTINGS: [&str; 11] = [
    "queue_limit",
    "concurrency.total",
    "concurrency.limit",
    "key",
    "cost",
    "rate",
    "key_rate",
    "breaker",
    "priority",
    "key_until",
    "budget",
];
/// The beginning of the reason with which a node pauses a queue whose workers fail to start.
pub const WORKERS_FAIL: &str = "its workers fail to start";

/// The maximum number of ready tasks that a claim scans: those that the gates of their keys refuse are parked on the way.
#[must_use]
pub const fn most_looked_at(limit: usize) -> usize {
    4 * limit + 64
}

/// The breaker settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerSetting {
    /// When it opens, and for how long.
    pub policy: BreakerPolicy,
    pub scope: BreakerScope,
}

/// The scope of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerScope {
    /// One breaker for the queue.
    Queue,
    /// One breaker per limit key. Tasks without a key have none.
    Key,
}

impl BreakerScope {
    pub const ALL: [Self; 2] = [Self::Queue, Self::Key];

    /// The name that users see and stores persist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Key => "key",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// Who last set the limits of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SetBy {
    /// A node, from its config; also the default.
    #[default]
    Config,
    /// A user, while nodes run. A node whose config has no limits leaves them alone.
    Hand,
}

impl SetBy {
    pub const ALL: [Self; 2] = [Self::Config, Self::Hand];

    /// The name that stores persist.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Hand => "hand",
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// A limit key whose tasks are throttled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    pub queue: String,
    pub key: String,
    /// Why its tasks wait, and until when.
    pub shut: Closed,
    /// An attempt reported "too many requests": nothing starts before this time.
    pub held_until: Option<Timestamp>,
    /// The state of its breaker; `None`: it has none.
    pub breaker: Option<BreakerState>,
}

impl QueueSettings {
    /// The rules of the queue's gate.
    #[must_use]
    pub fn queue_rules(&self) -> GateRules {
        GateRules { rates: self.rate.clone(), breaker: self.breaker_of(BreakerScope::Queue) }
    }

    /// The rules of the gate of each limit key.
    #[must_use]
    pub fn key_rules(&self) -> GateRules {
        GateRules { rates: self.key_rate.clone(), breaker: self.breaker_of(BreakerScope::Key) }
    }

    /// Whether the queue's gate has rules.
    #[must_use]
    pub fn has_queue_rules(&self) -> bool {
        !self.rate.is_empty() || self.breaker_of(BreakerScope::Queue).is_some()
    }

    /// Whether the gates of its limit keys have rules.
    #[must_use]
    pub fn has_key_rules(&self) -> bool {
        !self.key_rate.is_empty() || self.breaker_of(BreakerScope::Key).is_some()
    }

    /// The queue of the pool that serves it, if that is another one. The limits of that queue as a whole (its gate, and how many of
    /// its tasks may be leased) hold for the tasks of both together.
    #[must_use]
    pub fn serving_queue(&self, own: &str) -> Option<&str> {
        self.pool.as_deref().filter(|pool| *pool != own)
    }

    /// Whether its gate, its account or the queue of its pool hears of every success.
    #[must_use]
    pub const fn counts_ends(&self) -> bool {
        self.breaker.is_some() || self.concurrency.is_some() || self.account.is_some() || self.pool.is_some()
    }

    /// How many more of its tasks may be leased, given the number of leased ones; `None`: no limit.
    #[must_use]
    pub fn free_places(&self, leased: u64) -> Option<u64> {
        self.concurrency.map(|cap| u64::from(cap).saturating_sub(leased))
    }

    /// Why no task of the queue may start now, given its gate and the number of leased tasks.
    #[must_use]
    pub fn shut(&self, gate: &Gate, leased: u64, now: Timestamp) -> Option<Closed> {
        match gate.clone().ask(&self.queue_rules(), 1, now) {
            GateVerdict::Wait(shut) => Some(shut),
            GateVerdict::Go | GateVerdict::Probe => {
                let full = self.free_places(leased) == Some(0);
                full.then_some(Closed { why: Wait::Concurrency, until: None })
            }
        }
    }

    /// Why its account is closed, if it is.
    #[must_use]
    pub fn closed_account(&self, accounts: &[AccountRecord], now: Timestamp) -> Option<Closed> {
        let name = self.account.as_ref()?;
        accounts.iter().find(|account| account.name == *name)?.closed(now)
    }

    /// How many of `limit` tasks a claim may take at most, given the queue's gate and the number of leased tasks. A pause is not
    /// looked at.
    #[must_use]
    pub fn places_for(&self, limit: usize, gate: &Gate, leased: u64, now: Timestamp) -> usize {
        if self.shut(gate, leased, now).is_some() {
            return 0;
        }
        let free = self.free_places(leased).unwrap_or(u64::MAX);
        usize::try_from(free).unwrap_or(usize::MAX).min(limit)
    }

    fn breaker_of(&self, scope: BreakerScope) -> Option<BreakerPolicy> {
        self.breaker.filter(|breaker| breaker.scope == scope).map(|breaker| breaker.policy)
    }
}

impl QueueChange {
    /// Whether it may open the gate of the queue.
    #[must_use]
    pub const fn moves_gates(&self) -> bool {
        match self {
            Self::Concurrency(_)
            | Self::Rate(_)
            | Self::Breaker(_)
            | Self::Account(_)
            | Self::OpenBreaker(_)
            | Self::ResetBreaker
            | Self::Budget(_)
            | Self::ServedBy(_)
            | Self::EndHold => true,
            Self::Pause(_)
            | Self::Resume
            | Self::Limit(_)
            | Self::KeyConcurrency(_)
            | Self::KeyPath(_)
            | Self::CostPath(_)
            | Self::KeyHold(_)
            | Self::Priority(_)
            | Self::Overrides(_)
            | Self::KindOverrides(..)
            | Self::Subscribe(_)
            | Self::AlsoSubscribe(_)
            | Self::Unsubscribe(_)
            | Self::KeyRate(_)
            | Self::OpenKeyBreaker { .. }
            | Self::ResetKeyBreaker(_)
            | Self::EndKeyHold(_)
            | Self::SetBy(_) => false,
        }
    }
}

/// Rejects impossible rates.
pub(crate) fn check_rates(rates: &[Rate]) -> Result<(), Error> {
    if rates.len() > MAX_WINDOWS {
        let sentence = format!("rate: {} windows, and at most {MAX_WINDOWS} are taken", rates.len());
        return Err(Error::invalid(sentence));
    }
    for rate in rates {
        if rate.amount == 0 {
            return Err(Error::invalid("rate must be at least 1; to run nothing, pause the queue"));
        }
        if rate.amount > MAX_AMOUNT {
            return Err(Error::invalid(format!(
                "rate is {}, and at most {MAX_AMOUNT} are taken",
                rate.amount
            )));
        }
        if !(1..=MAX_AMOUNT).contains(&rate.burst) {
            let sentence = format!("burst is {}, but must be from 1 to {MAX_AMOUNT}", rate.burst);
            return Err(Error::invalid(sentence));
        }
        window("the window of a rate", rate.per)?;
    }
    Ok(())
}

/// Rejects a breaker that would never open, or never close.
pub(crate) fn check_breaker(breaker: &BreakerSetting) -> Result<(), Error> {
    window("the reset time of a breaker", breaker.policy.reset)?;
    match breaker.policy.trip {
        Trip::Consecutive(0) => Err(Error::invalid("a breaker opens after at least 1 failure")),
        Trip::Consecutive(_) => Ok(()),
        Trip::Rate { failures_percent, at_least, window: span } => {
            if !(1..=100).contains(&failures_percent) {
                return Err(Error::invalid("the failures of a breaker must be from 1 to 100 percent"));
            }
            if at_least == 0 {
                return Err(Error::invalid("a breaker looks at at_least 1 end before it opens"));
            }
            window("the window of a breaker", span)
        }
    }
}

fn window(what: &str, span: Duration) -> Result<(), Error> {
    let whole = span.subsec_nanos().is_multiple_of(1_000_000);
    if !whole || span.is_zero() || span > MAX_WINDOW {
        return Err(Error::invalid(format!("{what} must be whole milliseconds, from 1 ms to 366 days")));
    }
    Ok(())
}

/// Rejects a cost out of range.
pub(crate) fn check_cost(cost: u32) -> Result<(), Error> {
    if cost == 0 || cost > MAX_COST {
        return Err(Error::invalid(format!("cost is {cost}, but must be from 1 to {MAX_COST}")));
    }
    Ok(())
}
