//! Token buckets and rate limits, and the concurrency limit of a key.
//!
//! [`admit`] bounds how many tasks of one limit key are ready or leased together; a store asks it whenever a
//! task becomes due. A [`Bucket`] bounds how much work starts per unit of time: the caller takes tokens before it starts work,
//! or learns when to try again.

use std::time::Duration;

use crate::time::{Timestamp, millis};

/// Whether one more task of a limit key may be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// A claim may take it.
    Admit,
    /// The task waits until another task of its key finishes.
    Park,
}

/// Returns whether one more task of a key may be ready, when `used` tasks of the key are already ready or leased.
/// A `cap` of `None` means no limit.
#[must_use]
pub const fn admit(cap: Option<u32>, used: u32) -> Admission {
    match cap {
        Some(cap) if used >= cap => Admission::Park,
        Some(_) | None => Admission::Admit,
    }
}

/// A rate limit: `amount` per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens per period. Zero stops everything.
    pub amount: u64,
    /// The period: whole milliseconds, at least one.
    pub per: Duration,
    /// The capacity: the most that may start at once after an idle period; at least one.
    pub burst: u64,
}

impl Rate {
    /// `amount` per `per`, spread evenly: the burst is a tenth of it.
    #[must_use]
    pub fn even(amount: u64, per: Duration) -> Self {
        Self { amount, per, burst: amount.div_ceil(10).max(1) }
    }

    fn per_ms(self) -> i128 {
        i128::from(millis(self.per).max(1))
    }

    /// The weight of this many tokens in a window of this rate. See [`Window::level`].
    fn weight(self, amount: u64) -> i128 {
        i128::from(amount).saturating_mul(self.per_ms())
    }

    fn is_above(self, other: Self) -> bool {
        other.weight(self.amount) > self.weight(other.amount)
    }

    fn full(self) -> i128 {
        // An amount of zero stops everything, whatever the burst.
        if self.amount == 0 { 0 } else { self.weight(self.burst.max(1)) }
    }
}

/// The result of taking from a [`Bucket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Taken {
    Granted,
    /// Nothing was taken. It will be granted at this time if no other caller takes from the bucket.
    WaitUntil(Timestamp),
}

/// A token bucket with one or several windows, for example 10 a second and 100 a minute. Tokens are
/// taken from all of them or from none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    windows: Vec<Window>,
    /// The latest time seen. A clock that steps back does not move it, so that no period is refilled
    /// twice.
    seen: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    rate: Rate,
    /// The remaining level, in units of which one token weighs `per` and one millisecond adds `amount`: both are
    /// integers, so nothing is ever rounded and nothing drifts. A negative level is a debt.
    level: i128,
    /// What a change of the rate made available before its time, in the same units. It counts as used until it is refilled, too.
    ahead: i128,
}

impl Bucket {
    /// A bucket with all windows full.
    #[must_use]
    pub fn full(rates: &[Rate], now: Timestamp) -> Self {
        Self { windows: rates.iter().map(|rate| Window::full(*rate)).collect(), seen: now }
    }

    /// Restores a bucket as a store persisted it: see [`kept`](Self::kept). Rates that have changed since start with the remaining level,
    /// and no window exceeds its capacity.
    #[must_use]
    pub fn restored(rates: &[Rate], seen: Timestamp, levels: &[i128], ahead: &[i128]) -> Self {
        let window = |(place, rate): (usize, &Rate)| {
            let level = levels.get(place).copied().unwrap_or_else(|| rate.full());
            let ahead = ahead.get(place).copied().unwrap_or_default().max(0);
            Window { rate: *rate, level: level.min(rate.full()), ahead }
        };
        Self { windows: rates.iter().enumerate().map(window).collect(), seen }
    }

    /// The same bucket under other rates. What was used counts as used of them: each window takes over from the old one of the same length,
    /// or else from the one of which most was used. A lower rate waits for it, for a whole window at most. A higher one does not: what its
    /// amount has left may start at once, up to its burst.
    #[must_use]
    pub fn with_rates(mut self, rates: &[Rate], now: Timestamp) -> Self {
        if self.windows.iter().map(|window| window.rate).eq(rates.iter().copied()) {
            return self;
        }
        self.refill(now);
        Self { windows: rates.iter().map(|rate| self.under(*rate)).collect(), seen: self.seen }
    }

