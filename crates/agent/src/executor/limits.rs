//! Time limits of an attempt with a model: for each wait, and for the transcript at its end. Agents and requests to APIs share them.

use std::future::Future;
use std::time::Duration;

use ostler_config::PoolSpec;
use ostler_core::{Charging, Cost, ErrorClass, Failure};
use ostler_exec::{AttemptResult, Control, Work};
use tokio::time::{Instant, sleep_until};

use super::recorder::Recorder;

/// Times beyond the range of a clock.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// An end in the middle of an attempt.
pub(crate) type Early = Box<AttemptResult>;

/// How long an attempt may take.
#[derive(Clone, Copy)]
pub(crate) struct AttemptLimits<'a> {
    pub(crate) work: &'a Work,
    pub(crate) control: &'a Control,
    pub(crate) deadline: Instant,
}

impl<'a> AttemptLimits<'a> {
    /// Of an attempt that begins now.
    pub(crate) fn new(work: &'a Work, control: &'a Control) -> Self {
        Self { work, control, deadline: Instant::now() + work.timeout.min(MAX_TIMEOUT) }
    }

    /// Refuses to ask a model whose price is not known, if a budget is charged: that of the task, of the queue, or of the pool.
    pub(crate) fn check_price(
        &self,
        pool: &dyn PoolSpec,
        model: Option<&str>,
        max_task_cost: Option<Cost>,
    ) -> Result<(), Early> {
        let is_limited = match self.control.charging {
            Charging::Charged => true,
            Charging::Free => max_task_cost.is_some(),
        };
        match pool.unpriced(model).filter(|_| is_limited) {
            None => Ok(()),
            Some(why) => {
                // Without a model of its own, a task fails as all others of its queue would.
                let is_of_pool = pool.unpriced(None).as_ref() == Some(&why);
                let class = if is_of_pool { ErrorClass::QueueStop } else { ErrorClass::Permanent };
                Err(AttemptResult::failed_with(class, format!("its budget cannot be kept: {why}")).into())
            }
        }
    }

    /// Awaits something, but no longer than the attempt may take.
    pub(crate) async fn within<T>(&self, waited: impl Future<Output = T>) -> Result<T, Early> {
        tokio::select! {
            biased;
            () = self.control.cancel.cancelled() => Err(AttemptResult::cancelled().into()),
            done = waited => Ok(done),
            () = sleep_until(self.deadline) => Err(AttemptResult::too_long(self.work.timeout).into()),
        }
    }

    /// Waits until the transcript is stored, also of an attempt that was stopped.
    pub(crate) async fn record_rest(&self, recorder: &mut Recorder) {
        tokio::select! {
            biased;
            () = self.control.lost.cancelled() => {}
            () = recorder.drained() => {}
            () = tokio::time::sleep(self.work.grace) => {}
        }
    }
}

/// The store did not answer.
pub(crate) fn away(error: impl std::fmt::Display) -> AttemptResult {
    let message = format!("it cannot be read what earlier attempts left: {error}");
    AttemptResult::failed(Failure::new(ErrorClass::Transient, message))
}
