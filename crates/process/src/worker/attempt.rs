//! One attempt on a worker: what is sent to the worker for it, and what the worker sends, from the task frame to the result.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, EventKind, Failure, LogStream, Loss, is_too_deep};
use ostler_exec::{AttemptResult, ClassSource, Control, MAX_FILES, StepError, TaskCallError, Work};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::connection::{Connection, OutputStream};
use super::end_reason::{EndReason, WorkerAnswer, conclude, too_deep, too_large};
use super::extension::{AttemptCalls, AttemptExtension, KnownContents};
use super::incoming::AttemptFrame;
use super::outgoing;
use super::policy::ProcessPolicy;
use super::processing::{Processed, Processing, TaskAnswer, ask, file, keep, save};
use super::steps::Earlier;
use crate::files::{Filing, filing};
use crate::folders::TaskFolder;
use crate::lines::{Lines, Tail, reason};
use crate::supervisor::Exit;

/// The longest time between the frame that asks an overdue attempt to stop and SIGTERM.
const MAX_NOTICE: Duration = Duration::from_secs(3);

/// What happens to an attempt besides the frames of its worker.
pub(super) enum AttemptEvent {
    /// The lease is lost: the worker is killed at once.
    Lost,
    /// Its time is up, or that to stop after it was told.
    Timer,
    Cancel,
    Processed(Processed),
    /// The answer to the call with this number: JSON text.
    Answered(u64, String),
}

/// Which events of an attempt are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expecting {
    All,
    /// Its worker is being ended.
    Loss,
    /// Its worker is killed.
    Nothing,
}

type Signal = Option<Pin<Box<WaitForCancellationFutureOwned>>>;

pub(super) struct Attempt {
    pub(super) id: String,
    pub(super) work: Work,
    /// What earlier attempts left, until the task is sent.
    earlier: Earlier,
    /// The task's folder, whatever the worker does to its path.
    folder: Option<TaskFolder>,
    control: Control,
    lost: Signal,
    cancel: Signal,
    timer: Pin<Box<Sleep>>,
    /// Why it is being ended, if it is.
    pub(super) reason: Option<EndReason>,
    /// Only the first result counts.
    result: Option<WorkerAnswer>,
    max_output_bytes: usize,
    steps: HashSet<String>,
    /// A frame that takes time.
    processing: Option<Processing>,
    calls: AttemptCalls,
    /// Frames that were received meanwhile.
    waiting: VecDeque<AttemptFrame>,
    stdout: Lines,
    stderr: Lines,
    /// The end of stdout and stderr during this attempt.
    pub(super) tail: Tail,
    reply: oneshot::Sender<AttemptResult>,
}

impl Attempt {
    /// An attempt that has yet to be sent to its worker, and the receiver of its result.
    pub(super) fn new(
        policy: &ProcessPolicy,
        work: Work,
        earlier: Earlier,
        folder: Option<TaskFolder>,
        extension: Option<Arc<dyn AttemptExtension>>,
        control: Control,
        timer: Pin<Box<Sleep>>,
    ) -> (Self, oneshot::Receiver<AttemptResult>) {
        let (reply, answer) = oneshot::channel();
        let lines = |stream| Lines::new(control.events.clone(), stream, policy.max_log_bytes);
        let signal =
            |token: &tokio_util::sync::CancellationToken| Some(Box::pin(token.clone().cancelled_owned()));
        let attempt = Self {
            id: work.task.to_string(),
            earlier,
            folder,
            lost: signal(&control.lost),
            cancel: signal(&control.cancel),
            timer,
            reason: None,
            result: None,
            max_output_bytes: policy.max_output_bytes,
            steps: HashSet::new(),
            processing: None,
            calls: AttemptCalls::new(extension),
            waiting: VecDeque::new(),
            stdout: lines(LogStream::Stdout),
            stderr: lines(LogStream::Stderr),
            tail: Tail::default(),
            reply,
            work,
            control,
        };
        (attempt, answer)
    }

    /// Sends the task to the worker. Returns the result of an attempt whose worker cannot get it.
    pub(super) fn send(&mut self, link: &mut Connection, known: &mut KnownContents) -> Option<AttemptResult> {
        let mut refused = Ok(());
        let extension = self.calls.extension().map(|extension| &**extension);
        let more = extension.map(|extension| known.fields(extension)).unwrap_or_default();
        let (id, work, earlier) = (&self.id, &self.work, std::mem::take(&mut self.earlier));
        link.say(|into| refused = outgoing::task(into, id, work, &earlier, &more));
        if let Err(why) = refused {
            let message = format!("the task cannot be sent to a worker: {why}");
            return Some(AttemptResult::failed_with(ErrorClass::Permanent, message));
        }
        if !link.is_heard() {
            // The worker had died before, and never received this task. One whose death becomes known only now may have died of it.
            return Some(AttemptResult::handed_back().dead());
        }
        extension.into_iter().for_each(|extension| known.add(extension));
        None
    }