    fn under(&self, rate: Rate) -> Window {
        let as_long = self.windows.iter().find(|window| window.rate.per == rate.per);
        let old = as_long.or_else(|| self.windows.iter().max_by_key(|window| window.used(rate)));
        old.map_or_else(|| Window::full(rate), |old| old.under(rate))
    }

    pub fn rates(&self) -> impl Iterator<Item = Rate> {
        self.windows.iter().map(|window| window.rate)
    }

    /// Whether all windows are full at this time.
    #[must_use]
    pub fn is_full(&self, now: Timestamp) -> bool {
        let mut then = self.clone();
        then.refill(now);
        then.windows.iter().all(|window| window.used(window.rate) == 0)
    }

    /// The time the bucket was last used, and of each window its level and what is available ahead of its time, for a store to persist.
    #[must_use]
    pub fn kept(&self) -> (Timestamp, Vec<i128>, Vec<i128>) {
        let (levels, ahead) = self.windows.iter().map(|window| (window.level, window.ahead)).unzip();
        (self.seen, levels, ahead)
    }

    /// Takes `cost`, or returns when to try again.
    ///
    /// A cost above the capacity of a window is granted when that window is full, and leaves a debt: otherwise it
    /// would be refused forever, and the debt keeps the average.
    pub fn take(&mut self, cost: u64, now: Timestamp) -> Taken {
        self.refill(now);
        if cost == 0 {
            return Taken::Granted;
        }
        let wait = self.windows.iter().map(|window| window.wait_ms(cost)).max().unwrap_or(0);
        if wait > 0 {
            return Taken::WaitUntil(Timestamp::from_millis(self.seen.millis().saturating_add(wait)));
        }
        self.spend(cost);
        Taken::Granted
    }

    /// Takes as many tokens as there are, up to `at_most`, and returns how many: a node borrows a small block
    /// so that not every task costs a write.
    pub fn take_block(&mut self, at_most: u64, now: Timestamp) -> u64 {
        self.refill(now);
        let block = self.windows.iter().map(Window::whole).fold(at_most, u64::min);
        self.spend(block);
        block
    }

    /// Returns unused tokens, up to the capacity.
    pub fn give_back(&mut self, unused: u64) {
        for window in &mut self.windows {
            window.add(window.rate.weight(unused));
        }
    }

    fn refill(&mut self, now: Timestamp) {
        let passed = i128::from(millis(now.since(self.seen)));
        self.seen = self.seen.max(now);
        for window in &mut self.windows {
            window.add(passed.saturating_mul(i128::from(window.rate.amount)));
        }
    }

    fn spend(&mut self, cost: u64) {
        for window in &mut self.windows {
            window.level = window.level.saturating_sub(window.rate.weight(cost));
        }
    }
}

impl Window {
    fn full(rate: Rate) -> Self {
        Self { rate, level: rate.full(), ahead: 0 }
    }

    /// What was used and is not refilled, weighed in a window of this rate, rounded up.
    fn used(&self, rate: Rate) -> i128 {
        let used = self.rate.full().saturating_sub(self.level).saturating_add(self.ahead);
        let (used, per) = (used.saturating_mul(rate.per_ms()), self.rate.per_ms());
        used / per + i128::from(used % per > 0)
    }

    /// The same window under another rate.
    fn under(&self, rate: Rate) -> Self {
        if rate == self.rate {
            return self.clone();
        }
        let used = self.used(rate);
        let owed = rate.full().saturating_sub(used);
        let whole = rate.weight(rate.amount.max(rate.burst));
        let mut level = owed.max(rate.full() - whole);
        if rate.is_above(self.rate) {
            let left = rate.weight(rate.amount).saturating_sub(used);
            level = level.max(left.min(rate.full()));
        }
        Self { rate, level, ahead: level.saturating_sub(owed) }
    }

    fn add(&mut self, units: i128) {
        let level = self.level.saturating_add(units);
        self.level = level.min(self.rate.full());
        self.ahead = self.ahead.saturating_sub(level.saturating_sub(self.level)).max(0);
    }

    /// The remaining whole tokens.
    fn whole(&self) -> u64 {
        u64::try_from(self.level / self.rate.per_ms()).unwrap_or(0)
    }

