//! One process of an agent, from its start to its end. One loop owns its pipes, its timers and the transcript.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use ostler_core::{Cost, LogStream};
use ostler_exec::{Control, RedactedStream};
use ostler_process::pipes::{read, write};
use ostler_process::supervisor::{Child, Exit};
use ostler_process::{Lines, Tail};
use tokio::time::{Instant, MissedTickBehavior, Sleep, interval, sleep, sleep_until};

use super::home::COUNT_INTERVAL;
use super::pacing::Pacing;
use super::policy::AgentPolicy;
use super::recorder::Recorder;
use crate::dialect::{AgentRun, LogLine};
use crate::ending::{ProcessExit, StopCause};
use crate::lines::{Line, LineSplitter};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long the pipes must be silent after the exit until they count as drained.
const SILENCE: Duration = Duration::from_millis(200);
/// How long to keep reading from a pipe that another process holds open and writes to.
const MAX_DRAIN: Duration = Duration::from_secs(5);
/// The minimum wait for a kill: a short grace period must not make a busy system look like a process that cannot die.
const MIN_KILL_PATIENCE: Duration = Duration::from_secs(2);

/// How a process ended.
pub(super) enum Followed {
    Ended {
        exit: ProcessExit,
        stop: StopCause,
        /// The end of its standard error.
        stderr: String,
    },
    /// It was killed and is still there: it hangs in the kernel.
    Unresponsive,
    /// The lease is lost: nothing that it said counts.
    Lost,
    /// The supervisor is gone, and the process with it.
    Unsupervised(String),
}

/// When a process has to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessLimits {
    pub(super) deadline: Instant,
    pub(super) grace: Duration,
    /// What the task may cost.
    pub(super) budget: Option<Cost>,
}

#[derive(Clone, Copy, Debug)]
enum ProcessStage {
    Running,
    /// It was asked in its own words.
    Asked(StopCause),
    /// SIGTERM was sent.
    Stopping(StopCause),
    /// SIGKILL was sent.
    Killed(StopCause),
    /// It has exited; the rest of the pipes is being read.
    Draining {
        exit: Exit,
        stop: StopCause,
        until: Instant,
    },
}

enum ProcessEvent {
    Exit(Exit),
    Gone(String),
    Lost,
    /// The current stage has timed out.
    Timer,
    Cancel,
    /// No sign of life for too long.
    Idle,
    /// No session for too long.
    Unopened,
    /// The result is there, and the process is too.
    Overdue,
    /// Time to write down how the conversation stands.
    Tick,
    /// Words have waited long enough for those that follow.
    Words,
    Stored,
    Stdin(io::Result<usize>),
    Stdout(io::Result<usize>),
    Stderr(io::Result<usize>),
    /// The pipes have been silent for a while.
    Silence,
}

pub(super) struct AgentProcess<'a> {
    pub(super) child: Child,
    pub(super) run: &'a mut AgentRun,
    pub(super) recorder: &'a mut Recorder,
    pub(super) control: &'a Control,
    pub(super) policy: &'a AgentPolicy,
    pub(super) limits: ProcessLimits,
}

