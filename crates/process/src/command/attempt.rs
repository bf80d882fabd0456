//! One attempt of a command: follows a child process from its start to the result. One loop owns the pipes, the timer and the child.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Failure, LogStream};
use ostler_exec::{AttemptResult, Control, EventSender, OutputRedaction, RedactedStream, Secrets, Work};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::live::LiveOutput;
use super::output::Output;
use super::policy::{Codes, CommandPolicy};
use super::verdict;
use crate::lines::{Lines, Tail};
use crate::pipes::{read, write};
use crate::stall::StallWatch;
use crate::supervisor::{Child, Exit, SupervisorGone};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long a pipe must be silent after the child has exited until it counts as drained.
const IDLE: Duration = Duration::from_millis(200);
/// How long to keep reading from a pipe that another process holds open and writes to.
const MAX_DRAIN: Duration = Duration::from_secs(5);
/// The minimum wait for a kill: a short grace period must not make a busy system look like a child that cannot die.
const MIN_KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Why a child is being stopped.
#[derive(Clone, Copy)]
enum Reason {
    Deadline,
    Cancel,
    Stuck,
}

enum CommandStage {
    Running,
    /// SIGTERM was sent.
    Stopping(Reason),
    /// SIGKILL was sent.
    Killed(Reason),
    /// The child has exited; the rest of the pipes is being read.
    Draining {
        exit: Exit,
        reason: Option<Reason>,
        until: Instant,
    },
}

enum CommandEvent {
    Exit(Result<Exit, SupervisorGone>),
    Stdout(io::Result<usize>),
    Stderr(io::Result<usize>),
    Stdin(io::Result<usize>),
    /// The current stage has timed out.
    Timer,
    /// The pipes have been silent for a while.
    Silence,
    /// Standard output that was held is to be logged.
    Log,
    /// Whether the child still does something is to be looked at.
    Look,
    Cancel,
    /// The lease is lost: the child is killed at once.
    Lost,
}

