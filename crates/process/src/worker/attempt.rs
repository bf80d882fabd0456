//! One attempt on a worker: from the task frame to the result. One loop owns the connection, the timer and the pool's stop signals.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, EventKind, Failure, LogStream, Loss, is_too_deep};
use ostler_exec::{AttemptResult, ClassSource, Control, MAX_FILES, StepError, Work};
use tokio::time::{Instant, Sleep};

use super::connection::{Connection, ConnectionEvent, Listening, Nonsense, OutputStream, maybe};
use super::end_reason::{EndReason, WorkerAnswer, conclude, strange, too_deep, too_large};
use super::incoming::{AttemptFrame, IncomingFrame, begins_as_result};
use super::keeping::{Keeping, Kept, keep};
use super::outgoing;
use super::policy::ProcessPolicy;
use super::recent_attempts::RecentAttempts;
use super::steps::{Saving, earlier, save};
use super::worker_process::WorkerProcess;
use crate::command::verdict;
use crate::files::{Filing, filing};
use crate::folders::TaskFolder;
use crate::lines::{Lines, Tail, reason};
use crate::stall::StallWatch;
use crate::supervisor::{Child, Exit, SupervisorGone};

/// The minimum wait for a kill: a short grace period must not make a busy system look like a child that cannot die.
const MIN_KILL_PATIENCE: Duration = Duration::from_secs(2);
/// The longest time between the frame that asks an overdue attempt to stop and SIGTERM.
const MAX_NOTICE: Duration = Duration::from_secs(3);
/// How long the exit of a worker that has closed its socket may take to be known. Most have died.
const LAST_GASP: Duration = Duration::from_secs(1);

enum AttemptStage {
    Running,
    /// The worker was asked to stop, and may do so by itself.
    Told(EndReason),
    /// SIGTERM was sent.
    Terminating(EndReason),
    /// SIGKILL was sent.
    Killed(EndReason),
    /// The worker has closed its socket, and is about to exit. It may have been asked to stop.
    Leaving(Option<EndReason>),
}

enum WorkerEvent {
    Exit(Result<Exit, SupervisorGone>),
    /// The lease is lost: the worker is killed at once.
    Lost,
    /// The current stage has timed out.
    Timer,
    /// Whether the attempt still does something is to be looked at.
    Look,
    Cancel,
    Saved(String, Result<(), StepError>),
    /// A file that the worker reported was read.
    Filed(Option<EventBody>),
    /// An event that must not be lost is in the buffer, or stored.
    Kept(Kept),
    Moved(ConnectionEvent),
}

