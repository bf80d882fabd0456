//! Breakers around calls of handlers: a service that keeps failing is not called until it had time to recover.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{BreakerPolicy, CallAdmission, CallResult, CallVerdict, ErrorClass, Trip};

use crate::error::TaskError;

/// When a breaker opens, and for how long, unless its caller says otherwise.
const USUAL: BreakerPolicy = BreakerPolicy { trip: Trip::Consecutive(5), reset: Duration::from_secs(5 * 60) };

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPass {
    Go(CallAdmission),
    /// Ask again after this time; `None`: it is not known when.
    Wait(Option<Duration>),
}

/// Stores the breakers around calls, which all processes share.
#[async_trait]
pub trait BreakerStore: Debug + Send + Sync {
    /// Whether a call may be made now.
    ///
    /// # Errors
    /// When that cannot be determined.
    async fn ask(&self, name: &str, policy: BreakerPolicy) -> Result<CallPass, TaskError>;

    /// Records the result of a call.
    ///
    /// # Errors
    /// When it is not recorded.
    async fn report(&self, name: &str, policy: BreakerPolicy, result: CallResult) -> Result<(), TaskError>;
}

/// The breakers of an attempt.
#[derive(Clone, Debug, Default)]
pub struct Breakers(Option<Arc<dyn BreakerStore>>);

impl Breakers {
    /// Breakers kept in this store.
    #[must_use]
    pub fn kept(store: Arc<dyn BreakerStore>) -> Self {
        Self(Some(store))
    }

    /// Breakers that never open.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }
}

/// A circuit breaker around a call; see [`Context::breaker`](crate::Context::breaker).
#[derive(Clone, Debug)]
#[must_use = "it does nothing unless a call is made through it"]
pub struct CallBreaker {
    name: String,
    policy: BreakerPolicy,
    breakers: Breakers,
}

impl CallBreaker {
    pub(crate) fn new(name: String, breakers: Breakers) -> Self {
        Self { name, policy: USUAL, breakers }
    }

    /// Sets when the breaker opens, and for how long. Default: after five failures in a row, for five minutes. All callers of a
    /// name should set the same.
    pub fn policy(mut self, policy: BreakerPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Makes a call, unless the breaker is open. Its result is recorded: transient errors, timeouts and crashes count as failures of
    /// the service; a permanent error, a rate limit and the like say nothing about it. The call that is let through after the reset
    /// time decides for all others.
    ///
    /// # Errors
    /// The error of the call. When the breaker is open: a transient error, to be retried when it may be closed again; the call was
    /// not made.
    pub async fn call<T, F, R>(self, work: F) -> Result<T, TaskError>
    where
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        let Self { name, policy, breakers } = self;
        let Some(store) = breakers.0 else { return work().await };
        let admission = match store.ask(&name, policy).await? {
            CallPass::Go(admission) => admission,
            CallPass::Wait(wait) => return Err(open(&name, wait)),
        };
        // A call that is dropped reports nothing. If it was the probe, the next one is let through after another reset time.
        let done = work().await;
        let result = CallResult { admission, verdict: verdict(&done) };
        // What cannot be recorded can be observed again; the result of the call stands.
        let _ = store.report(&name, policy, result).await;
        done
    }
}

fn open(name: &str, wait: Option<Duration>) -> TaskError {
    let error = TaskError::transient(format!("the breaker \"{name}\" is open: the call was not made"));
    match wait {
        Some(wait) => error.retry_after(wait),
        None => error,
    }
}

/// What a result says about the service.
fn verdict<T>(done: &Result<T, TaskError>) -> CallVerdict {
    match done.as_ref().map_err(TaskError::class) {
        Ok(_) => CallVerdict::Success,
        Err(
            ErrorClass::Transient
            | ErrorClass::Partial
            | ErrorClass::Timeout
            | ErrorClass::Stuck
            | ErrorClass::Crash,
        ) => CallVerdict::Failure,
        Err(
            ErrorClass::Permanent
            | ErrorClass::RateLimited
            | ErrorClass::UsageLimit
            | ErrorClass::QueueStop
            | ErrorClass::Budget,
        ) => CallVerdict::None,
    }
}
