//! Rate limits, concurrency limits, circuit breakers and the account of the queue; the order of priorities, and the hold of unique keys.
//!
//! They are stored and apply to every process that serves the queue. Settings that are not set here keep their stored
//! values.

use ostler_core::{BreakerPolicy, Budget, KeyHold, PriorityOrder, Rate};
use ostler_store::calls::QueueChange;
use ostler_store::gates::{BreakerScope, BreakerSetting};
use ostler_store::paths::PayloadPath;

use super::Builder;

impl Builder {
    /// Limits how many tasks of the queue may start in a period, across all processes. Tasks over the limit wait. Calling
    /// this again adds another window; all windows apply.
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
        for change in &mut self.plan.changes {
            if let QueueChange::Rate(rates) = change {
                rates.push(rate);
                return self;
            }
        }
        self.plan.changes.push(QueueChange::Rate(vec![rate]));
        self
    }

    /// Like [`rate`](Self::rate), but for each limit key separately. Tasks without a limit key are not limited by it.
    #[must_use]
    pub fn key_rate(mut self, rate: Rate) -> Self {
        for change in &mut self.plan.changes {
            if let QueueChange::KeyRate(rates) = change {
                rates.push(rate);
                return self;
            }
        }
        self.plan.changes.push(QueueChange::KeyRate(vec![rate]));
        self
    }

    /// Limits how many tasks of the queue run at once across all processes. To limit this process, use
    /// [`workers`](Self::workers).
    #[must_use]
    pub fn concurrency(mut self, tasks: u32) -> Self {
        self.plan.changes.push(QueueChange::Concurrency(Some(tasks)));
        self
    }

    /// Limits how many tasks with the same limit key run at once, across all processes.
    #[must_use]
    pub fn key_concurrency(mut self, tasks: u32) -> Self {
        self.plan.changes.push(QueueChange::KeyConcurrency(Some(tasks)));
        self
    }

    /// Names the account of a provider whose limits the tasks of the queue share with those of other queues, across all processes: a
    /// [usage limit](crate::TaskError::usage_limit) that one of them reports holds all of them until it resets.
    #[must_use]
    pub fn account(mut self, name: impl Into<String>) -> Self {
        self.plan.changes.push(QueueChange::Account(Some(name.into())));
        self
    }

    /// Sets how priorities order the tasks that are submitted from now on: by a head start, or strictly the highest first.
    #[must_use]
    pub fn priority_order(mut self, order: PriorityOrder) -> Self {
        self.plan.changes.push(QueueChange::Priority(order));
        self
    }

    /// Sets how long tasks hold their unique keys, unless [`Submission::key_hold`](crate::Submission::key_hold) says otherwise.
    #[must_use]
    pub fn key_hold(mut self, hold: KeyHold) -> Self {
        self.plan.changes.push(QueueChange::KeyHold(hold));
        self
    }

    /// Sets a circuit breaker: after repeated failures, no task of the queue starts until the reset time has passed; then a
    /// single task runs as a probe, and its outcome closes or reopens the breaker. Tasks that wait meanwhile do not fail.
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

    /// Like [`breaker`](Self::breaker), but for each limit key separately: one failing key does not stop the others.
    #[must_use]
    pub fn key_breaker(self, policy: BreakerPolicy) -> Self {
        self.set_breaker(policy, BreakerScope::Key)
    }

    fn set_breaker(mut self, policy: BreakerPolicy, scope: BreakerScope) -> Self {
        self.plan.changes.push(QueueChange::Breaker(Some(BreakerSetting { policy, scope })));
        self
    }

    /// Limits what the tasks of the queue may spend on models, across all processes. Each task reserves what it is expected to cost
    /// before it starts. A budget that is reached pauses the queue, and a larger one resumes it. Handlers report what they spend with
    /// [`Context::usage`](crate::Context::usage).
    ///
    /// ```no_run
    /// use ostler::{Budget, Cost};
    ///
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?
    ///     .budget(Budget { per_day: Cost::from_usd(10.0), ..Budget::default() });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.plan.changes.push(QueueChange::Budget(Some(budget)));
        self
    }

    /// Sets the payload path from which tasks submitted without a limit key take it, such as `payload.tenant`. Tasks with
    /// the same key share its limits; tasks with different keys take turns, regardless of how many tasks of one key wait.
    ///
    /// An invalid path makes [`start`](Self::start) fail.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), ostler::OpenError> {
    /// let pool = ostler::open("jobs.db")?.limit_key("payload.tenant").key_concurrency(2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limit_key(mut self, path: &str) -> Self {
        match PayloadPath::parse(path) {
            Ok(path) => self.plan.changes.push(QueueChange::KeyPath(Some(path))),
            Err(error) => self.refused = Some(error),
        }
        self
    }

    /// Sets the payload path of the cost that a task takes from the rates, such as `payload.tokens`. The cost is 1 if no
    /// path is set or the payload has no number there. An invalid path makes [`start`](Self::start) fail.
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
            Ok(path) => self.plan.changes.push(QueueChange::CostPath(Some(path))),
            Err(error) => self.refused = Some(error),
        }
        self
    }
}
