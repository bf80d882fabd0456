//! The loop of a worker process that runs attempts: one, or many at once. It owns the connection, and all I/O happens in it; a caller
//! of `run` drives it until its own attempt has ended, and then the next caller does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ostler_core::Failure;
use ostler_exec::{AttemptResult, WorkerFate};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::WEIGH_EVERY;
use super::attempt::{Attempt, AttemptEvent, Expecting};
use super::connection::{ConnectionEvent, Listening, Nonsense, OutputStream};
use super::end_reason::{EndReason, strange, too_large};
use super::incoming::{IncomingFrame, begins_as_result};
use super::outgoing;
use super::policy::Recycle;
use super::worker_process::{ProcessStage, WorkerProcess};
use crate::memory::family_bytes;
use crate::stall::StallWatch;
use crate::supervisor::{Exit, SupervisorGone};

/// Frames of one attempt that wait while an earlier one is processed, if other attempts share its worker. With more, nothing is read
/// from the worker.
const MAX_WAITING_FRAMES: usize = 4;

/// Attempts that have yet to be sent to a worker process.
#[derive(Default)]
pub(super) struct Arrivals {
    new: Mutex<Vec<Attempt>>,
    bell: Notify,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, attempt: Attempt) {
        self.lock().push(attempt);
        self.bell.notify_one();
    }

    fn take(&self) -> Vec<Attempt> {
        std::mem::take(&mut *self.lock())
    }
}

enum WorkerEvent {
    Exit(Result<Exit, SupervisorGone>),
    /// The current stage of the process has timed out.
    Overdue,
    /// Whether the process still does something is to be looked at.
    Look,
    Arrived,
    /// An event of the attempt at this place.
    Attempt(usize, AttemptEvent),
    Moved(ConnectionEvent),
}

