//! The end of a worker process with attempts in flight: signals, exit, and what each attempt gets.
//!
//! A process that dies with one attempt has crashed because of it. With several, nothing tells which one was to blame: each of them ends
//! as if its node had died, which is no failure. If the node ends the process because one of them did not stop, the others are handed
//! back.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure};
use ostler_exec::AttemptResult;
use tokio::time::Instant;

use super::attempt::{Attempt, after};
use super::end_reason::{EndReason, conclude};
use super::incoming::IncomingFrame;
use super::worker_process::{EndCause, ProcessStage, WorkerProcess};
use crate::command::verdict;
use crate::lines::reason;
use crate::supervisor::{Exit, SupervisorGone};

/// The minimum wait for a kill: a short grace period must not make a busy system look like a child that cannot die.
const MIN_KILL_PATIENCE: Duration = Duration::from_secs(2);
/// How long the exit of a worker that has closed its socket may take to be known. Most have died.
const LAST_GASP: Duration = Duration::from_secs(1);

impl WorkerProcess {
    /// The longest grace period of its attempts.
    pub(super) fn grace(&self) -> Duration {
        self.attempts.iter().map(|attempt| attempt.work.grace).max().unwrap_or_default()
    }

    pub(super) fn terminate(&mut self, grace: Duration) {
        self.child.terminate();
        self.stage = ProcessStage::Terminating;
        self.timer.as_mut().reset(after(grace));
    }

    pub(super) fn kill(&mut self, grace: Duration) {
        self.child.kill();
        self.stage = ProcessStage::Killed;
        self.timer.as_mut().reset(after(grace.max(MIN_KILL_PATIENCE)));
    }

    /// Handles a closed socket. Nearly always the worker has died, which is known in a moment.
    pub(super) fn is_closed(&mut self) {
        if self.stage == ProcessStage::Serving {
            self.stage = ProcessStage::Leaving;
            self.timer.as_mut().reset(after(LAST_GASP));
        }
    }

    pub(super) fn stage_is_over(&mut self) {
        match self.stage {
            ProcessStage::Serving => {}
            ProcessStage::Leaving => {
                let grace = self.grace();
                self.cause = EndCause::Process;
                if let [alone] = self.attempts.as_mut_slice()
                    && alone.reason.is_none()
                {
                    let crash = alone.crash("closed its socket and kept running".to_owned());
                    alone.reason = Some(EndReason::Failed(crash));
                }
                self.kill(grace);
            }
            ProcessStage::Terminating => self.kill(self.grace()),
            // Killed and still alive: the worker hangs in the kernel.
            ProcessStage::Killed => {
                for mut attempt in std::mem::take(&mut self.attempts) {
                    let ended = match attempt.reason.take() {
                        Some(why) => attempt.judge(why),
                        None => self.without_reason(&attempt),
                    };
                    attempt.end(ended.unresponsive());
                }
                self.is_over = true;
            }
        }
    }

    /// Handles a violation of the protocol: the worker is ended.
    pub(super) fn fault(&mut self, what: String) {
        // Frames after the kill do not matter.
        if self.stage != ProcessStage::Killed {
            let grace = self.grace();
            self.blame(|attempt| attempt.crash(what));
            self.kill(grace);
        }
    }

    /// The process is ended for what it did itself. An attempt that is alone is to blame.
    pub(super) fn blame(&mut self, failure: impl FnOnce(&mut Attempt) -> Failure) {
        self.cause = EndCause::Process;
        if let [alone] = self.attempts.as_mut_slice()
            && matches!(alone.reason, None | Some(EndReason::Cancel))
        {
            alone.reason = Some(EndReason::Failed(failure(alone)));
        }
    }

