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
}

impl Bucket {
    /// A bucket with all windows full.
    #[must_use]
    pub fn full(rates: &[Rate], now: Timestamp) -> Self {
        let windows = rates.iter().map(|rate| Window { rate: *rate, level: rate.full() }).collect();
        Self { windows, seen: now }
    }

    /// Restores a bucket as a store persisted it: the time it was last used, and the level of each window. Rates that have changed
    /// since start with the remaining level, and no window exceeds its capacity.
    #[must_use]
    pub fn restored(rates: &[Rate], seen: Timestamp, levels: &[i128]) -> Self {
        let window = |(place, rate): (usize, &Rate)| {
            let level = levels.get(place).copied().unwrap_or_else(|| rate.full());
            Window { rate: *rate, level: level.min(rate.full()) }
        };
        Self { windows: rates.iter().enumerate().map(window).collect(), seen }
    }

    /// The same bucket under new rates: each window keeps its remaining tokens, up to its capacity. A new window is full.
    #[must_use]
    pub fn with_rates(self, rates: &[Rate]) -> Self {
        if self.windows.iter().map(|window| window.rate).eq(rates.iter().copied()) {
            return self;
        }
        let level = |place: usize, rate: &Rate| match self.windows.get(place) {
            Some(old) => {
                old.level.saturating_mul(rate.per_ms()).div_euclid(old.rate.per_ms()).min(rate.full())
            }
            None => rate.full(),
        };
        let window = |(place, rate): (usize, &Rate)| Window { rate: *rate, level: level(place, rate) };
        Self { windows: rates.iter().enumerate().map(window).collect(), seen: self.seen }
    }

    pub fn rates(&self) -> impl Iterator<Item = Rate> {
        self.windows.iter().map(|window| window.rate)
    }

    /// Whether all windows are full at this time.
    #[must_use]
    pub fn is_full(&self, now: Timestamp) -> bool {
        let mut then = self.clone();
        then.refill(now);
        then.windows.iter().all(|window| window.level == window.rate.full())
    }

    /// The time the bucket was last used and the level of each window, for a store to persist.
    #[must_use]
    pub fn kept(&self) -> (Timestamp, Vec<i128>) {
        (self.seen, self.windows.iter().map(|window| window.level).collect())
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
    fn add(&mut self, units: i128) {
        self.level = self.level.saturating_add(units).min(self.rate.full());
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
    fn a_bucket_that_was_kept_goes_on_where_it_was() {
        let rates = [Rate::even(100, Duration::from_secs(1))];
        let mut bucket = Bucket::full(&rates, at(0));
        assert_eq!(bucket.take_block(7, at(0)), 7);
        let (seen, levels) = bucket.kept();
        let mut again = Bucket::restored(&rates, seen, &levels);
        assert_eq!(again, bucket);
        assert_eq!(again.take_block(9, at(0)), 3);
        // Another rate has no more than it can hold.
        let mut smaller = Bucket::restored(&[Rate::even(10, Duration::from_secs(1))], seen, &levels);
        assert_eq!(smaller.take_block(9, at(0)), 1);
    }
}