impl WorkerProcess {
    /// Runs attempts until the result of one of them, `mine`, has arrived. `None`: it was never begun.
    pub(super) async fn serve(
        &mut self,
        arrivals: &Arrivals,
        mine: &mut oneshot::Receiver<AttemptResult>,
    ) -> Option<AttemptResult> {
        loop {
            arrivals.take().into_iter().for_each(|attempt| self.begin(attempt));
            match mine.try_recv() {
                Ok(ended) => return Some(ended),
                Err(oneshot::error::TryRecvError::Closed) => return None,
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            match self.next_event(arrivals).await {
                WorkerEvent::Exit(exit) => self.mourn(exit).await,
                WorkerEvent::Overdue => self.stage_is_over(),
                WorkerEvent::Look => self.look(),
                WorkerEvent::Arrived => {}
                WorkerEvent::Attempt(place, event) => self.on_attempt(place, event),
                WorkerEvent::Moved(ConnectionEvent::Wrote(stream)) => {
                    self.stall.alive();
                    self.log(stream);
                }
                WorkerEvent::Moved(ConnectionEvent::Closed) => self.is_closed(),
                WorkerEvent::Moved(ConnectionEvent::Received) => self.stall.alive(),
            }
            self.hear();
        }
    }

    /// Sends an attempt to the worker.
    fn begin(&mut self, mut attempt: Attempt) {
        if self.stage != ProcessStage::Serving || self.child.has_ended() {
            return attempt.end(AttemptResult::handed_back().dead());
        }
        if self.attempts.is_empty() {
            // The pipes contain output from before this attempt: it must not appear in its log or its failure.
            let Self { link, idle_tail, .. } = self;
            link.read_rest(|_, chunk| idle_tail.take(chunk));
            self.stall = StallWatch::new(self.stuck_after, self.child.pid());
        }
        if let Some(warning) = self.warning.take() {
            attempt.warn(warning);
        }
        match attempt.send(&mut self.link, &mut self.known) {
            None => self.attempts.push(attempt),
            Some(ended) => attempt.end(ended),
        }
    }

    async fn next_event(&mut self, arrivals: &Arrivals) -> WorkerEvent {
        let ear = if self.is_held_up() { Listening::Shut } else { Listening::Open };
        let expecting = match self.stage {
            ProcessStage::Serving => Expecting::All,
            ProcessStage::Leaving | ProcessStage::Terminating => Expecting::Loss,
            ProcessStage::Killed => Expecting::Nothing,
        };
        let (serves, watched) = (self.stage == ProcessStage::Serving, self.is_watched());
        let Self { child, link, attempts, timer, stall, .. } = self;
        let of_attempts = std::future::poll_fn(|context| {
            for (place, attempt) in attempts.iter_mut().enumerate() {
                if let Poll::Ready(event) = attempt.poll_event(expecting, context) {
                    return Poll::Ready((place, event));
                }
            }
            Poll::Pending
        });
        // In this order: an exit comes before a deadline, and a flood of output does not delay the timer.
        tokio::select! {
            biased;
            exit = child.ended() => WorkerEvent::Exit(exit),
            () = timer.as_mut(), if !serves => WorkerEvent::Overdue,
            (place, event) = of_attempts => WorkerEvent::Attempt(place, event),
            () = stall.due(), if watched => WorkerEvent::Look,
            () = arrivals.bell.notified() => WorkerEvent::Arrived,
            moved = link.moved(ear) => WorkerEvent::Moved(moved),
        }
    }

    /// Whether no frame is read, because one that takes time is being processed. With several attempts, a few of each may wait.
    fn is_held_up(&self) -> bool {
        let most = if self.slots == 1 { 0 } else { MAX_WAITING_FRAMES };
        self.attempts.iter().any(|attempt| attempt.is_busy() && attempt.waiting() >= most)
    }

    fn is_watched(&self) -> bool {
        self.stage == ProcessStage::Serving && self.attempts.iter().any(|attempt| attempt.reason.is_none())
    }

    fn on_attempt(&mut self, place: usize, event: AttemptEvent) {
        let attempt = &mut self.attempts[place];
        match event {
            AttemptEvent::Lost => {
                attempt.reason.get_or_insert(EndReason::Cancel);
                let grace = attempt.work.grace;
                self.kill(grace);
            }
            AttemptEvent::Timer if attempt.reason.is_none() => attempt.overdue(&mut self.link),
            // It was told to stop, and has not: nothing but the end of the process ends it.
            AttemptEvent::Timer => {
                let grace = attempt.term_grace();
                self.terminate(grace);
            }
            AttemptEvent::Cancel => attempt.tell(EndReason::Cancel, "the task is to stop", &mut self.link),
            AttemptEvent::Answered(number, answer) => attempt.answered(number, &answer, &mut self.link),
            AttemptEvent::Processed(processed) => {
                attempt.processed(processed, &mut self.link);
                attempt.go_on(&mut self.link);
                self.conclude(place);
            }
        }
    }

    /// Ends attempts that are stuck.
    fn look(&mut self) {
        // The worker may be waiting for this node.
        if self.attempts.iter().any(Attempt::is_asking) {
            self.stall.alive();
        }
        if let Some(stuck) = self.stall.look() {
            let grace = self.grace();
            self.blame(|attempt| Failure { details: attempt.tail.text(), ..stuck });
            self.terminate(grace);
        }
    }

    /// Handles received frames, up to one that takes time.
    fn hear(&mut self) {
        while !self.attempts.is_empty() && !self.is_held_up() {
            match self.link.next() {
                Ok(None) => return,
                Ok(Some(IncomingFrame::Unknown | IncomingFrame::Ready(_))) => {}
                Ok(Some(IncomingFrame::Leaving)) => self.is_leaving = true,
                Ok(Some(IncomingFrame::Of { id, token, what })) => {
                    match self.attempts.iter().position(|attempt| attempt.is(&id, token)) {
                        Some(place) => {
                            self.attempts[place].hear(what, &mut self.link);
                            self.conclude(place);
                        }
                        None if self.recent.has(&id, token) => {}
                        None => return self.fault(strange(&id, token, &self.in_flight())),
                    }
                }
                Err(nonsense) => return self.nonsense(&nonsense),
            }
        }
    }

    fn in_flight(&self) -> Vec<(&str, u64)> {
        self.attempts.iter().map(|attempt| (attempt.id.as_str(), attempt.work.token)).collect()
    }

    fn nonsense(&mut self, nonsense: &Nonsense) {
        match nonsense {
            Nonsense::Bad(error) => self.fault(error.to_string()),
            Nonsense::Long(long) if begins_as_result(&long.beginning) => {
                let grace = self.grace();
                self.blame(|_| too_large(outgoing::MAX_FRAME_BYTES));
                self.kill(grace);
            }
            Nonsense::Long(_) => self.fault("sent a frame that is longer than 16 MiB".to_owned()),
        }
    }

    /// Ends an attempt whose result has arrived, unless the worker is exiting: then its exit is waited for, so that nothing is left.
    fn conclude(&mut self, place: usize) {
        if self.stage != ProcessStage::Serving || !self.attempts[place].has_result() {
            return;
        }
        self.log_rest();
        let mut attempt = self.attempts.swap_remove(place);
        let Some(ended) = attempt.answer() else { return };
        self.tasks += 1;
        let ended = match ended.slot {
            WorkerFate::Reusable if self.is_spent() => ended.spent(),
            WorkerFate::Reusable | WorkerFate::Spent | WorkerFate::Dead | WorkerFate::Unresponsive => ended,
        };
        self.recent.add(attempt.id.clone(), attempt.work.token);
        attempt.end(ended);
    }

    /// Whether a worker that has just run a task is due for recycling.
    fn is_spent(&mut self) -> bool {
        let Recycle { after_tasks, above_memory } = self.recycle;
        if self.is_leaving {
            return true;
        }
        if after_tasks.is_some_and(|most| self.tasks >= most) {
            return true;
        }
        let Some(most) = above_memory else { return false };
        let now = Instant::now();
        if now - self.weighed < WEIGH_EVERY {
            return false;
        }
        self.weighed = now;
        family_bytes(self.child.pid()).is_some_and(|bytes| bytes > most)
    }

    // ---- output ----

    /// Logs what the worker wrote. It belongs to an attempt that runs alone; of several, nothing tells which one wrote it.
    fn log(&mut self, stream: OutputStream) {
        let chunk = &self.link.chunk;
        match self.attempts.as_mut_slice() {
            [alone] => alone.log(stream, chunk),
            [] => self.idle_tail.take(chunk),
            [_, _, ..] => self.crowd_tail.take(chunk),
        }
    }

    /// Logs what the worker wrote before a result or its exit.
    pub(super) fn log_rest(&mut self) {
        let Self { link, attempts, crowd_tail, .. } = self;
        link.read_rest(|stream, chunk| match attempts.as_mut_slice() {
            [alone] => alone.log(stream, chunk),
            [] | [_, _, ..] => crowd_tail.take(chunk),
        });
    }
}
