//! The stop signal of a call, and its mailbox: how other threads reach a thread that runs JavaScript.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::end::FunctionEnd;
use crate::host::{HostAnswer, HostError};

/// Why a running call is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LimitCause {
    Cpu = 1,
    Wall = 2,
    Cancelled = 3,
    LogLines = 4,
    Timers = 5,
    Output = 6,
}

impl LimitCause {
    const ALL: [Self; 6] =
        [Self::Cpu, Self::Wall, Self::Cancelled, Self::LogLines, Self::Timers, Self::Output];

    pub(crate) const fn end(self) -> FunctionEnd {
        match self {
            Self::Cpu => FunctionEnd::Cpu,
            Self::Wall => FunctionEnd::Wall,
            Self::Cancelled => FunctionEnd::Cancelled,
            Self::LogLines => FunctionEnd::LogLines,
            Self::Timers => FunctionEnd::Timers,
            Self::Output => FunctionEnd::Output,
        }
    }
}

/// What wakes a call that waits.
#[derive(Debug)]
pub(crate) enum Mail {
    /// The host answers a call.
    Answer { call: u32, answer: Result<HostAnswer, HostError> },
    /// A cancellation was requested: the function's abort signal fires.
    Cancel,
    /// A stop cause was set.
    Stop,
}

/// Stops one call, from any thread.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<Signal>);

#[derive(Debug)]
struct Signal {
    /// The first stop cause; 0: none.
    cause: AtomicU8,
    cancelled: AtomicBool,
    mail: Sender<Mail>,
}

/// The stop signal of a call, and the mailbox that its thread reads.
pub(crate) fn stop_signal() -> (Interrupter, Receiver<Mail>) {
    let (mail, mailbox) = mpsc::channel();
    (
        Interrupter(Arc::new(Signal { cause: AtomicU8::new(0), cancelled: AtomicBool::new(false), mail })),
        mailbox,
    )
}

impl Interrupter {
    /// Asks the function to stop: `ctx.signal` aborts. A function that ignores it runs on.
    pub fn cancel(&self) {
        if !self.0.cancelled.swap(true, Ordering::Relaxed) {
            self.send(Mail::Cancel);
        }
    }

    /// Ends the call at the next point where the engine can be interrupted. The first cause counts.
    pub fn stop(&self, cause: LimitCause) {
        let first = self.0.cause.compare_exchange(0, cause as u8, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.send(Mail::Stop);
        }
    }

    /// The stop cause, if one is set.
    pub(crate) fn cause(&self) -> Option<LimitCause> {
        let code = self.0.cause.load(Ordering::Relaxed);
        LimitCause::ALL.into_iter().find(|cause| *cause as u8 == code)
    }

    /// Whether a cancellation was requested.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn mail(&self) -> Sender<Mail> {
        self.0.mail.clone()
    }

    /// A call that is over reads no mail.
    fn send(&self, mail: Mail) {
        let _ = self.0.mail.send(mail);
    }
}
