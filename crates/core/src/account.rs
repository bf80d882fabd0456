//! Accounts: the third sort of limit, beside queue and limit key. Queues that use one account of a provider share its usage limit,
//! its concurrency and its hold.
//!
//! A usage limit closes the account until it resets. Throttling ("too many requests" while there is allowance left) lowers a window
//! of leased tasks by half, once for all attempts that were in flight, and successes widen it again, until it is as wide as the cap.
//! A provider that says with its answers how many more requests it lets through sets the window itself.
//! A store persists an [`Account`] by its name, asks it in the transaction that claims, and reports the ends of attempts to it.

use std::time::Duration;

use crate::decide::Effect;
use crate::gate::Closed;
use crate::state::Wait;
use crate::time::Timestamp;

/// The longest hold that a reported usage limit causes: no limit lasts longer than a week, and a report that names a later reset is wrong.
pub const MAX_ACCOUNT_HOLD: Duration = Duration::from_secs(8 * 24 * 3_600);
/// The hold after a usage limit whose reset is not known.
pub const UNKNOWN_RESET: Duration = Duration::from_secs(15 * 60);
/// The widest window of an account without a cap; beyond it the window is forgotten.
pub const MAX_ACCOUNT_WINDOW: u32 = 256;
/// The share of its allowance, in thousandths, from which an account is close to its usage limit.
pub const NEAR_LIMIT_PERMILLE: u32 = 900;

/// Thousandths of a place in a window.
const PLACE: u64 = 1_000;

/// An account. All fields are public, so that a store can persist and restore it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub hold: Option<AccountHold>,
    /// The maximum number of leased tasks, over all queues and nodes, as a user set it.
    pub cap: Option<u32>,
    pub window: Option<AccountWindow>,
    /// What an attempt last reported about the allowance.
    pub reading: Option<AccountReading>,
}

/// Nothing of the account starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountHold {
    /// `None`: until a user releases it.
    pub until: Option<Timestamp>,
    /// One sentence for users.
    pub why: String,
}

/// How many tasks may be leased since the provider last throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountWindow {
    /// In thousandths of a task.
    pub milli: u64,
    /// When it was last lowered, or set by the provider. An attempt that began before neither lowers nor widens it.
    pub lowered_at: Timestamp,
}

/// How much of its allowance an account has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountReading {
    /// The provider's name of the allowance, such as `five_hour`.
    pub window: String,
    /// The share that is used, in thousandths.
    pub utilization_permille: u32,
    pub resets_at: Option<Timestamp>,
}

/// What an account needs to know of an attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct AccountEnd<'a> {
    pub effect: Effect,
    /// When the attempt began; `None`: it never ran.
    pub began: Option<Timestamp>,
    /// The message of its failure.
    pub why: Option<&'a str>,
    pub reading: Option<&'a AccountReading>,
}

/// A change of an account: by a user, by the config of a node, or by what a provider says with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountChange {
    /// Nothing starts before this time, or before a release. The later of two holds counts.
    Hold { until: Option<Timestamp>, why: String },
    /// Ends the hold.
    Release,
    /// The maximum number of leased tasks, over all queues and nodes; `None`: no limit.
    Cap(Option<u32>),
    /// The provider lets this many more requests through for now. The window follows: down at once, up by doubling.
    Allowance(u32),
}

impl Account {
    /// Why no task of the account may start now, given the number of its leased tasks; `None`: at least one may.
    #[must_use]
    pub fn closed(&self, leased: u64, now: Timestamp) -> Option<Closed> {
        if let Some(hold) = self.held(now) {
            return Some(Closed { why: Wait::UsageLimit, until: hold.until });
        }
        (self.places(leased) == Some(0)).then_some(Closed { why: Wait::Concurrency, until: None })
    }