impl AgentProcess<'_> {
    /// Follows the process to its end.
    pub(super) async fn follow(mut self) -> Followed {
        let mut stage = ProcessStage::Running;
        let (mut stdin, mut stdout, mut stderr) =
            (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take());
        let mut input = Vec::new();
        let (mut out, mut err) = (Vec::with_capacity(CHUNK_BYTES), Vec::with_capacity(CHUNK_BYTES));
        let mut reader = Reader::new(self.control, self.policy, self.run);
        let mut timer = std::pin::pin!(sleep_until(self.limits.deadline));
        let mut idle = std::pin::pin!(sleep(self.policy.idle_watchdog));
        let mut opening = std::pin::pin!(sleep(self.policy.opening_time()));
        let mut overdue = std::pin::pin!(sleep(self.limits.grace));
        let mut silence = std::pin::pin!(sleep(SILENCE));
        let mut pacing = Pacing::default();
        let mut ticks = interval(COUNT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (cancel, lost) = (self.control.cancel.clone(), self.control.lost.clone());
        loop {
            let is_free = self.recorder.is_free();
            let (runs, listens, drains) = match stage {
                ProcessStage::Running => (true, true, false),
                ProcessStage::Asked(_) | ProcessStage::Stopping(_) | ProcessStage::Killed(_) => {
                    (true, false, false)
                }
                ProcessStage::Draining { exit, stop, until } => {
                    let is_read = stdout.is_none() && stderr.is_none() || Instant::now() >= until;
                    if is_free && is_read {
                        // What is left of a line is one too.
                        if reader.finish(self.run, self.recorder) {
                            continue;
                        }
                        return Followed::Ended { exit: of(exit), stop, stderr: reader.last_words() };
                    }
                    (false, false, true)
                }
            };
            input.append(&mut self.recorder.take_input());
            if input.is_empty() && self.recorder.is_input_whole() {
                stdin = None;
            }
            // While it opens a session, it has a limit of its own.
            let is_opening = listens && self.run.is_opening();
            let is_busy = is_opening || self.recorder.has_tools() || self.recorder.has_result();
            let is_silent = listens && is_free && !is_busy;
            let is_sending = self.recorder.is_sending();
            let is_overdue = listens && self.recorder.has_result();
            let words_due = pacing.due().filter(|_| is_free);
            // In this order: an exit comes before a deadline, a flood of output does not delay a timer, and the output of a process that
            // has exited comes before the silence.
            let event = tokio::select! {
                biased;
                exit = self.child.ended(), if runs => exit.map_or_else(|gone| ProcessEvent::Gone(gone.to_string()), ProcessEvent::Exit),
                () = lost.cancelled() => ProcessEvent::Lost,
                () = &mut timer, if runs => ProcessEvent::Timer,
                () = cancel.cancelled(), if listens => ProcessEvent::Cancel,
                () = &mut idle, if is_silent => ProcessEvent::Idle,
                () = &mut opening, if is_opening => ProcessEvent::Unopened,
                () = &mut overdue, if is_overdue => ProcessEvent::Overdue,
                _ = ticks.tick(), if runs => ProcessEvent::Tick,
                () = sleep_until(words_due.unwrap_or_else(Instant::now)), if words_due.is_some() => ProcessEvent::Words,
                sent = write(&mut stdin, &input), if !input.is_empty() => ProcessEvent::Stdin(sent),
                () = self.recorder.sent(), if is_sending => ProcessEvent::Stored,
                read = read(&mut stderr, &mut err) => ProcessEvent::Stderr(read),
                read = read(&mut stdout, &mut out), if is_free => ProcessEvent::Stdout(read),
                () = &mut silence, if drains && is_free => ProcessEvent::Silence,
            };
            let had_result = self.recorder.has_result();
            match event {
                ProcessEvent::Exit(exit) => {
                    let stop = stage.cause();
                    // Of a process that was stopped, nothing is waited for that others write to its pipes.
                    let most = if stop == StopCause::None { MAX_DRAIN } else { SILENCE };
                    stage = ProcessStage::Draining { exit, stop, until: Instant::now() + most };
                    silence.as_mut().reset(Instant::now() + SILENCE);
                }
                ProcessEvent::Gone(gone) => return Followed::Unsupervised(gone),
                ProcessEvent::Lost => {
                    self.child.kill();
                    let patience = self.limits.grace.max(MIN_KILL_PATIENCE);
                    let killed = tokio::time::timeout(patience, self.child.ended()).await;
                    return if killed.is_ok() { Followed::Lost } else { Followed::Unresponsive };
                }
                ProcessEvent::Timer => match stage {
                    ProcessStage::Running => {
                        stage = self.terminate(StopCause::Timeout, self.limits.grace, timer.as_mut());
                    }
                    ProcessStage::Asked(cause) => {
                        stage = self.terminate(cause, self.limits.grace / 2, timer.as_mut());
                    }
                    ProcessStage::Stopping(cause) => stage = self.kill(cause, timer.as_mut()),
                    ProcessStage::Killed(_) | ProcessStage::Draining { .. } => return Followed::Unresponsive,
                },
                ProcessEvent::Cancel => stage = self.ask(StopCause::Cancelled, timer.as_mut()),
                ProcessEvent::Idle => {
                    stage = self.terminate(StopCause::Idle, self.limits.grace, timer.as_mut());
                }
                ProcessEvent::Unopened => {
                    stage = self.terminate(StopCause::Unopened, self.limits.grace, timer.as_mut());
                }
                ProcessEvent::Overdue => {
                    stage = self.terminate(StopCause::AfterResult, self.limits.grace, timer.as_mut());
                }
                ProcessEvent::Tick => self.recorder.tick(),
                ProcessEvent::Words => {
                    let now = Instant::now();
                    self.recorder.take(self.run.say(pacing.speech(now)));
                    pacing.said(self.run.unsaid(), now);
                }
                ProcessEvent::Stored => self.alive(idle.as_mut()),
                ProcessEvent::Stdin(Ok(count)) => drop(input.drain(..count)),
                // An agent need not read its input.
                ProcessEvent::Stdin(Err(_)) => (stdin, input) = (None, Vec::new()),
                ProcessEvent::Stdout(Ok(0) | Err(_)) => stdout = None,
                ProcessEvent::Stdout(Ok(_)) => {
                    reader.stdout(&out, self.run, self.recorder);
                    self.recorder.saw(&self.run.unreported());
                    pacing.heard(self.run.unsaid(), Instant::now());
                    self.alive(idle.as_mut());
                    silence.as_mut().reset(Instant::now() + SILENCE);
                }
                ProcessEvent::Stderr(Ok(0) | Err(_)) => stderr = None,
                ProcessEvent::Stderr(Ok(_)) => {
                    let is_known = reader.stderr(&err, self.run, self.recorder);
                    if is_known || !self.policy.dialect.has_protocol() {
                        self.alive(idle.as_mut());
                    }
                    silence.as_mut().reset(Instant::now() + SILENCE);
                }
                ProcessEvent::Silence => (stdout, stderr) = (None, None),
            }
            if !had_result && self.recorder.has_result() {
                overdue.as_mut().reset(Instant::now() + self.limits.grace);
            }
            if let ProcessStage::Running = stage {
                if self.limits.budget.is_some_and(|most| self.recorder.cost() > most) {
                    stage = self.ask(StopCause::Budget, timer.as_mut());
                } else if self.recorder.is_over_turns() && !self.recorder.has_result() {
                    stage = self.ask(StopCause::TurnLimit, timer.as_mut());
                } else if self.recorder.is_hopeless() {
                    stage = self.kill(StopCause::Hopeless, timer.as_mut());
                } else if self.recorder.is_closed() {
                    stage = self.terminate(StopCause::Cancelled, self.limits.grace, timer.as_mut());
                }
            }
        }
    }

    /// Asks the agent to stop, in its own words where it has some.
    fn ask(&mut self, cause: StopCause, timer: Pin<&mut Sleep>) -> ProcessStage {
        let words = self.run.interrupt();
        if words.is_empty() {
            return self.terminate(cause, self.limits.grace, timer);
        }
        self.recorder.take(words);
        timer.reset(Instant::now() + self.limits.grace / 2);
        ProcessStage::Asked(cause)
    }

    fn terminate(&self, cause: StopCause, grace: Duration, timer: Pin<&mut Sleep>) -> ProcessStage {
        self.child.terminate();
        timer.reset(Instant::now() + grace);
        ProcessStage::Stopping(cause)
    }

    fn kill(&self, cause: StopCause, timer: Pin<&mut Sleep>) -> ProcessStage {
        self.child.kill();
        timer.reset(Instant::now() + self.limits.grace.max(MIN_KILL_PATIENCE));
        ProcessStage::Killed(cause)
    }

    /// The agent gave a sign of life.
    fn alive(&self, idle: Pin<&mut Sleep>) {
        idle.reset(Instant::now() + self.policy.idle_watchdog);
    }
}

