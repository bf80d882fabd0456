//! Limits of the queue: how much, how many at once, and when to stop because work fails.
//!
//! They are kept in the store and hold for every process that serves the queue. What is not said here stays as the store has it.

use ostler_core::{BreakerPolicy, Rate};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::paths::PayloadPath;

use super::Builder;

impl Builder {
    /// So many tasks of the queue may begin in a time, over all processes; what is over waits. Called again, it adds a window, and
    /// all windows hold.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use ostler::Rate;
    ///
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?
    ///     .rate(Rate::even(5, Duration::from_secs(1)))
    ///     .rate(Rate { amount: 1_000, per: Duration::from_secs(86_400), burst: 100 });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        for change in &mut self.changes {
            if let QueueChange::Rate(rates) = change {
                rates.push(rate);
                return self;
            }
        }
        self.changes.push(QueueChange::Rate(vec![rate]));
        self
    }

    /// The same for each limit key apart. Tasks without a key have no such rate.
    #[must_use]
    pub fn key_rate(mut self, rate: Rate) -> Self {
        for change in &mut self.changes {
            if let QueueChange::KeyRate(rates) = change {
                rates.push(rate);
                return self;
            }
        }
        self.changes.push(QueueChange::KeyRate(vec![rate]));
        self
    }

    /// At most so many tasks of the queue run at once, over all processes. How many run in this one is said by
    /// [`workers`](Self::workers).
    #[must_use]
    pub fn concurrency(mut self, tasks: u32) -> Self {
        self.changes.push(QueueChange::Concurrency(Some(tasks)));
        self
    }

    /// At most so many tasks of one limit key run at once, over all processes.
    #[must_use]
    pub fn key_concurrency(mut self, tasks: u32) -> Self {
        self.changes.push(QueueChange::KeyConcurrency(Some(tasks)));
        self
    }

    /// When work keeps failing, no more of the queue begins for a time; then one task tries, and its end decides. What waits
    /// meanwhile does not fail.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use ostler::{BreakerPolicy, Trip};
    ///
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?
    ///     .breaker(BreakerPolicy { trip: Trip::Consecutive(5), reset: Duration::from_secs(300) });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn breaker(self, policy: BreakerPolicy) -> Self {
        self.set_breaker(policy, BreakerScope::Queue)
    }

    /// The same for each limit key apart: one that fails does not stop the others.
    #[must_use]
    pub fn key_breaker(self, policy: BreakerPolicy) -> Self {
        self.set_breaker(policy, BreakerScope::Key)
    }

    fn set_breaker(mut self, policy: BreakerPolicy, scope: BreakerScope) -> Self {
        self.changes.push(QueueChange::Breaker(Some(BreakerSetting { policy, scope })));
        self
    }

    /// Where payloads have the limit key of tasks that are submitted without one, such as `payload.tenant`. Tasks of one key share
    /// its limits; tasks of different keys take turns, however many of one wait.
    ///
    /// A path that is none is told by [`start`](Self::start).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?.limit_key("payload.tenant").key_concurrency(2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limit_key(mut self, path: &str) -> Self {
        match PayloadPath::parse(path) {
            Ok(path) => self.changes.push(QueueChange::KeyPath(Some(path))),
            Err(error) => self.refused = Some(error),
        }
        self
    }

    /// Where payloads have what a task takes from the rates, such as `payload.tokens`. Without it, and where a payload has no
    /// number there, a task takes one.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use ostler::Rate;
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?
    ///     .cost("payload.tokens")
    ///     .rate(Rate::even(100_000, Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(mut self, path: &str) -> Self {
        match PayloadPath::parse(path) {
            Ok(path) => self.changes.push(QueueChange::CostPath(Some(path))),
            Err(error) => self.refused = Some(error),
        }
        self
    }
}