    pub(super) fn is(&self, id: &str, token: u64) -> bool {
        self.work.token == token && self.id == id
    }

    /// Whether a frame of the worker is still being processed.
    pub(super) const fn is_busy(&self) -> bool {
        self.processing.is_some()
    }

    /// Whether the worker may be waiting for an answer of the node.
    pub(super) fn is_asking(&self) -> bool {
        self.is_busy() || self.calls.are_open()
    }

    /// How many of its frames wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) const fn has_result(&self) -> bool {
        self.result.is_some()
    }

    pub(super) fn poll_event(
        &mut self,
        expecting: Expecting,
        context: &mut Context<'_>,
    ) -> Poll<AttemptEvent> {
        if expecting != Expecting::Nothing && poll_signal(&mut self.lost, context).is_ready() {
            return Poll::Ready(AttemptEvent::Lost);
        }
        if expecting == Expecting::All {
            if self.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(AttemptEvent::Timer);
            }
            if self.reason.is_none() && poll_signal(&mut self.cancel, context).is_ready() {
                return Poll::Ready(AttemptEvent::Cancel);
            }
        }
        if let Poll::Ready((number, answer)) = self.calls.poll(context) {
            return Poll::Ready(AttemptEvent::Answered(number, answer));
        }
        let Some(processing) = &mut self.processing else { return Poll::Pending };
        let processed = ready!(processing.as_mut().poll(context));
        self.processing = None;
        Poll::Ready(AttemptEvent::Processed(processed))
    }

    // ---- frames of the worker ----

    /// Handles a frame, now or after those before it.
    pub(super) fn hear(&mut self, frame: AttemptFrame, link: &mut Connection) {
        self.waiting.push_back(frame);
        self.go_on(link);
    }

    /// Handles frames that waited, up to one that takes time, or the result.
    pub(super) fn go_on(&mut self, link: &mut Connection) {
        while !self.is_busy() && self.result.is_none() {
            let Some(frame) = self.waiting.pop_front() else { return };
            self.take(frame, link);
        }
    }

    fn take(&mut self, frame: AttemptFrame, link: &mut Connection) {
        match frame {
            AttemptFrame::Event(event) => self.record(event),
            AttemptFrame::File(path) => self.processing = Some(file(self.folder.clone(), path)),
            AttemptFrame::Step { name, value } => self.step(name, value, link),
            AttemptFrame::Request(number, request) => {
                self.processing = Some(ask(self.control.tasks.clone(), number, request));
            }
            AttemptFrame::Call(number, call) => {
                if let Err(why) = self.calls.begin(number, call) {
                    link.say(|into| outgoing::call_refused(into, &self.id, self.work.token, number, &why));
                }
            }
            AttemptFrame::Done(output) => self.finish(output),
            AttemptFrame::Failed(failure, classing) => self.result = Some(Err((failure, classing))),
        }
    }

    /// Sends the answer to a call.
    pub(super) fn answered(&self, number: u64, answer: &str, link: &mut Connection) {
        link.say(|into| outgoing::call_answer(into, &self.id, self.work.token, number, answer));
    }

    /// Records an event. While one that must not be lost waits for room, or for its storage, no more frames are handled: so a store
    /// that is slower than the worker slows the worker down.
    fn record(&mut self, event: EventBody) {
        match event.kind().loss() {
            Loss::Thinned => self.control.events.say(event),
            Loss::None if event.kind() == EventKind::Warning => self.control.events.say(event),
            Loss::None => self.processing = Some(keep(self.control.events.clone(), event)),
        }
    }

    fn finish(&mut self, output: Option<String>) {
        let (bytes, most) = (output.as_ref().map_or(0, String::len), self.max_output_bytes);
        self.result = Some(if bytes > most {
            Err((too_large(most), ClassSource::Given))
        } else if output.as_deref().is_some_and(is_too_deep) {
            Err((too_deep(), ClassSource::Given))
        } else {
            Ok(output)
        });
    }

    fn step(&mut self, name: String, value: String, link: &mut Connection) {
        if !self.steps.insert(name.clone()) {
            let message = format!("the step \"{name}\" is done twice in one attempt; each has its own name");
            let failure = Failure { step: Some(name), ..Failure::new(ErrorClass::Permanent, message) };
            return self.tell(EndReason::Failed(failure), "a step name is used twice", link);
        }
        match self.control.steps.store() {
            Some(store) => self.processing = Some(save(Arc::clone(store), name, value)),
            None => self.answer_step(&name, Ok(()), link),
        }
    }

    /// Answers a frame that took time.
    pub(super) fn processed(&mut self, processed: Processed, link: &mut Connection) {
        let (id, token) = (self.id.as_str(), self.work.token);
        match processed {
            Processed::Saved(name, saved) => self.answer_step(&name, saved, link),
            Processed::Filed(note) => note.into_iter().for_each(|note| self.control.events.say(note)),
            Processed::Event => {}
            Processed::Session(session) => link.say(|into| outgoing::session(into, id, token, &session)),
            Processed::Answered(number, Ok(TaskAnswer::Submitted(task))) => {
                link.say(|into| outgoing::submitted(into, id, token, number, task));
            }
            Processed::Answered(number, Ok(TaskAnswer::Found(task))) => {
                link.say(|into| outgoing::found(into, id, token, number, task.as_deref()));
            }
            Processed::Answered(number, Err(TaskCallError::Refused(why))) => {
                link.say(|into| outgoing::refused(into, id, token, number, ErrorClass::Permanent, &why));
            }
            Processed::Answered(number, Err(TaskCallError::Away(why))) => {
                link.say(|into| outgoing::refused(into, id, token, number, ErrorClass::Transient, &why));
            }
            Processed::Answered(_, Err(TaskCallError::Lost)) | Processed::Lost => self.is_lost(link),
        }
    }

    /// No further frame of the worker counts.
    fn is_lost(&mut self, link: &mut Connection) {
        link.say(|into| outgoing::lost(into, &self.id, self.work.token));
        self.told(EndReason::Cancel);
    }

    fn answer_step(&mut self, name: &str, saved: Result<(), StepError>, link: &mut Connection) {
        let (id, token) = (self.id.as_str(), self.work.token);
        let (class, why) = match saved {
            Ok(()) => return link.say(|into| outgoing::saved(into, id, token, name)),
            Err(StepError::Lost) => return self.is_lost(link),
            Err(StepError::Refused(why)) => (ErrorClass::Permanent, why),
            Err(StepError::Away(why)) => (ErrorClass::Transient, why),
        };
        let message = format!("the step \"{name}\" is not kept: {why}");
        let failure = Failure { step: Some(name.to_owned()), ..Failure::new(class, message) };
        self.tell(EndReason::Failed(failure), "a step could not be saved", link);
    }

    // ---- ways to stop ----

    /// Asks the worker to stop the attempt, and gives it the grace period.
    pub(super) fn tell(&mut self, why: EndReason, reason: &str, link: &mut Connection) {
        if self.reason.is_none() {
            link.say(|into| outgoing::cancel(into, &self.id, self.work.token, reason));
        }
        self.told(why);
    }

    fn told(&mut self, why: EndReason) {
        match self.reason {
            None => self.timer.as_mut().reset(after(self.work.grace)),
            // It is being stopped already; but a failure takes precedence over a cancel.
            Some(EndReason::Cancel) if matches!(why, EndReason::Failed(_)) => {}
            Some(EndReason::Cancel | EndReason::Deadline | EndReason::Failed(_)) => return,
        }
        self.reason = Some(why);
    }

    /// The time of the attempt is up: the worker is asked to stop it, and soon gets a signal.
    pub(super) fn overdue(&mut self, link: &mut Connection) {
        self.tell(EndReason::Deadline, "its time is up", link);
        let notice = self.notice();
        self.timer.as_mut().reset(after(notice));
    }

    /// How long a worker may take to stop by itself when its time is up, before it gets a signal.
    fn notice(&self) -> Duration {
        MAX_NOTICE.min(self.work.grace / 2)
    }

    /// How long a worker may take to exit after SIGTERM, on account of this attempt.
    pub(super) fn term_grace(&self) -> Duration {
        let used =
            if matches!(self.reason, Some(EndReason::Deadline)) { self.notice() } else { Duration::ZERO };
        self.work.grace - used
    }

    // ---- output ----

    pub(super) fn log(&mut self, stream: OutputStream, chunk: &[u8]) {
        self.tail.take(chunk);
        match stream {
            OutputStream::Stdout => self.stdout.take(chunk),
            OutputStream::Stderr => self.stderr.take(chunk),
        }
    }

    /// The failure of an attempt whose worker did this.
    pub(super) fn crash(&mut self, what: String) -> Failure {
        let message = if what.starts_with("the worker") { what } else { format!("the worker {what}") };
        let details = self.tail.text();
        let message = match details.as_deref().and_then(reason) {
            Some(line) => format!("{message}: {line}"),
            None => message,
        };
        Failure { details, ..Failure::new(ErrorClass::Crash, message) }
    }

    /// The failure that the exit of its worker tells, beyond a crash.
    pub(super) fn death(&self, exit: Exit) -> Option<Failure> {
        self.calls.death(exit)
    }

    // ---- the end ----

    /// The result, if it has arrived. The worker stays alive.
    pub(super) fn answer(&mut self) -> Option<AttemptResult> {
        let result = self.result.take()?;
        Some(match (result, self.reason.take()) {
            // Whatever it says, it did not finish in time.
            (Err(_), Some(EndReason::Deadline)) => self.judge(EndReason::Deadline),
            (result, why) => conclude(result, why),
        })
    }

    /// Records, within this time, what its dead worker had sent. Steps are not saved, and questions not asked: no worker receives the
    /// reply.
    pub(super) async fn settle(&mut self, until: Instant) {
        let (processing, waiting) = (self.processing.take(), std::mem::take(&mut self.waiting));
        let (mut events, mut files) = (Vec::new(), Vec::<Filing>::new());
        for frame in waiting {
            match frame {
                AttemptFrame::Event(event) if self.result.is_none() => events.push(event),
                AttemptFrame::File(path) if self.result.is_none() && files.len() < MAX_FILES => {
                    files.push(filing(self.folder.clone(), path));
                }
                AttemptFrame::Done(output) if self.result.is_none() => self.finish(output),
                AttemptFrame::Failed(failure, classing) if self.result.is_none() => {
                    self.result = Some(Err((failure, classing)));
                }
                AttemptFrame::Event(_)
                | AttemptFrame::File(_)
                | AttemptFrame::Done(_)
                | AttemptFrame::Failed(..)
                | AttemptFrame::Step { .. }
                | AttemptFrame::Request(..)
                | AttemptFrame::Call(..) => {}
            }
        }
        let sink = &self.control.events;
        let settled = async {
            // A step is written or not, whether or not this waits for it.
            if let Some(processing) = processing
                && let Processed::Filed(note) = processing.await
            {
                note.into_iter().for_each(|note| sink.say(note));
            }
            for event in events {
                let _ = sink.send(event).await;
            }
            for file in files {
                file.await.into_iter().for_each(|event| sink.say(event));
            }
        };
        let _ = tokio::time::timeout_at(until, settled).await;
    }

    /// Keeps a frame that its dead worker had sent.
    pub(super) fn keep_frame(&mut self, frame: AttemptFrame) {
        self.waiting.push_back(frame);
    }

    /// The result of an attempt whose worker was ended because of it.
    pub(super) fn judge(&mut self, why: EndReason) -> AttemptResult {
        match why {
            EndReason::Cancel => AttemptResult::cancelled(),
            EndReason::Deadline => AttemptResult::too_long(self.work.timeout).with_details(self.tail.text()),
            EndReason::Failed(failure) => AttemptResult::failed(failure),
        }
    }

    pub(super) fn take_result(&mut self) -> Option<WorkerAnswer> {
        self.result.take()
    }

    /// Adds a warning to its events.
    pub(super) fn warn(&self, text: String) {
        self.control.events.say(EventBody::warning(text));
    }

    /// Hands the result to the caller.
    pub(super) fn end(self, ended: AttemptResult) {
        self.stdout.finish();
        self.stderr.finish();
        // A caller that is gone has given the worker up.
        let _ = self.reply.send(ended);
    }
}

fn poll_signal(signal: &mut Signal, context: &mut Context<'_>) -> Poll<()> {
    let Some(waiting) = signal else { return Poll::Pending };
    ready!(waiting.as_mut().poll(context));
    *signal = None;
    Poll::Ready(())
}

/// This far in the future, or as far as the clock goes.
pub(super) fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    // For a wait beyond the range of the clock.
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now.checked_add(wait).unwrap_or(now + FAR)
}