impl ProcessStage {
    const fn cause(self) -> StopCause {
        match self {
            Self::Running => StopCause::None,
            Self::Asked(cause) | Self::Stopping(cause) | Self::Killed(cause) => cause,
            Self::Draining { stop, .. } => stop,
        }
    }
}

/// Turns the bytes of the pipes into lines. Values of secrets are replaced first.
struct Reader {
    answers: RedactedStream,
    splitter: LineSplitter,
    errors: RedactedStream,
    /// For agents whose log says something.
    log_splitter: Option<LineSplitter>,
    log: Option<Lines>,
    tail: Tail,
    is_finished: bool,
}

impl Reader {
    fn new(control: &Control, policy: &AgentPolicy, run: &AgentRun) -> Self {
        let redacted = || RedactedStream::new(policy.secrets.clone());
        Self {
            answers: redacted(),
            splitter: LineSplitter::default(),
            errors: redacted(),
            log_splitter: run.reads_log().then(LineSplitter::default),
            log: Some(Lines::new(control.events.clone(), LogStream::Stderr, policy.max_log_bytes)),
            tail: Tail::default(),
            is_finished: false,
        }
    }

    fn stdout(&mut self, bytes: &[u8], run: &mut AgentRun, recorder: &mut Recorder) {
        for line in self.splitter.push(&self.answers.take(bytes)) {
            recorder.take(run.line(&line));
        }
    }

