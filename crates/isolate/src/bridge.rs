//! The bridge between the prelude and Rust: one host function, text in and text out, the same for every engine.
//!
//! The prelude is the only JavaScript that holds the host function. A script that got hold of it could do what `ctx` and the
//! globals offer anyway, for the current call.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ostler_core::{Level, cut};
use serde::Deserialize;

use crate::end::{FunctionEnd, ThrownError};
use crate::host::{
    FetchRedirect, FetchRequest, FunctionHost, FunctionProgress, HostCall, HostReply, MAX_LINE_BYTES,
};
use crate::limits::FunctionLimits;
use crate::meter::Meter;
use crate::stop::{Interrupter, LimitCause, Mail};
use crate::timers::Timers;
use crate::web;

/// Calls of one function that wait for an answer.
const MAX_OPEN_CALLS: usize = 256;
/// Bytes that one `crypto.getRandomValues` fills, as the Web's.
const MAX_RANDOM_BYTES: usize = 65_536;

/// Bytes of a script's text in a message.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// The Rust side of an isolate, with the call that it runs.
pub struct Bridge {
    limits: FunctionLimits,
    run: RefCell<Option<CallRun>>,
}

/// One call, as the isolate's thread sees it.
struct CallRun {
    host: Rc<dyn FunctionHost>,
    signal: Interrupter,
    mailbox: Receiver<Mail>,
    meter: Meter,
    wall: Duration,
    timers: Timers,
    log_lines: u32,
    last_call: u32,
    open_calls: usize,
    settled: Option<Settled>,
}

/// What the prelude reports.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The modules are evaluated.
    Loaded,
    /// The function returned: JSON text, or nothing that JSON has.
    Output(Option<String>),
    /// The function, or the top level of a module, threw.
    Threw(ThrownError),
    /// The modules cannot be used.
    Fault(String),
}

/// What an isolate does next.
#[derive(Debug)]
pub(crate) enum Event {
    Mail(Mail),
    Timer(u32),
    /// Nothing is pending: nothing will ever happen.
    Nothing,
}

impl Bridge {
    pub(crate) fn new(limits: &FunctionLimits) -> Rc<Self> {
        Rc::new(Self { limits: limits.clone(), run: RefCell::new(None) })
    }

    pub(crate) const fn limits(&self) -> &FunctionLimits {
        &self.limits
    }

    /// Begins a call: its limits count from now.
    pub(crate) fn begin(
        &self,
        host: Rc<dyn FunctionHost>,
        signal: Interrupter,
        mailbox: Receiver<Mail>,
        wall: Option<Duration>,
    ) {
        let wall = wall.unwrap_or(self.limits.wall);
        *self.run.borrow_mut() = Some(CallRun {
            host,
            signal,
            mailbox,
            meter: Meter::start(self.limits.cpu, wall),
            wall,
            timers: Timers::default(),
            log_lines: 0,
            last_call: 0,
            open_calls: 0,
            settled: None,
        });
    }

    /// Ends the call. Its timers and open calls are dropped with it.
    pub(crate) fn finish(&self) {
        *self.run.borrow_mut() = None;
    }

    /// Whether the engine must interrupt what it executes. Without a call nothing may run.
    pub fn must_stop(&self) -> bool {
        let run = self.run.borrow();
        let Some(run) = run.as_ref() else { return true };
        if run.signal.cause().is_none()
            && let Some(cause) = run.meter.exceeded()
        {
            run.signal.stop(cause);
        }
        run.signal.cause().is_some()
    }

    /// The end of a call that is being interrupted.
    pub fn stopped(&self) -> Option<FunctionEnd> {
        self.run.borrow().as_ref().and_then(|run| run.signal.cause()).map(LimitCause::end)
    }

    /// Whether a cancellation was requested.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.run.borrow().as_ref().is_some_and(|run| run.signal.is_cancelled())
    }

    /// What the prelude has reported since the last call of this.
    pub(crate) fn take_settled(&self) -> Option<Settled> {
        self.run.borrow_mut().as_mut()?.settled.take()
    }

    /// Waits for the next event: an answer, a cancellation, a timer.
    pub(crate) fn next_event(&self) -> Event {
        let mut run = self.run.borrow_mut();
        let Some(run) = run.as_mut() else { return Event::Nothing };
        // Mail first: a timer that re-arms itself must not keep answers out.
        let mail = run.mailbox.try_recv().ok().or_else(|| {
            let now = Instant::now();
            let due = run.timers.next_due();
            if due.is_some_and(|due| due <= now) || (due.is_none() && run.open_calls == 0) {
                return None;
            }
            let until = due.unwrap_or(run.meter.deadline()).min(run.meter.deadline());
            // An error is a timeout: the run holds a sender itself, so the mailbox is never closed.
            run.mailbox.recv_timeout(until.saturating_duration_since(now)).ok()
        });
        if let Some(mail) = mail {
            if matches!(mail, Mail::Answer { .. }) {
                run.open_calls = run.open_calls.saturating_sub(1);
            }
            return Event::Mail(mail);
        }
        if let Some(id) = run.timers.take_due(Instant::now()) {
            return Event::Timer(id);
        }
        if run.timers.len() > 0 || run.open_calls > 0 {
            return Event::Mail(Mail::Stop); // Woken by the deadline: the pump looks at the limits.
        }
        Event::Nothing
    }

    /// The host function. An error is thrown in the script as a `TypeError` with this message.
    ///
    /// # Errors
    /// When the operation is refused, or no call runs.
    pub fn host(&self, op: &str, text: &str) -> Result<String, String> {
        let mut run = self.run.borrow_mut();
        let run = run.as_mut().ok_or("no call runs in this isolate")?;
        if run.signal.cause().is_some() {
            return Err("the call is being stopped".to_owned());
        }
        run.operation(op, text, &self.limits)
    }
}

