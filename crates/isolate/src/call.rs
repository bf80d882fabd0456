//! One call of a function: its input, its host, and its stop signal.

use std::rc::Rc;
use std::sync::mpsc::Receiver;

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

/// A call that has not run.
pub struct FunctionCall {
    /// JSON text.
    pub(crate) payload: String,
    pub(crate) info: CallInfo,
    pub(crate) host: Rc<dyn FunctionHost>,
    pub(crate) signal: Interrupter,
    pub(crate) mailbox: Receiver<Mail>,
}

impl FunctionCall {
    /// A call with this payload: JSON text.
    pub fn new(payload: impl Into<String>, info: CallInfo, host: Rc<dyn FunctionHost>) -> Self {
        let (signal, mailbox) = stop_signal();
        Self { payload: payload.into(), info, host, signal, mailbox }
    }

    /// Stops the call, from any thread.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.signal.clone()
    }
}