    /// Whether something was learned from it.
    fn stderr(&mut self, bytes: &[u8], run: &mut AgentRun, recorder: &mut Recorder) -> bool {
        let bytes = self.errors.take(bytes);
        let Some(splitter) = &mut self.log_splitter else {
            self.keep(&bytes);
            return false;
        };
        let mut is_known = false;
        for line in splitter.push(&bytes) {
            is_known |= self.log_line(&line, run, recorder);
        }
        is_known
    }

    /// Whether something was learned from it.
    fn log_line(&mut self, line: &Line, run: &mut AgentRun, recorder: &mut Recorder) -> bool {
        let (Line::Whole(bytes) | Line::Cut { beginning: bytes, .. }) = line;
        match run.log_line(&String::from_utf8_lossy(bytes)) {
            LogLine::Noise(facts) => {
                let is_known = !facts.is_empty();
                recorder.take(facts);
                is_known
            }
            LogLine::Shown => {
                self.keep(&[bytes.as_slice(), b"\n"].concat());
                false
            }
        }
    }

    /// Keeps what was written to standard error.
    fn keep(&mut self, bytes: &[u8]) {
        self.tail.take(bytes);
        if let Some(log) = &mut self.log {
            log.take(bytes);
        }
    }

    /// Reads the last line, which may have no end. Whether something was left to handle.
    fn finish(&mut self, run: &mut AgentRun, recorder: &mut Recorder) -> bool {
        if std::mem::replace(&mut self.is_finished, true) {
            return false;
        }
        let rest = self.answers.flush();
        let lines: Vec<_> = self.splitter.push(&rest).into_iter().chain(self.splitter.end()).collect();
        lines.iter().for_each(|line| recorder.take(run.line(line)));
        recorder.take(run.flush());
        if let Some(line) = self.log_splitter.as_mut().and_then(LineSplitter::end) {
            self.log_line(&line, run, recorder);
        }
        true
    }

    /// The end of standard error.
    fn last_words(&mut self) -> String {
        let rest = self.errors.flush();
        self.tail.take(&rest);
        if let Some(mut log) = self.log.take() {
            log.take(&rest);
            log.finish();
        }
        self.tail.text().unwrap_or_default()
    }
}

const fn of(exit: Exit) -> ProcessExit {
    match exit {
        Exit::Code(code) => ProcessExit::Code(code),
        Exit::Signal(signal) => ProcessExit::Signal(signal),
    }
}