    /// Milliseconds from now until this window grants `cost`; zero if it does now.
    fn wait_ms(&self, cost: u64) -> i64 {
        if self.rate.amount == 0 {
            return i64::MAX;
        }
        let wanted = self.rate.weight(cost.min(self.rate.burst.max(1)));
        let missing = wanted.saturating_sub(self.level).max(0);
        let per_milli = i128::from(self.rate.amount);
        let whole = missing / per_milli;
        let wait = if missing % per_milli == 0 { whole } else { whole + 1 };
        i64::try_from(wait).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn rate(amount: u64, per_ms: u64) -> Rate {
        Rate { amount, per: Duration::from_millis(per_ms), burst: amount }
    }

    /// Takes `cost` as often and as early as the bucket grants it, and returns how often that was.
    fn greedy(bucket: &mut Bucket, cost: u64, from_ms: i64, to_ms: i64) -> u64 {
        let mut now = at(from_ms);
        let mut granted = 0;
        while now <= at(to_ms) {
            match bucket.take(cost, now) {
                Taken::Granted => granted += 1,
                Taken::WaitUntil(when) => {
                    assert!(when > now, "to wait for {when} at {now} would be a busy loop");
                    now = when;
                }
            }
        }
        granted
    }

    #[test]
    fn a_key_is_admitted_up_to_its_cap_and_always_without_one() {
        assert_eq!(admit(Some(2), 1), Admission::Admit);
        assert_eq!(admit(Some(2), 2), Admission::Park);
        assert_eq!(admit(Some(2), 3), Admission::Park);
        assert_eq!(admit(Some(0), 0), Admission::Park);
        assert_eq!(admit(None, u32::MAX), Admission::Admit);
    }

    #[test]
    fn a_full_bucket_gives_its_amount_and_then_says_when_there_is_more() {
        let mut bucket = Bucket::full(&[rate(3, 1_000)], at(0));
        for _ in 0..3 {
            assert_eq!(bucket.take(1, at(0)), Taken::Granted);
        }
        assert_eq!(bucket.take(1, at(0)), Taken::WaitUntil(at(334)));
        assert_eq!(bucket.take(1, at(333)), Taken::WaitUntil(at(334)));
        assert_eq!(bucket.take(1, at(334)), Taken::Granted);
    }

    #[test]
    fn a_refusal_takes_nothing_from_any_window() {
        let rates = [rate(10, 1_000), rate(12, 60_000)];
        let mut bucket = Bucket::full(&rates, at(0));
        assert_eq!(bucket.take(10, at(0)), Taken::Granted);
        // The second is full again after a second, but the minute has two left.
        let before = bucket.take_block(0, at(1_000));
        let full_second = bucket.clone();
        assert_eq!(bucket.take(3, at(1_000)), Taken::WaitUntil(at(5_000)));
        assert_eq!((before, bucket), (0, full_second));
    }

    #[test]
    fn several_windows_all_hold() {
        let mut bucket = Bucket::full(&[rate(10, 1_000), rate(100, 60_000)], at(0));
        assert_eq!(greedy(&mut bucket, 1, 0, 999), 10 + 9);
        // In the long run the slower window decides.
        let granted = greedy(&mut bucket, 1, 1_000, 10 * 60_000) + 19;
        assert_eq!(granted, 100 + 10 * 100);
    }

    #[test]
    fn an_hour_as_fast_as_allowed_is_exact_and_does_not_drift() {
        for (amount, per_ms) in
            [(1, 1_000), (7, 3_000), (3, 1_000), (13, 7_777), (60, 60_000), (999, 100_003)]
        {
            let mut bucket = Bucket::full(&[rate(amount, per_ms)], at(0));
            let hour = u64::try_from(HOUR_MS).unwrap();
            let granted = greedy(&mut bucket, 1, 0, HOUR_MS);
            // The initial level plus the refill, exactly.
            assert_eq!(granted, amount + amount * hour / per_ms, "{amount} per {per_ms} ms");
        }
    }

    #[test]
    fn a_cost_above_the_amount_is_granted_when_full_and_paid_off_afterwards() {
        let mut bucket = Bucket::full(&[rate(10, 1_000)], at(0));
        assert_eq!(bucket.take(1, at(0)), Taken::Granted);
        assert_eq!(bucket.take(35, at(0)), Taken::WaitUntil(at(100)));
        assert_eq!(bucket.take(35, at(100)), Taken::Granted);
        // 25 in debt: 2.5 s until it is zero, and 0.1 s for one more.
        assert_eq!(bucket.take(1, at(100)), Taken::WaitUntil(at(2_700)));
        assert_eq!(bucket.take_block(5, at(2_000)), 0);
        assert_eq!(bucket.take(0, at(2_000)), Taken::Granted);
        assert_eq!(bucket.take(1, at(2_700)), Taken::Granted);
        // An hour of such costs keeps the average.
        let mut bucket = Bucket::full(&[rate(10, 1_000)], at(0));
        assert_eq!(greedy(&mut bucket, 35, 0, HOUR_MS), (36_000 + 10_u64).div_ceil(35));
    }

    #[test]
    fn a_clock_that_steps_back_and_forth_grants_nothing_extra() {
        let mut bucket = Bucket::full(&[rate(10, 1_000)], at(5_000));
        assert_eq!(bucket.take_block(100, at(5_000)), 10);
        for _ in 0..100 {
            assert_eq!(bucket.take_block(100, at(4_000)), 0);
            assert_eq!(bucket.take_block(100, at(5_000)), 0);
            assert_eq!(bucket.take(1, at(-7)), Taken::WaitUntil(at(5_100)));
        }
        assert_eq!(bucket.take_block(100, at(6_000)), 10);
    }

    #[test]
    fn a_block_is_what_there_is_and_what_is_given_back_is_there_again() {
        let mut bucket = Bucket::full(&[rate(10, 1_000), rate(15, 60_000)], at(0));
        assert_eq!(bucket.take_block(4, at(0)), 4);
        assert_eq!(bucket.take_block(100, at(0)), 6);
        bucket.give_back(3);
        assert_eq!(bucket.take_block(100, at(0)), 3);
        // The minute window had five left.
        assert_eq!(bucket.take_block(100, at(1_000)), 5);
        bucket.give_back(u64::MAX);
        assert_eq!(bucket.take_block(u64::MAX, at(1_000)), 10, "never more than full");
    }

    #[test]
    fn an_amount_of_zero_stops_everything_and_no_rate_stops_nothing() {
        let mut none = Bucket::full(&[rate(0, 1_000)], at(0));
        assert_eq!(none.take(1, at(0)), Taken::WaitUntil(at(i64::MAX)));
        assert_eq!(none.take_block(1, at(HOUR_MS)), 0);
        let mut unlimited = Bucket::full(&[], at(0));
        assert_eq!(unlimited.take(u64::MAX, at(0)), Taken::Granted);
        assert_eq!(unlimited.take_block(8, at(0)), 8);
    }

    #[test]
    fn extremes_saturate() {
        let moments = [i64::MIN, -1, 0, 1, i64::MAX].map(at);
        for amount in [1, 2, u64::MAX] {
            for per in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX] {
                for start in moments {
                    let mut bucket = Bucket::full(&[Rate { amount, per, burst: amount }], start);
                    for now in moments {
                        let taken = bucket.take(u64::MAX, now);
                        let waits_ahead = match taken {
                            Taken::Granted => true,
                            Taken::WaitUntil(when) => when >= start,
                        };
                        assert!(waits_ahead, "{taken:?} from {start}");
                        assert!(bucket.take_block(u64::MAX, now) <= amount);
                        bucket.give_back(u64::MAX);
                    }
                }
            }
        }
    }