    /// The result of an attempt whose process was ended, though nothing was wrong with the attempt.
    fn without_reason(&self, attempt: &Attempt) -> AttemptResult {
        match self.cause {
            EndCause::Attempt => {
                attempt.warn("its worker was ended, because another task of it did not stop".to_owned());
                AttemptResult::handed_back()
            }
            EndCause::Process => AttemptResult::worker_died(),
        }
    }

    /// Handles the exit of the worker. Frames that it sent before count.
    pub(super) async fn mourn(&mut self, exit: Result<Exit, SupervisorGone>) {
        self.is_over = true;
        let in_a_frame = self.hear_rest();
        let time = match self.stage {
            ProcessStage::Serving | ProcessStage::Leaving => self.grace(),
            // Its time is up.
            ProcessStage::Terminating | ProcessStage::Killed => Duration::ZERO,
        };
        let until = Instant::now() + time;
        self.log_rest();
        let mut attempts = std::mem::take(&mut self.attempts);
        for attempt in &mut attempts {
            attempt.settle(until).await;
        }
        if matches!(self.stage, ProcessStage::Serving | ProcessStage::Leaving) {
            self.cause = EndCause::Process;
        }
        let unfinished = attempts.iter().filter(|attempt| !attempt.has_result()).count();
        let last = self.crowd_tail.text();
        let last = last.as_deref().and_then(reason).map_or_else(String::new, |line| format!(": {line}"));
        for mut attempt in attempts {
            let ended = match (attempt.take_result(), attempt.reason.take()) {
                (Some(result), None) => conclude(result, None),
                (Some(result), Some(EndReason::Cancel)) if self.stage != ProcessStage::Killed => {
                    conclude(result, Some(EndReason::Cancel))
                }
                (_, Some(why)) => attempt.judge(why),
                (None, None) if self.cause == EndCause::Process && unfinished == 1 => {
                    AttemptResult::failed(died(&mut attempt, exit, in_a_frame))
                }
                (None, None) => {
                    if self.cause == EndCause::Process {
                        let how = exit.map_or_else(|gone| gone.to_string(), verdict::how);
                        attempt.warn(format!("its worker {how}, with {unfinished} tasks in flight{last}"));
                    }
                    self.without_reason(&attempt)
                }
            };
            attempt.end(ended.dead());
        }
    }

    /// Keeps the frames that a dead worker has sent. The socket's buffer bounds them. Returns whether the last one is incomplete.
    fn hear_rest(&mut self) -> InFrame {
        loop {
            loop {
                match self.link.next() {
                    Ok(Some(IncomingFrame::Of { id, token, what })) => {
                        let its = self.attempts.iter_mut().find(|attempt| attempt.is(&id, token));
                        its.into_iter().for_each(|attempt| attempt.keep_frame(what.clone()));
                    }
                    Ok(Some(IncomingFrame::Unknown | IncomingFrame::Leaving | IncomingFrame::Ready(_))) => {}
                    Ok(None) => break,
                    Err(_) => return InFrame::No,
                }
            }
            if !self.link.receive_rest() {
                return if self.link.is_in_a_frame() { InFrame::Yes } else { InFrame::No };
            }
        }
    }
}

/// Whether a worker died in the middle of a frame.
#[derive(Clone, Copy)]
enum InFrame {
    Yes,
    No,
}

fn died(attempt: &mut Attempt, exit: Result<Exit, SupervisorGone>, frame: InFrame) -> Failure {
    if let Some(failure) = exit.ok().and_then(|exit| attempt.death(exit)) {
        return failure;
    }
    let what = match (exit, frame) {
        (Ok(exit), InFrame::Yes) => {
            format!("{} before it gave a result, in the middle of a frame", verdict::how(exit))
        }
        (Ok(exit), InFrame::No) => format!("{} before it gave a result", verdict::how(exit)),
        (Err(gone), InFrame::Yes | InFrame::No) => return Failure::new(ErrorClass::Crash, gone.to_string()),
    };
    Failure { hint: exit.ok().and_then(verdict::hint), ..attempt.crash(what) }
}