pub(super) struct Attempt<'a> {
    child: Child,
    stage: CommandStage,
    input: Vec<u8>,
    output: Output,
    live: LiveOutput,
    /// Standard error, without the values of secrets.
    errors: RedactedStream,
    lines: Lines,
    tail: Tail,
    notes: EventSender,
    max_log_bytes: usize,
    cancel: CancellationToken,
    lost: CancellationToken,
    timeout: Duration,
    grace: Duration,
    codes: &'a Codes,
    secrets: &'a Secrets,
    stall: StallWatch,
    /// Set when the child is stuck.
    stuck: Option<Failure>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(child: Child, work: Work, control: Control, policy: &'a CommandPolicy) -> Self {
        let stall = StallWatch::new(policy.stuck_after, child.pid());
        Self {
            child,
            stage: CommandStage::Running,
            input: work.payload.into_bytes(),
            output: Output::new(policy.output, policy.max_output_bytes),
            live: LiveOutput::new(
                policy.stdout_log,
                policy.secrets.clone(),
                Output::loggable(policy.max_log_bytes, policy.max_output_bytes),
            ),
            errors: RedactedStream::new(policy.secrets.clone()),
            lines: Lines::new(control.events.clone(), LogStream::Stderr, policy.max_log_bytes),
            tail: Tail::default(),
            notes: control.events,
            max_log_bytes: policy.max_log_bytes,
            cancel: control.cancel,
            lost: control.lost,
            timeout: work.timeout,
            grace: work.grace,
            codes: &policy.codes,
            secrets: &policy.secrets,
            stall,
            stuck: None,
        }
    }

    /// Runs the attempt to its end. The timer is set to the deadline; each stage resets it.
    pub(super) async fn follow(mut self, mut timer: Pin<&mut Sleep>) -> AttemptResult {
        let mut stdin = self.child.stdin.take();
        let mut stdout = self.child.stdout.take();
        let mut stderr = self.child.stderr.take();
        let mut out = Vec::with_capacity(CHUNK_BYTES);
        let mut err = Vec::with_capacity(CHUNK_BYTES);
        let mut written = 0;
        let silence = tokio::time::sleep(IDLE);
        tokio::pin!(silence);
        loop {
            let (runs, listens, drains) = match self.stage {
                CommandStage::Running => (true, true, false),
                CommandStage::Stopping(_) | CommandStage::Killed(_) => (true, false, false),
                CommandStage::Draining { exit, reason, until } => {
                    if stdout.is_none() && stderr.is_none() || Instant::now() >= until {
                        return self.conclude(exit, reason);
                    }
                    (false, false, true)
                }
            };
            let losable = !matches!(self.stage, CommandStage::Killed(_));
            // In this order: an exit comes before a deadline, a flood of output does not delay the timer, and the output
            // of a child that has exited comes before the silence.
            let event = tokio::select! {
                biased;
                exit = self.child.ended(), if runs => CommandEvent::Exit(exit),
                () = self.lost.cancelled(), if losable => CommandEvent::Lost,
                () = &mut timer, if runs => CommandEvent::Timer,
                () = self.cancel.cancelled(), if listens => CommandEvent::Cancel,
                () = self.stall.due(), if listens => CommandEvent::Look,
                () = self.live.due(), if runs => CommandEvent::Log,
                sent = write(&mut stdin, &self.input[written..]) => CommandEvent::Stdin(sent),
                read = read(&mut stderr, &mut err) => CommandEvent::Stderr(read),
                read = read(&mut stdout, &mut out) => CommandEvent::Stdout(read),
                () = &mut silence, if drains => CommandEvent::Silence,
            };
            match event {
                CommandEvent::Exit(Ok(exit)) => self.drain(exit, silence.as_mut()),
                CommandEvent::Exit(Err(gone)) => {
                    return AttemptResult::failed_with(ErrorClass::Crash, gone.to_string());
                }
                CommandEvent::Stdout(Ok(0) | Err(_)) => stdout = None,
                CommandEvent::Stdout(Ok(_)) => {
                    self.stall.alive();
                    self.rearm(silence.as_mut());
                    self.output.take(&out);
                    self.live.take(&out, Instant::now());
                }
                CommandEvent::Stderr(Ok(0) | Err(_)) => stderr = None,
                CommandEvent::Stderr(Ok(_)) => {
                    self.stall.alive();
                    self.rearm(silence.as_mut());
                    // A write of the store that has to be: what was written before goes with it, in order.
                    self.live.log(&self.notes);
                    let errors = self.errors.take(&err);
                    self.lines.take(&errors);
                    self.tail.take(&errors);
                }
                CommandEvent::Stdin(Ok(sent)) => {
                    written += sent;
                    if written == self.input.len() {
                        stdin = None;
                    }
                }
                // A child need not read its input.
                CommandEvent::Stdin(Err(_)) => stdin = None,
                CommandEvent::Log => self.live.log(&self.notes),
                CommandEvent::Look => {
                    self.stuck = self.stall.look();
                    if self.stuck.is_some() {
                        self.ask_to_end(Reason::Stuck, timer.as_mut());
                    }
                }
                CommandEvent::Cancel => self.ask_to_end(Reason::Cancel, timer.as_mut()),
                CommandEvent::Lost => match self.stage {
                    CommandStage::Running => self.kill(Reason::Cancel, timer.as_mut()),
                    CommandStage::Stopping(reason) | CommandStage::Killed(reason) => {
                        self.kill(reason, timer.as_mut());
                    }
                    CommandStage::Draining { exit, reason, .. } => return self.conclude(exit, reason),
                },
                CommandEvent::Timer | CommandEvent::Silence => match self.stage {
                    CommandStage::Running => self.ask_to_end(Reason::Deadline, timer.as_mut()),
                    CommandStage::Stopping(reason) => self.kill(reason, timer.as_mut()),
                    // Killed and still alive: the child hangs in the kernel.
                    CommandStage::Killed(reason) => return self.judge(reason).unresponsive(),
                    CommandStage::Draining { exit, reason, .. } => return self.conclude(exit, reason),
                },
            }
        }
    }

    fn ask_to_end(&mut self, reason: Reason, timer: Pin<&mut Sleep>) {
        self.child.terminate();
        self.stage = CommandStage::Stopping(reason);
        timer.reset(after(self.grace));
    }

    fn kill(&mut self, reason: Reason, timer: Pin<&mut Sleep>) {
        self.child.kill();
        self.stage = CommandStage::Killed(reason);
        timer.reset(after(self.grace.max(MIN_KILL_PATIENCE)));
    }

    fn drain(&mut self, exit: Exit, silence: Pin<&mut Sleep>) {
        let reason = match self.stage {
            CommandStage::Running => None,
            CommandStage::Stopping(reason) | CommandStage::Killed(reason) => Some(reason),
            CommandStage::Draining { reason, .. } => reason,
        };
        let most = match reason {
            None | Some(Reason::Cancel) => MAX_DRAIN,
            // It is over: do not wait for other processes that write to the pipes.
            Some(Reason::Deadline | Reason::Stuck) => IDLE,
        };
        self.stage = CommandStage::Draining { exit, reason, until: after(most) };
        self.rearm(silence);
    }

    /// Restarts the silence timer; it matters only after the child has exited.
    fn rearm(&self, silence: Pin<&mut Sleep>) {
        match self.stage {
            CommandStage::Draining { until, .. } => silence.reset(after(IDLE).min(until)),
            CommandStage::Running | CommandStage::Stopping(_) | CommandStage::Killed(_) => {}
        }
    }

    /// Flushes the log, and returns the end of stderr.
    fn last_words(mut errors: RedactedStream, mut lines: Lines, mut tail: Tail) -> Option<String> {
        let rest = errors.flush();
        lines.take(&rest);
        tail.take(&rest);
        lines.finish();
        tail.text()
    }

    fn conclude(self, exit: Exit, reason: Option<Reason>) -> AttemptResult {
        match (reason, exit) {
            // Includes a child that was cancelled and finished its work within the grace period.
            (None, _) | (Some(Reason::Cancel), Exit::Code(0)) => {
                let stderr = Self::last_words(self.errors, self.lines, self.tail);
                let output = match exit {
                    Exit::Code(0) => {
                        if self.live.is_begun() {
                            let mut log = self.output.clone().redacted(self.secrets);
                            log.log(&self.notes, self.max_log_bytes, self.live.logged());
                        }
                        let output = match self.secrets.outputs() {
                            OutputRedaction::Off => self.output,
                            OutputRedaction::On => self.output.redacted(self.secrets),
                        };
                        let kept = output.into_kept();
                        kept.warning
                            .into_iter()
                            .for_each(|warning| self.notes.say(EventBody::warning(warning)));
                        kept.json
                    }
                    // Programs report failures on standard output too.
                    Exit::Code(_) | Exit::Signal(_) => {
                        let mut output = self.output.redacted(self.secrets);
                        output.tell(&self.notes, self.max_log_bytes, self.live.logged());
                        None
                    }
                };
                verdict::exited(exit, self.codes, output, stderr)
            }
            (Some(reason), _) => self.judge(reason),
        }
    }

    fn judge(self, reason: Reason) -> AttemptResult {
        let stderr = Self::last_words(self.errors, self.lines, self.tail);
        let mut output = self.output.redacted(self.secrets);
        output.tell(&self.notes, self.max_log_bytes, self.live.logged());
        match reason {
            Reason::Cancel => AttemptResult::cancelled(),
            Reason::Deadline => AttemptResult::too_long(self.timeout).with_details(stderr),
            Reason::Stuck => {
                let stuck = self.stuck.unwrap_or_else(|| Failure::new(ErrorClass::Stuck, "it is stuck"));
                AttemptResult::failed(stuck).with_details(stderr)
            }
        }
    }
}

fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    // For a wait beyond the range of the clock.
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    now.checked_add(wait).unwrap_or(now + FAR)
}