pub(super) struct Attempt<'a> {
    child: &'a mut Child,
    link: &'a mut Connection,
    /// The output of the worker between attempts.
    idle_tail: &'a mut Tail,
    recent: &'a mut RecentAttempts,
    policy: &'a ProcessPolicy,
    id: String,
    work: Work,
    /// The task's folder, whatever the worker does to its path.
    folder: Option<TaskFolder>,
    control: Control,
    stage: AttemptStage,
    /// Only the first result counts.
    result: Option<WorkerAnswer>,
    steps: HashSet<String>,
    saving: Option<Saving>,
    /// A file that the worker has reported, while it is being read.
    filing: Option<Filing>,
    /// An event that must not be lost, while it waits.
    keeping: Option<Keeping>,
    stdout: Lines,
    stderr: Lines,
    /// The end of stdout and stderr during this attempt.
    tail: Tail,
    stall: StallWatch,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        WorkerProcess { child, link, idle_tail, recent, .. }: &'a mut WorkerProcess,
        policy: &'a ProcessPolicy,
        work: Work,
        folder: Option<TaskFolder>,
        control: Control,
    ) -> Self {
        let (out, err) = (control.events.clone(), control.events.clone());
        let stall = StallWatch::new(policy.stuck_after, child.pid());
        Self {
            child,
            link,
            idle_tail,
            recent,
            policy,
            id: work.task.to_string(),
            work,
            folder,
            control,
            stage: AttemptStage::Running,
            result: None,
            steps: HashSet::new(),
            saving: None,
            filing: None,
            keeping: None,
            stdout: Lines::new(out, LogStream::Stdout, policy.max_log_bytes),
            stderr: Lines::new(err, LogStream::Stderr, policy.max_log_bytes),
            tail: Tail::default(),
            stall,
        }
    }

    /// Runs the attempt to its end.
    pub(super) async fn follow(mut self) -> AttemptResult {
        let timer = tokio::time::sleep(self.work.timeout);
        tokio::pin!(timer);
        let earlier = match earlier(&self.control, self.work.timeout, timer.as_mut()).await {
            Ok(earlier) => earlier,
            Err(ended) => return ended,
        };
        if self.child.has_ended() {
            return AttemptResult::handed_back().dead();
        }
        // The pipes contain output from before this attempt: it must not appear in its log or its failure.
        let Self { link, idle_tail, .. } = &mut self;
        link.read_rest(|_, chunk| idle_tail.take(chunk));
        let mut refused = Ok(());
        self.link.say(|into| refused = outgoing::task(into, &self.id, &self.work, &earlier));
        if let Err(why) = refused {
            return AttemptResult::failed_with(
                ErrorClass::Permanent,
                format!("the task cannot be sent to a worker: {why}"),
            );
        }
        if !self.link.is_heard() {
            // The worker had died before, and never received this task. One whose death becomes known only now may have died of it.
            return AttemptResult::handed_back().dead();
        }
        let ended = self.converse(timer).await;
        self.recent.add(self.id, self.work.token);
        self.stdout.finish();
        self.stderr.finish();
        ended
    }

    async fn converse(&mut self, mut timer: Pin<&mut Sleep>) -> AttemptResult {
        loop {
            let listens = matches!(self.stage, AttemptStage::Running);
            let losable = !matches!(self.stage, AttemptStage::Killed(_));
            // Further frames wait while a step is being saved, or a file is being read.
            let ear = if self.is_busy() { Listening::Shut } else { Listening::Open };
            // In this order: an exit comes before a deadline, and a flood of output does not delay the timer.
            let event = tokio::select! {
                biased;
                exit = self.child.ended() => WorkerEvent::Exit(exit),
                () = self.control.lost.cancelled(), if losable => WorkerEvent::Lost,
                () = &mut timer => WorkerEvent::Timer,
                () = self.control.cancel.cancelled(), if listens => WorkerEvent::Cancel,
                () = self.stall.due(), if listens => WorkerEvent::Look,
                (name, saved) = maybe(&mut self.saving) => WorkerEvent::Saved(name, saved),
                note = maybe(&mut self.filing) => WorkerEvent::Filed(note),
                kept = maybe(&mut self.keeping) => WorkerEvent::Kept(kept),
                moved = self.link.moved(ear) => WorkerEvent::Moved(moved),
            };
            match event {
                WorkerEvent::Exit(exit) => return self.mourn(exit).await,
                WorkerEvent::Lost => match std::mem::replace(&mut self.stage, AttemptStage::Running) {
                    AttemptStage::Running | AttemptStage::Leaving(None) => {
                        self.kill(EndReason::Cancel, timer.as_mut());
                    }
                    AttemptStage::Told(why)
                    | AttemptStage::Terminating(why)
                    | AttemptStage::Killed(why)
                    | AttemptStage::Leaving(Some(why)) => self.kill(why, timer.as_mut()),
                },
                WorkerEvent::Timer => match std::mem::replace(&mut self.stage, AttemptStage::Running) {
                    AttemptStage::Running => self.overdue(timer.as_mut()),
                    AttemptStage::Told(why) => self.terminate(why, timer.as_mut()),
                    AttemptStage::Terminating(why) => self.kill(why, timer.as_mut()),
                    AttemptStage::Leaving(why) => {
                        let crash = self.crash("closed its socket and kept running".to_owned());
                        self.kill(why.unwrap_or(EndReason::Failed(crash)), timer.as_mut());
                    }
                    // Killed and still alive: the worker hangs in the kernel.
                    AttemptStage::Killed(why) => return self.judge(why).unresponsive(),
                },
                WorkerEvent::Look => self.look(timer.as_mut()),
                WorkerEvent::Cancel => self.tell(EndReason::Cancel, "the task is to stop", timer.as_mut()),
                WorkerEvent::Saved(name, saved) => {
                    self.saving = None;
                    self.answer_step(&name, saved, timer.as_mut());
                }
                WorkerEvent::Filed(note) => {
                    self.filing = None;
                    note.into_iter().for_each(|note| self.control.events.say(note));
                }
                WorkerEvent::Kept(kept) => {
                    self.keeping = None;
                    self.answer_kept(kept, timer.as_mut());
                }
                WorkerEvent::Moved(ConnectionEvent::Wrote(stream)) => {
                    self.stall.alive();
                    self.log(stream);
                }
                WorkerEvent::Moved(ConnectionEvent::Closed) => self.closed(timer.as_mut()),
                WorkerEvent::Moved(ConnectionEvent::Received) => self.stall.alive(),
            }
            // Frames received together with a step or a file are still in the buffer.
            if !self.is_busy() {
                self.hear(timer.as_mut());
            }
            if let Some(ended) = self.answer() {
                return ended;
            }
        }
    }

    /// Ends an attempt that is stuck.
    fn look(&mut self, timer: Pin<&mut Sleep>) {
        // The worker may be waiting for this node.
        if self.is_busy() {
            self.stall.alive();
        }
        if let Some(stuck) = self.stall.look() {
            let stuck = Failure { details: self.tail.text(), ..stuck };
            self.terminate(EndReason::Failed(stuck), timer);
        }
    }

    /// Whether a frame of the worker is still being processed.
    const fn is_busy(&self) -> bool {
        self.saving.is_some() || self.filing.is_some() || self.keeping.is_some()
    }

    /// Handles a closed socket. Nearly always the worker has died, which is known in a moment.
    fn closed(&mut self, timer: Pin<&mut Sleep>) {
        let why = match std::mem::replace(&mut self.stage, AttemptStage::Running) {
            AttemptStage::Running => None,
            AttemptStage::Told(why) => Some(why),
            ending @ (AttemptStage::Terminating(_) | AttemptStage::Killed(_) | AttemptStage::Leaving(_)) => {
                return self.stage = ending;
            }
        };
        self.stage = AttemptStage::Leaving(why);
        timer.reset(after(LAST_GASP));
    }

    /// Handles received frames, up to a step to save, a file to read, or the result.
    fn hear(&mut self, mut timer: Pin<&mut Sleep>) {
        while !self.is_busy() && self.result.is_none() {
            match self.link.next() {
                Ok(None) => return,
                Ok(Some(IncomingFrame::Unknown | IncomingFrame::Ready { .. })) => {}
                Ok(Some(IncomingFrame::Of { id, token, what })) => {
                    if id == self.id && token == self.work.token {
                        self.take(what, timer.as_mut());
                    } else if !self.recent.has(&id, token) {
                        return self.fault(strange(&id, token, Some((&self.id, self.work.token))), timer);
                    }
                }
                Err(nonsense) => return self.nonsense(&nonsense, timer),
            }
        }
    }

    fn take(&mut self, what: AttemptFrame, timer: Pin<&mut Sleep>) {
        match what {
            AttemptFrame::Event(event) => self.record(event),
            AttemptFrame::File(path) => self.filing = Some(filing(self.folder.clone(), path)),
            AttemptFrame::Step { name, value } => self.step(name, value, timer),
            AttemptFrame::Done(output) => self.finish(output),
            AttemptFrame::Failed(failure, classing) => self.result = Some(Err((failure, classing))),
        }
    }

    /// Records an event. While one that must not be lost waits for room, or for its storage, no more frames are read: so a store
    /// that is slower than the worker slows the worker down.
    fn record(&mut self, event: EventBody) {
        match event.kind().loss() {
            Loss::Thinned => self.control.events.say(event),
            Loss::None if event.kind() == EventKind::Warning => self.control.events.say(event),
            Loss::None => self.keeping = Some(keep(self.control.events.clone(), event)),
        }
    }

    fn answer_kept(&mut self, kept: Kept, timer: Pin<&mut Sleep>) {
        let (id, token) = (self.id.as_str(), self.work.token);
        match kept {
            Kept::Event => {}
            Kept::Session(session) => self.link.say(|into| outgoing::session(into, id, token, &session)),
            Kept::Lost => {
                self.link.say(|into| outgoing::lost(into, id, token));
                self.told(EndReason::Cancel, timer);
            }
        }
    }

    fn finish(&mut self, output: Option<String>) {
        let (bytes, most) = (output.as_ref().map_or(0, String::len), self.policy.max_output_bytes);
        self.result = Some(if bytes > most {
            Err((too_large(most), ClassSource::Given))
        } else if output.as_deref().is_some_and(is_too_deep) {
            Err((too_deep(), ClassSource::Given))
        } else {
            Ok(output)
        });
    }

    fn step(&mut self, name: String, value: String, timer: Pin<&mut Sleep>) {
        if !self.steps.insert(name.clone()) {
            let message = format!("the step \"{name}\" is done twice in one attempt; each has its own name");
            let failure = Failure { step: Some(name), ..Failure::new(ErrorClass::Permanent, message) };
            return self.tell(EndReason::Failed(failure), "a step name is used twice", timer);
        }
        match self.control.steps.store() {
            Some(supervisor) => self.saving = Some(save(Arc::clone(supervisor), name, value)),
            None => self.answer_step(&name, Ok(()), timer),
        }
    }

    fn answer_step(&mut self, name: &str, saved: Result<(), StepError>, timer: Pin<&mut Sleep>) {
        let (id, token) = (self.id.as_str(), self.work.token);
        let (class, why) = match saved {
            Ok(()) => return self.link.say(|into| outgoing::saved(into, id, token, name)),
            Err(StepError::Lost) => {
                self.link.say(|into| outgoing::lost(into, id, token));
                // No further frame of the worker counts.
                return self.told(EndReason::Cancel, timer);
            }
            Err(StepError::Refused(why)) => (ErrorClass::Permanent, why),
            Err(StepError::Away(why)) => (ErrorClass::Transient, why),
        };
        let message = format!("the step \"{name}\" is not kept: {why}");
        let failure = Failure { step: Some(name.to_owned()), ..Failure::new(class, message) };
        self.tell(EndReason::Failed(failure), "a step could not be saved", timer);
    }

    fn log(&mut self, stream: OutputStream) {
        let chunk = &self.link.chunk;
        self.tail.take(chunk);
        match stream {
            OutputStream::Stdout => self.stdout.take(chunk),
            OutputStream::Stderr => self.stderr.take(chunk),
        }
    }

    /// Logs what the worker wrote before its result or its exit: it belongs to this attempt.
    fn log_rest(&mut self) {
        let Self { link, stdout, stderr, tail, .. } = self;
        link.read_rest(|stream, chunk| {
            tail.take(chunk);
            match stream {
                OutputStream::Stdout => stdout.take(chunk),
                OutputStream::Stderr => stderr.take(chunk),
            }
        });
    }

    // ---- ways to end the worker ----

    /// Asks the worker to stop, and gives it the grace period.
    fn tell(&mut self, why: EndReason, reason: &str, timer: Pin<&mut Sleep>) {
        let (id, token) = (self.id.as_str(), self.work.token);
        if matches!(self.stage, AttemptStage::Running) {
            self.link.say(|into| outgoing::cancel(into, id, token, reason));
        }
        self.told(why, timer);
    }

    fn told(&mut self, why: EndReason, mut timer: Pin<&mut Sleep>) {
        match self.stage {
            AttemptStage::Running => timer.as_mut().reset(after(self.work.grace)),
            // The worker is being ended already; but a failure takes precedence over a cancel.
            AttemptStage::Told(EndReason::Cancel) if matches!(why, EndReason::Failed(_)) => {}
            AttemptStage::Told(_)
            | AttemptStage::Terminating(_)
            | AttemptStage::Killed(_)
            | AttemptStage::Leaving(_) => return,
        }
        self.stage = AttemptStage::Told(why);
    }

    /// The time of the attempt is up: the worker is asked to stop, and soon gets a signal.
    fn overdue(&mut self, mut timer: Pin<&mut Sleep>) {
        self.tell(EndReason::Deadline, "its time is up", timer.as_mut());
        timer.reset(after(self.notice()));
    }

    /// How long a worker may take to stop by itself when its time is up, before it gets a signal.
    fn notice(&self) -> Duration {
        MAX_NOTICE.min(self.work.grace / 2)
    }

    fn terminate(&mut self, why: EndReason, timer: Pin<&mut Sleep>) {
        self.child.terminate();
        let used = if matches!(why, EndReason::Deadline) { self.notice() } else { Duration::ZERO };
        self.stage = AttemptStage::Terminating(why);
        timer.reset(after(self.work.grace - used));
    }

    fn kill(&mut self, why: EndReason, timer: Pin<&mut Sleep>) {
        self.child.kill();
        self.stage = AttemptStage::Killed(why);
        timer.reset(after(self.work.grace.max(MIN_KILL_PATIENCE)));
    }

    /// Handles a violation of the protocol: the worker is ended, and the attempt is a crash.
    fn fault(&mut self, what: String, timer: Pin<&mut Sleep>) {
        let crash = self.crash(what);
        match std::mem::replace(&mut self.stage, AttemptStage::Running) {
            AttemptStage::Running
            | AttemptStage::Told(EndReason::Cancel)
            | AttemptStage::Leaving(None | Some(EndReason::Cancel)) => {
                self.kill(EndReason::Failed(crash), timer);
            }
            AttemptStage::Told(why) | AttemptStage::Terminating(why) | AttemptStage::Leaving(Some(why)) => {
                self.kill(why, timer);
            }
            // Frames after the kill do not matter.
            killed @ AttemptStage::Killed(_) => self.stage = killed,
        }
    }

    fn nonsense(&mut self, nonsense: &Nonsense, timer: Pin<&mut Sleep>) {
        match nonsense {
            Nonsense::Bad(error) => self.fault(error.to_string(), timer),
            Nonsense::Long(long) if begins_as_result(&long.beginning) => {
                self.kill(EndReason::Failed(too_large(outgoing::MAX_FRAME_BYTES)), timer);
            }
            Nonsense::Long(_) => self.fault("sent a frame that is longer than 16 MiB".to_owned(), timer),
        }
    }

    fn crash(&mut self, what: String) -> Failure {
        let message = if what.starts_with("the worker") { what } else { format!("the worker {what}") };
        let details = self.tail.text();
        let message = match details.as_deref().and_then(reason) {
            Some(line) => format!("{message}: {line}"),
            None => message,
        };
        Failure { details, ..Failure::new(ErrorClass::Crash, message) }
    }

    // ---- the result ----

    /// The result of the attempt, if it has arrived and the worker stays alive.
    fn answer(&mut self) -> Option<AttemptResult> {
        match &self.stage {
            AttemptStage::Running | AttemptStage::Told(_) => {}
            // The worker is exiting: wait for its exit, so that nothing of it is left.
            AttemptStage::Terminating(_) | AttemptStage::Killed(_) | AttemptStage::Leaving(_) => return None,
        }
        let result = self.result.take()?;
        self.log_rest();
        let why = match std::mem::replace(&mut self.stage, AttemptStage::Running) {
            AttemptStage::Told(why) => Some(why),
            AttemptStage::Running
            | AttemptStage::Terminating(_)
            | AttemptStage::Killed(_)
            | AttemptStage::Leaving(_) => None,
        };
        Some(match (result, why) {
            // Whatever it says, it did not finish in time.
            (Err(_), Some(EndReason::Deadline)) => self.judge(EndReason::Deadline),
            (result, why) => conclude(result, why),
        })
    }

    /// Handles the exit of the worker. Frames that it sent before count.
    async fn mourn(&mut self, exit: Result<Exit, SupervisorGone>) -> AttemptResult {
        if let Some(saving) = &mut self.saving {
            // The step is written or not, whether or not this waits for it.
            let _ = tokio::time::timeout(self.work.grace, saving).await;
            self.saving = None;
        }
        let (filing, keeping) = (self.filing.take(), self.keeping.take());
        let Rest { files, events: rest } = self.hear_rest();
        let events = self.control.events.clone();
        let filed = async move {
            if let Some(keeping) = keeping {
                keeping.await;
            }
            for event in rest {
                let _ = events.send(event).await;
            }
            for file in filing.into_iter().chain(files) {
                file.await.into_iter().for_each(|event| events.say(event));
            }
        };
        let time = match self.stage {
            AttemptStage::Running | AttemptStage::Told(_) | AttemptStage::Leaving(_) => self.work.grace,
            // Its time is up.
            AttemptStage::Terminating(_) | AttemptStage::Killed(_) => Duration::ZERO,
        };
        let _ = tokio::time::timeout(time, filed).await;
        self.log_rest();
        let (result, stage) = (self.result.take(), std::mem::replace(&mut self.stage, AttemptStage::Running));
        let ended = match (stage, result) {
            (AttemptStage::Running | AttemptStage::Leaving(None), Some(result)) => conclude(result, None),
            (
                AttemptStage::Told(EndReason::Cancel)
                | AttemptStage::Terminating(EndReason::Cancel)
                | AttemptStage::Leaving(Some(EndReason::Cancel)),
                Some(result),
            ) => conclude(result, Some(EndReason::Cancel)),
            (AttemptStage::Running | AttemptStage::Leaving(None), None) => {
                AttemptResult::failed(self.died(exit))
            }
            (
                AttemptStage::Told(why)
                | AttemptStage::Terminating(why)
                | AttemptStage::Killed(why)
                | AttemptStage::Leaving(Some(why)),
                _,
            ) => self.judge(why),
        };
        ended.dead()
    }

    /// Handles the frames that a dead worker has sent, up to its result. Steps are not saved: no worker receives the reply.
    fn hear_rest(&mut self) -> Rest {
        let mut rest = Rest::default();
        loop {
            while self.result.is_none() {
                match self.link.next() {
                    Ok(Some(IncomingFrame::Of { id, token, what }))
                        if id == self.id && token == self.work.token =>
                    {
                        match what {
                            AttemptFrame::Event(event) => rest.events.push(event),
                            AttemptFrame::File(path) if rest.files.len() < MAX_FILES => {
                                rest.files.push(filing(self.folder.clone(), path));
                            }
                            AttemptFrame::File(_) => {}
                            AttemptFrame::Done(output) => self.finish(output),
                            AttemptFrame::Failed(failure, classing) => {
                                self.result = Some(Err((failure, classing)));
                            }
                            AttemptFrame::Step { .. } => {}
                        }
                    }
                    Ok(Some(
                        IncomingFrame::Of { .. } | IncomingFrame::Unknown | IncomingFrame::Ready { .. },
                    )) => {}
                    Ok(None) => break,
                    Err(_) => return rest,
                }
            }
            if self.result.is_some() || !self.link.receive_rest() {
                return rest;
            }
        }
    }

    fn died(&mut self, exit: Result<Exit, SupervisorGone>) -> Failure {
        let what = match exit {
            Ok(exit) => {
                let half = if self.link.is_in_a_frame() { ", in the middle of a frame" } else { "" };
                format!("{} before it gave a result{half}", verdict::how(exit))
            }
            Err(gone) => return Failure::new(ErrorClass::Crash, gone.to_string()),
        };
        Failure { hint: exit.ok().and_then(verdict::hint), ..self.crash(what) }
    }

    fn judge(&mut self, why: EndReason) -> AttemptResult {
        match why {
            EndReason::Cancel => AttemptResult::cancelled(),
            EndReason::Deadline => AttemptResult::too_long(self.work.timeout).with_details(self.tail.text()),
            EndReason::Failed(failure) => AttemptResult::failed(failure),
        }
    }
}

/// What a dead worker has sent and is not recorded yet. The socket's buffer bounds it.
#[derive(Default)]
struct Rest {
    /// Files, which are being read.
    files: Vec<Filing>,
    events: Vec<EventBody>,
}

fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    // For a wait beyond the range of the clock.
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now.checked_add(wait).unwrap_or(now + FAR)
}
