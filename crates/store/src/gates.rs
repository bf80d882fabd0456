//! The gates of queues and of limit keys: what is set for them, what is shown of them, and the bounds of both. The rules are
//! in `ostler_core::Gate`.

use std::time::Duration;

use ostler_core::{
    BreakerPolicy, BreakerState, Closed, Gate, GateRules, GateVerdict, Rate, Timestamp, Trip, Wait,
};

use crate::calls::QueueChange;
use crate::error::Error;
use crate::views::QueueSettings;

/// Windows of one rate.
pub const MAX_WINDOWS: usize = 4;
/// The largest amount or burst of a rate.
pub const MAX_AMOUNT: u64 = 1_000_000_000;
/// The longest window of a rate or a breaker, and the longest time that a breaker stays open by itself.
pub const MAX_WINDOW: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// What one task may cost.
pub const MAX_COST: u32 = 1_000_000;
/// Keys that a survey shows.
pub const MAX_KEYS_SHOWN: usize = 100;
/// Keys whose time has come that one claim lets in; the next claim goes on.
pub const MAX_DUE_KEYS: usize = 64;

/// How many ready tasks a claim looks at, at most: those that the gates of their keys refuse are parked on the way.
#[must_use]
pub const fn most_looked_at(limit: usize) -> usize {
    4 * limit + 64
}

/// A breaker, as it is set for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BreakerSetting {
    /// When it opens, and for how long.
    pub policy: BreakerPolicy,
    /// What it is about.
    pub scope: BreakerScope,
}

/// What a breaker is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerScope {
    /// The queue has one.
    Queue,
    /// Each limit key has one of its own. Tasks without a key have none.
    Key,
}

impl BreakerScope {
    /// Every scope.
    pub const ALL: [Self; 2] = [Self::Queue, Self::Key];

    /// The word that users see and stores keep.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Key => "key",
        }
    }

    /// The scope with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

/// Who set the limits of a queue last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SetBy {
    /// A node, from its config; or nobody yet.
    #[default]
    Config,
    /// A person, while nodes run. A node whose config says nothing about limits leaves them alone.
    Hand,
}

impl SetBy {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Config, Self::Hand];

    /// The word that stores keep.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Hand => "hand",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// A limit key whose tasks are held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its queue.
    pub queue: String,
    /// The key.
    pub key: String,
    /// Why its tasks wait, and until when.
    pub shut: Closed,
    /// Somebody said "too many requests": nothing of it begins before this moment.
    pub held_until: Option<Timestamp>,
    /// Where its breaker stands; `None`: it has none.
    pub breaker: Option<BreakerState>,
}

impl QueueSettings {
    /// What holds for the gate of the queue.
    #[must_use]
    pub fn queue_rules(&self) -> GateRules {
        GateRules { rates: self.rate.clone(), breaker: self.breaker_of(BreakerScope::Queue) }
    }

    /// What holds for the gate of each of its keys.
    #[must_use]
    pub fn key_rules(&self) -> GateRules {
        GateRules { rates: self.key_rate.clone(), breaker: self.breaker_of(BreakerScope::Key) }
    }

    /// How many more of its tasks may be leased, where so many are; `None`: any number.
    #[must_use]
    pub fn free_places(&self, leased: u64) -> Option<u64> {
        self.concurrency.map(|cap| u64::from(cap).saturating_sub(leased))
    }

    /// Why nothing of the queue may begin now, where its gate stands like this and so many of its tasks are leased.
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

    /// How many of `limit` a claim may take at most, where the queue's gate stands like this and so many of its tasks are leased.
    #[must_use]
    pub fn places_for(&self, limit: usize, gate: &Gate, leased: u64, now: Timestamp) -> usize {
        if self.paused.is_some() || self.shut(gate, leased, now).is_some() {
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
            | Self::OpenBreaker(_)
            | Self::ResetBreaker
            | Self::EndHold => true,
            Self::Pause(_)
            | Self::Resume
            | Self::Limit(_)
            | Self::KeyConcurrency(_)
            | Self::KeyPath(_)
            | Self::CostPath(_)
            | Self::Overrides(_)
            | Self::KindOverrides(..)
            | Self::Outbox(_)
            | Self::AlsoOutbox(_)
            | Self::KeyRate(_)
            | Self::OpenKeyBreaker { .. }
            | Self::ResetKeyBreaker(_)
            | Self::EndKeyHold(_)
            | Self::SetBy(_) => false,
        }
    }
}

/// Refuses rates that nothing can keep.
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
            let sentence = format!("burst is {}, and must be from 1 to {MAX_AMOUNT}", rate.burst);
            return Err(Error::invalid(sentence));
        }
        window("the window of a rate", rate.per)?;
    }
    Ok(())
}

/// Refuses a breaker that would never open, or never close.
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

/// Refuses what no task may cost.
pub(crate) fn check_cost(cost: u32) -> Result<(), Error> {
    if cost == 0 || cost > MAX_COST {
        return Err(Error::invalid(format!("cost is {cost}, and must be from 1 to {MAX_COST}")));
    }
    Ok(())
}