    /// The hold, unless it is over.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<&AccountHold> {
        self.hold.as_ref().filter(|hold| hold.until.is_none_or(|until| now < until))
    }

    /// The most tasks that may be leased at once, whatever the hold; `None`: no limit.
    #[must_use]
    pub fn most(&self) -> Option<u32> {
        let window =
            self.window.map(|window| u32::try_from((window.milli / PLACE).max(1)).unwrap_or(u32::MAX));
        [self.cap, window].into_iter().flatten().min()
    }

    /// How many more tasks may be leased, given the number of leased ones, whatever the hold; `None`: no limit.
    #[must_use]
    pub fn places(&self, leased: u64) -> Option<u64> {
        self.most().map(|most| u64::from(most).saturating_sub(leased))
    }

    /// Records the end of an attempt. `in_flight` tasks of the account were leased, its own included.
    pub fn ended(&mut self, end: &AccountEnd<'_>, in_flight: u64, now: Timestamp) {
        match end.effect {
            Effect::HoldAccount(until) => {
                self.hold(Some(until), end.why.unwrap_or("usage limit reached"), now);
            }
            Effect::HoldUntil(_) => self.lower(end.began, in_flight, now),
            Effect::BreakerSuccess => self.raise(end.began, in_flight),
            Effect::None | Effect::BreakerFailure | Effect::PauseQueue | Effect::PauseForBudget => {}
        }
        if let Some(reading) = end.reading {
            self.reading = Some(reading.clone());
        }
        self.forget_over(now);
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &AccountChange, now: Timestamp) {
        match change {
            AccountChange::Hold { until, why } => self.hold(*until, why, now),
            AccountChange::Release => self.hold = None,
            AccountChange::Cap(cap) => self.cap = *cap,
            AccountChange::Allowance(requests) => self.allow(*requests, now),
        }
        self.forget_over(now);
    }

    /// The same account, without a hold or a reading that is over.
    #[must_use]
    pub fn as_of(mut self, now: Timestamp) -> Self {
        self.forget_over(now);
        self
    }

    /// The reading, if it shows that the usage limit is near.
    #[must_use]
    pub fn near_limit(&self, now: Timestamp) -> Option<&AccountReading> {
        let reading = self.reading.as_ref()?;
        let current = reading.resets_at.is_none_or(|reset| now < reset);
        (current && reading.utilization_permille >= NEAR_LIMIT_PERMILLE).then_some(reading)
    }

    fn hold(&mut self, until: Option<Timestamp>, why: &str, now: Timestamp) {
        let is_longer = match self.held(now) {
            None => true,
            Some(AccountHold { until: None, .. }) => false,
            Some(AccountHold { until: Some(before), .. }) => until.is_none_or(|until| until > *before),
        };
        if is_longer {
            self.hold = Some(AccountHold { until, why: why.to_owned() });
        }
    }

    /// Halves what was in flight, unless the attempt began before the window was last lowered: one burst of refusals counts once.
    fn lower(&mut self, began: Option<Timestamp>, in_flight: u64, now: Timestamp) {
        let counted = match (self.window, began) {
            (Some(window), Some(began)) => began < window.lowered_at,
            (Some(_), None) => true,
            (None, Some(_) | None) => false,
        };
        if counted {
            return;
        }
        let half = (in_flight * PLACE / 2).max(PLACE);
        let milli = self.window.map_or(half, |window| window.milli.min(half));
        self.window = Some(AccountWindow { milli, lowered_at: now });
    }

    /// Widens the window by one place for each window of successes, while at least half of it is in use. A success of an attempt that
    /// began before the window was set says nothing about it.
    fn raise(&mut self, began: Option<Timestamp>, in_flight: u64) {
        let Some(window) = &mut self.window else { return };
        let is_old = began.is_some_and(|began| began < window.lowered_at);
        if is_old || in_flight * PLACE * 2 < window.milli {
            return;
        }
        window.milli += PLACE * PLACE / window.milli.max(PLACE);
        self.forget_wide_window();
    }

    /// Sets the window to what the provider allows, and at least to one place, so that its next answer is seen.
    fn allow(&mut self, requests: u32, now: Timestamp) {
        let allowed = u64::from(requests.clamp(1, MAX_ACCOUNT_WINDOW)) * PLACE;
        let milli = self.window.map_or(allowed, |window| allowed.min(window.milli * 2));
        self.window = Some(AccountWindow { milli, lowered_at: now });
        self.forget_wide_window();
    }

    fn forget_wide_window(&mut self) {
        let most = u64::from(self.cap.unwrap_or(MAX_ACCOUNT_WINDOW)) * PLACE;
        self.window = self.window.filter(|window| window.milli < most);
    }

    fn forget_over(&mut self, now: Timestamp) {
        if self.held(now).is_none() {
            self.hold = None;
        }
        self.reading =
            self.reading.take().filter(|reading| reading.resets_at.is_none_or(|reset| now < reset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    const fn end(effect: Effect, began: i64) -> AccountEnd<'static> {
        AccountEnd { effect, began: Some(at(began)), why: None, reading: None }
    }

    fn throttled(account: &mut Account, began: i64, in_flight: u64, now: i64) {
        account.ended(&end(Effect::HoldUntil(at(now)), began), in_flight, at(now));
    }

    #[test]
    fn an_account_without_limits_has_as_many_places_as_are_wanted() {
        assert_eq!(Account::default().closed(1_000, at(0)), None);
        assert_eq!(Account::default().places(1_000), None);
    }

    #[test]
    fn a_usage_limit_closes_the_account_until_it_resets() {
        let mut account = Account::default();
        account.ended(&end(Effect::HoldAccount(at(60)), 0), 4, at(1));
        assert_eq!(account.closed(0, at(59)), Some(Closed { why: Wait::UsageLimit, until: Some(at(60)) }));
        assert_eq!(account.closed(0, at(60)), None);
        assert_eq!(account.as_of(at(60)), Account::default());
    }

    #[test]
    fn the_later_of_two_holds_counts_and_a_release_ends_it() {
        let mut account = Account::default();
        let hold =
            |until: Option<i64>| AccountChange::Hold { until: until.map(at), why: "by hand".to_owned() };
        account.apply(&hold(Some(60)), at(0));
        account.apply(&hold(Some(30)), at(0));
        assert_eq!(account.held(at(0)).and_then(|hold| hold.until), Some(at(60)));
        account.apply(&hold(None), at(0));
        account.apply(&hold(Some(90)), at(0));
        assert_eq!(account.held(at(1_000)).map(|hold| hold.until), Some(None));
        account.apply(&AccountChange::Release, at(1_000));
        assert_eq!(account, Account::default());
    }

    #[test]
    fn a_burst_of_refusals_halves_the_window_once() {
        let mut account = Account::default();
        for left in 0..8 {
            throttled(&mut account, 0, 8 - left, 10);
        }
        assert_eq!(account.most(), Some(4));
        throttled(&mut account, 11, 4, 12);
        assert_eq!(account.most(), Some(2));
        throttled(&mut account, 13, 1, 14);
        throttled(&mut account, 15, 1, 16);
        assert_eq!(account.most(), Some(1));
        assert_eq!(account.closed(1, at(16)), Some(Closed { why: Wait::Concurrency, until: None }));
    }

    #[test]
    fn successes_widen_the_window_by_one_place_a_round_until_the_cap() {
        let mut account = Account { cap: Some(4), ..Account::default() };
        throttled(&mut account, 0, 4, 10);
        assert_eq!(account.most(), Some(2));
        let success = end(Effect::BreakerSuccess, 11);
        account.ended(&success, 2, at(12));
        assert_eq!(account.most(), Some(2));
        account.ended(&success, 2, at(12));
        account.ended(&success, 2, at(12));
        assert_eq!(account.most(), Some(3));
        for _ in 0..4 {
            account.ended(&success, 3, at(13));
        }
        assert_eq!((account.window, account.most()), (None, Some(4)));
    }

    #[test]
    fn the_window_is_what_the_provider_allows_at_once_and_doubles_on_its_way_up() {
        let mut account = Account::default();
        let allow = |account: &mut Account, requests, now| {
            account.apply(&AccountChange::Allowance(requests), at(now));
            account.most()
        };
        assert_eq!(allow(&mut account, 4_000, 1), None, "no window is needed");
        assert_eq!(allow(&mut account, 5, 2), Some(5));
        // Attempts that began before say nothing about the window.
        for _ in 0..20 {
            account.ended(&end(Effect::BreakerSuccess, 1), 5, at(3));
        }
        assert_eq!(account.most(), Some(5));
        assert_eq!(allow(&mut account, 0, 4), Some(1), "one asks whether there is more");
        assert_eq!(allow(&mut account, 7, 5), Some(2));
        assert_eq!(allow(&mut account, 7, 6), Some(4));
        assert_eq!(allow(&mut account, 7, 7), Some(7));
        for now in 8..13 {
            allow(&mut account, 4_000, now);
        }
        assert_eq!(account.most(), Some(224));
        assert_eq!(allow(&mut account, 4_000, 13), None);
        assert_eq!(account, Account::default());
    }

    #[test]
    fn a_window_that_is_not_in_use_does_not_widen() {
        let mut account = Account::default();
        throttled(&mut account, 0, 20, 10);
        for _ in 0..100 {
            account.ended(&end(Effect::BreakerSuccess, 11), 1, at(12));
        }
        assert_eq!(account.most(), Some(10));
    }

    #[test]
    fn a_reading_warns_until_the_allowance_resets() {
        let mut account = Account::default();
        let reading = |permille| AccountReading {
            window: "five_hour".to_owned(),
            utilization_permille: permille,
            resets_at: Some(at(100)),
        };
        for (permille, near) in [(420, false), (900, true)] {
            let reading = reading(permille);
            account.ended(
                &AccountEnd { reading: Some(&reading), ..end(Effect::BreakerSuccess, 0) },
                1,
                at(1),
            );
            assert_eq!(account.near_limit(at(1)).is_some(), near);
        }
        assert_eq!(account.near_limit(at(100)), None);
        assert_eq!(account.as_of(at(100)), Account::default());
    }
}