    #[test]
    fn an_even_rate_lets_a_tenth_through_at_once_and_keeps_the_average() {
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::full(&[Rate::even(100, second)], at(0));
        let mut taken = 0;
        for moment in 0..30_000 {
            while bucket.take(1, at(moment)) == Taken::Granted {
                taken += 1;
            }
            if moment == 0 {
                assert_eq!(taken, 10, "at once");
            }
        }
        assert!((3_000..=3_010).contains(&taken), "{taken} in thirty seconds");
    }

    #[test]
    fn what_was_used_counts_under_another_rate_and_only_a_lower_one_waits_for_it() {
        let an_hour = |amount, burst| Rate { amount, per: Duration::from_secs(3_600), burst };
        let a_minute = |amount, burst| Rate { amount, per: Duration::from_secs(60), burst };
        for (from, used, to, at_once, next_ms) in [
            (an_hour(1, 1), 1, an_hour(2, 1), 1, HOUR_MS / 2),
            (an_hour(1, 1), 1, an_hour(100, 10), 10, HOUR_MS / 100),
            (an_hour(100, 10), 10, an_hour(15, 10), 0, HOUR_MS / 15),
            (an_hour(100, 10), 4, an_hour(50, 5), 1, HOUR_MS / 50),
            (an_hour(100, 10), 10, an_hour(2, 1), 0, HOUR_MS),
            (an_hour(2, 1), 1, an_hour(2, 2), 1, HOUR_MS / 2),
            (an_hour(1, 1), 1, a_minute(1, 1), 0, 60_000),
            (a_minute(1, 1), 1, an_hour(1, 1), 0, HOUR_MS),
            (an_hour(10, 2), 15, an_hour(20, 2), 2, HOUR_MS / 20),
        ] {
            let mut bucket = Bucket::full(&[from], at(0));
            assert_eq!(bucket.take(used, at(0)), Taken::Granted);
            let mut bucket = bucket.with_rates(&[to], at(0));
            assert_eq!(bucket.take_block(100, at(0)), at_once, "{from:?}, {used} used, then {to:?}");
            assert_eq!(bucket.take(1, at(0)), Taken::WaitUntil(at(next_ms)), "{from:?} then {to:?}");
        }
    }