impl CallRun {
    fn operation(&mut self, op: &str, text: &str, limits: &FunctionLimits) -> Result<String, String> {
        match op {
            "log" => self.log(text, limits),
            "timer" => self.set_timer(text, limits),
            "clear" => {
                self.timers.cancel(text.parse().map_err(|_| "not a timer")?);
                Ok(String::new())
            }
            "ask" => self.ask(text),
            "progress" => {
                let progress: FunctionProgress = from_json(text)?;
                self.host.progress(&progress);
                Ok(String::new())
            }
            "secret" => {
                self.host.secret(text).ok_or_else(|| format!("the pool has no secret \"{}\"", short(text)))
            }
            "random" => random(text),
            "url" => web::url(text),
            "loaded" => self.settle(Settled::Loaded),
            "output" if text.len() > limits.output_bytes => self.stop(LimitCause::Output),
            "output" => self.settle(Settled::Output(Some(text.to_owned()))),
            "nothing" => self.settle(Settled::Output(None)),
            "threw" => {
                let thrown: ThrownError = from_json(text)?;
                self.settle(Settled::Threw(thrown.bounded()))
            }
            "fault" => self.settle(Settled::Fault(short(text))),
            other => Err(format!("the host has no operation \"{}\"", short(other))),
        }
    }

    fn log(&mut self, text: &str, limits: &FunctionLimits) -> Result<String, String> {
        if self.log_lines >= limits.log_lines {
            return self.stop(LimitCause::LogLines);
        }
        self.log_lines += 1;
        let (level, line) = match text.split_at_checked(1).unwrap_or(("", text)) {
            ("d", line) => (Level::Debug, line),
            ("w", line) => (Level::Warn, line),
            ("e", line) => (Level::Error, line),
            (_, line) => (Level::Info, line),
        };
        self.host.log(level, &cut(line, MAX_LINE_BYTES));
        Ok(String::new())
    }

    fn set_timer(&mut self, text: &str, limits: &FunctionLimits) -> Result<String, String> {
        if self.timers.len() >= limits.timers as usize {
            return self.stop(LimitCause::Timers);
        }
        let delay = text.parse().map_err(|_| "a delay is a number of milliseconds")?;
        // A timer beyond the deadline never fires, however far it is.
        let due = Instant::now() + Duration::from_millis(delay).min(self.wall * 2);
        Ok(self.timers.set(due).to_string())
    }

    fn ask(&mut self, text: &str) -> Result<String, String> {
        if self.open_calls >= MAX_OPEN_CALLS {
            return Err(format!("more than {MAX_OPEN_CALLS} calls wait for an answer"));
        }
        let question: Question = from_json(text)?;
        self.open_calls += 1;
        self.last_call = self.last_call.wrapping_add(1);
        self.host.call(question.into(), HostReply::new(self.last_call, self.signal.mail()));
        Ok(self.last_call.to_string())
    }

    /// The first report of a phase counts: the prelude makes only one.
    fn settle(&mut self, settled: Settled) -> Result<String, String> {
        self.settled.get_or_insert(settled);
        Ok(String::new())
    }

    fn stop(&self, cause: LimitCause) -> Result<String, String> {
        self.signal.stop(cause);
        Err("the call is being stopped".to_owned())
    }
}

/// A [`HostCall`] as the prelude writes it. Bytes cross as text with one character for each byte.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Question {
    BeginStep {
        name: String,
    },
    SaveStep {
        name: String,
        value: String,
    },
    WriteFile {
        path: String,
        bytes: String,
    },
    Fetch {
        response: u32,
        method: String,
        url: String,
        headers: Vec<(String, String)>,
        body: Option<String>,
        redirect: FetchRedirect,
    },
    FetchBody {
        response: u32,
    },
    FetchClose {
        response: u32,
    },
}

impl From<Question> for HostCall {
    fn from(question: Question) -> Self {
        match question {
            Question::BeginStep { name } => Self::BeginStep { name },
            Question::SaveStep { name, value } => Self::SaveStep { name, value },
            Question::WriteFile { path, bytes } => Self::WriteFile { path, bytes: bytes_of(&bytes) },
            Question::Fetch { response, method, url, headers, body, redirect } => {
                let body = body.as_deref().map(bytes_of);
                Self::Fetch(FetchRequest { response, method, url, headers, body, redirect })
            }
            Question::FetchBody { response } => Self::FetchBody { response },
            Question::FetchClose { response } => Self::FetchClose { response },
        }
    }
}

/// Bytes of a text with one character for each.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

/// Bytes as a text with one character for each.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn random(text: &str) -> Result<String, String> {
    let count: usize = text.parse().map_err(|_| "not a number of bytes")?;
    if count > MAX_RANDOM_BYTES {
        return Err(format!("more than {MAX_RANDOM_BYTES} random bytes at once"));
    }
    let mut bytes = vec![0; count];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(text_of(&bytes))
}

fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("the host cannot read this: {error}"))
}

/// A text for a message.
fn short(text: &str) -> String {
    cut(text, MAX_MESSAGE_BYTES)
}
