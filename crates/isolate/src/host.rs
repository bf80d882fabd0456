//! The function host: what a function asks of the program that runs it.
//!
//! An isolate has no file, no socket and no environment. Everything that reaches the world goes through this trait, which the
//! embedding program implements: a node directly, or a host process that asks its node.

use std::sync::mpsc::Sender;

use ostler_core::Level;

use crate::stop::Mail;

/// What a function can ask for. The methods are called on the isolate's thread, and return at once: an answer that takes time
/// goes through [`HostReply`], from any thread.
pub trait FunctionHost {
    /// A line of `console` or `ctx.log`, of at most [`MAX_LINE_BYTES`].
    fn log(&self, level: Level, line: &str);

    /// `ctx.progress(done, total, note)`.
    fn progress(&self, progress: &FunctionProgress);

    /// `ctx.secret(name)`. `None`: there is no such secret, and the function gets an error.
    fn secret(&self, name: &str) -> Option<String>;

    /// A call that is answered later. A reply that is dropped answers with an error.
    fn call(&self, call: HostCall, reply: HostReply);
}

/// Bytes of one log line; longer ones are truncated.
pub const MAX_LINE_BYTES: usize = 16 * 1024;

/// What `ctx.progress` reports.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct FunctionProgress {
    pub done: u64,
    pub total: Option<u64>,
    pub note: Option<String>,
}

/// A call that the host answers later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// `ctx.step`, before its work: has an earlier attempt saved it? Answered with the saved value, or with [`HostAnswer::Nothing`].
    BeginStep { name: String },
    /// `ctx.step`, after its work: saves the value, JSON text. Answered when it is durable.
    SaveStep { name: String, value: String },
    /// `ctx.file`: writes a file into the task's folder, and records it.
    WriteFile { path: String, bytes: Vec<u8> },
    /// `fetch`: answered with a [`FetchHead`](crate::FetchHead) as JSON.
    Fetch(FetchRequest),
    /// The next bytes of a response's body, or [`HostAnswer::Nothing`] at its end.
    FetchBody { response: u32 },
    /// The function has given up a response, whether its head has arrived or not. Answered with [`HostAnswer::Nothing`].
    FetchClose { response: u32 },
}

/// An HTTP request of a function. The host decides whether it may be sent.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FetchRequest {
    /// Names the response in the calls that follow. The prelude gives each request of an isolate another number.
    pub response: u32,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    #[serde(with = "crate::dialect::base64_body")]
    pub body: Option<Vec<u8>>,
    pub redirect: FetchRedirect,
}

/// What a redirect does to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchRedirect {
    /// The request goes on to where it leads.
    #[default]
    Follow,
    /// The request fails.
    Error,
    /// It is the response.
    Manual,
}

/// The head of an HTTP response. Its body is read by [`HostCall::FetchBody`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FetchHead {
    /// The number of the request.
    pub response: u32,
    pub status: u16,
    pub status_text: String,
    /// Where the response came from, after redirects.
    pub url: String,
    pub redirected: bool,
    pub headers: Vec<(String, String)>,
}

/// The answer to a [`HostCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostAnswer {
    /// JSON text.
    Json(String),
    Bytes(Vec<u8>),
    Nothing,
}

/// Why a [`HostCall`] failed. The function gets it as an `Error`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostError(pub String);

/// Answers one [`HostCall`], once. An answer to a call that is over is dropped.
#[derive(Debug)]
pub struct HostReply {
    call: u32,
    mail: Option<Sender<Mail>>,
}

impl HostReply {
    pub(crate) const fn new(call: u32, mail: Sender<Mail>) -> Self {
        Self { call, mail: Some(mail) }
    }

    /// Answers.
    pub fn send(mut self, answer: Result<HostAnswer, HostError>) {
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: Result<HostAnswer, HostError>) {
        if let Some(mail) = self.mail.take() {
            // The receiver is gone when the function has ended.
            let _ = mail.send(Mail::Answer { call: self.call, answer });
        }
    }
}

impl Drop for HostReply {
    fn drop(&mut self) {
        self.deliver(Err(HostError("the host gave no answer".to_owned())));
    }
}