    #[test]
    fn however_a_rate_is_changed_no_more_starts_at_once_than_the_highest_one_gives() {
        let mut chance = crate::Seed::new(3);
        for _ in 0..2_000 {
            let first = rate(1 + chance.below(20), 1_000);
            let (mut bucket, mut highest, mut taken) = (Bucket::full(&[first], at(0)), first.amount, 0);
            for _ in 0..20 {
                let next = Rate { burst: 1 + chance.below(5), ..rate(1 + chance.below(20), 1_000) };
                bucket = bucket.with_rates(&[next], at(0));
                highest = highest.max(next.amount).max(next.burst);
                taken += bucket.take_block(chance.below(6), at(0));
                assert!(taken <= highest, "{taken} of {highest}");
            }
            // In the end all of it is refilled.
            let last = bucket.rates().next().expect("a window");
            let refilled = Duration::from_secs(taken.div_ceil(last.amount));
            assert!(bucket.is_full(at(0).after(refilled)));
        }
    }

    #[test]
    fn a_window_takes_over_from_the_one_of_its_length_or_from_the_one_that_was_used_most() {
        let (second, minute, hour) = (rate(10, 1_000), rate(100, 60_000), rate(500, 3_600_000));
        let mut bucket = Bucket::full(&[second, minute], at(0));
        assert_eq!(bucket.take_block(10, at(0)), 10);
        assert_eq!(bucket.take_block(10, at(1_000)), 10);
        let left = |rates: &[Rate]| bucket.clone().with_rates(rates, at(2_000)).take_block(1_000, at(2_000));
        assert_eq!(left(&[minute]), 83, "20 were used, and 2 seconds refilled 3");
        assert_eq!(left(&[hour]), 483);
        assert_eq!(left(&[minute, second]), 10);
        // When all is refilled, the next rate begins with a full bucket.
        let mut rested = bucket.with_rates(&[hour], at(20_000));
        assert_eq!(rested.take_block(1_000, at(20_000)), 500);
    }

    #[test]
    fn a_bucket_that_was_kept_goes_on_where_it_was() {
        let rates = [Rate::even(100, Duration::from_secs(1))];
        let mut bucket = Bucket::full(&rates, at(0));
        assert_eq!(bucket.take_block(7, at(0)), 7);
        let (seen, levels, ahead) = bucket.kept();
        let mut again = Bucket::restored(&rates, seen, &levels, &ahead);
        assert_eq!(again, bucket);
        assert_eq!(again.take_block(9, at(0)), 3);
        // Another rate has no more than it can hold.
        let mut smaller = Bucket::restored(&[Rate::even(10, Duration::from_secs(1))], seen, &levels, &ahead);
        assert_eq!(smaller.take_block(9, at(0)), 1);
    }
}
