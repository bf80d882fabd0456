//! One call of a function: its input, its host, and its stop signal.

use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::host::FunctionHost;
use crate::stop::{Interrupter, Mail, stop_signal};

/// What `ctx` tells about the attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallInfo {
    pub task: String,
    pub queue: String,
    pub kind: String,
    /// The number of the attempt, counted from one.
    pub attempt: u32,
    /// When the attempt times out, in milliseconds since 1970, as `Date.now()` counts.
    pub deadline: Option<u64>,
}

/// The deadline of a call that begins now and has this many milliseconds.
pub(crate) fn deadline_in(timeout_ms: u64) -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000).saturating_add(timeout_ms)
}

/// A call that has not run.
pub struct FunctionCall {
    /// JSON text.
    pub(crate) payload: String,
    pub(crate) info: CallInfo,
    pub(crate) host: Rc<dyn FunctionHost>,
    pub(crate) signal: Interrupter,
    pub(crate) mailbox: Receiver<Mail>,
    pub(crate) wall: Option<Duration>,
}

impl FunctionCall {
    /// A call with this payload: JSON text.
    pub fn new(payload: impl Into<String>, info: CallInfo, host: Rc<dyn FunctionHost>) -> Self {
        let (signal, mailbox) = stop_signal();
        Self { payload: payload.into(), info, host, signal, mailbox, wall: None }
    }

    /// The same with a wall time of its own, such as the timeout of an attempt.
    #[must_use]
    pub fn within(self, wall: Duration) -> Self {
        Self { wall: Some(wall), ..self }
    }

    /// Stops the call, from any thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.signal.clone()
    }
}
