//! How a call ends without an output: one closed list of causes.

use std::fmt::{self, Display, Formatter};

use ostler_core::cut;

/// Why a call has no output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionEnd {
    /// More CPU time than the limit.
    Cpu,
    /// More wall time than the limit.
    Wall,
    /// Out of memory.
    Memory,
    /// The stack is exhausted.
    Stack,
    /// The output is larger than the limit.
    Output,
    /// More log lines than the limit.
    LogLines,
    /// More pending timers than the limit.
    Timers,
    /// The function waits for a promise, and nothing is left that could settle it.
    NeverSettles,
    /// A promise was rejected, and the function has no handler for it.
    UnhandledRejection(ThrownError),
    /// The function threw.
    Thrown(ThrownError),
    /// The function's modules cannot be used: a syntax error, an import that fails, no default export.
    Module(String),
    /// The caller stopped the call.
    Cancelled,
}

/// A thrown value, as text. Texts are truncated to [`MAX_ERROR_BYTES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub struct ThrownError {
    /// The `name` of an error.
    pub name: String,
    /// The `message` of an error, or another value as a string.
    pub message: String,
    /// The `stack` of an error.
    pub stack: String,
    /// How the function classed its error, if it did.
    #[serde(default)]
    pub labels: Option<Box<ErrorLabels>>,
}

/// What a function says of its error, in the words of the SDK.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct ErrorLabels {
    /// Its `class`, or the `className` of its constructor.
    pub class: Option<String>,
    /// Its `retryAfterMs`.
    pub retry_after_ms: Option<u64>,
    /// Its `step`, or the step that threw it.
    pub step: Option<String>,
    /// Its `hint`.
    pub hint: Option<String>,
}

/// Bytes of each text of a thrown error.
pub const MAX_ERROR_BYTES: usize = 16 * 1024;

impl FunctionEnd {
    /// The name of the cause.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Output => "output",
            Self::LogLines => "log lines",
            Self::Timers => "timers",
            Self::NeverSettles => "never settles",
            Self::UnhandledRejection(_) => "unhandled rejection",
            Self::Thrown(_) => "thrown",
            Self::Module(_) => "module",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Display for FunctionEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("the function used more CPU time than its limit"),
            Self::Wall => f.write_str("the function took longer than its limit"),
            Self::Memory => f.write_str("the function used more memory than its limit"),
            Self::Stack => f.write_str("the function exhausted its stack"),
            Self::Output => f.write_str("the output of the function is larger than its limit"),
            Self::LogLines => f.write_str("the function wrote more log lines than its limit"),
            Self::Timers => f.write_str("the function set more timers than its limit"),
            Self::NeverSettles => f.write_str("the function waits for a promise that nothing can settle"),
            Self::UnhandledRejection(error) => write!(f, "a promise was rejected without a handler: {error}"),
            Self::Thrown(error) => write!(f, "{error}"),
            Self::Module(message) => f.write_str(message),
            Self::Cancelled => f.write_str("the call was cancelled"),
        }
    }
}

impl std::error::Error for FunctionEnd {}

impl ThrownError {
    /// An error without a stack.
    pub(crate) fn new(name: &str, message: impl Into<String>) -> Self {
        Self { name: name.to_owned(), message: message.into(), ..Self::default() }
    }

    /// Texts within [`MAX_ERROR_BYTES`].
    pub(crate) fn bounded(mut self) -> Self {
        let labels = self.labels.iter_mut();
        let optional =
            labels.flat_map(|labels| [&mut labels.class, &mut labels.step, &mut labels.hint]).flatten();
        for text in [&mut self.name, &mut self.message, &mut self.stack].into_iter().chain(optional) {
            *text = cut(text, MAX_ERROR_BYTES);
        }
        self
    }
}

impl Display for ThrownError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.message.as_str()) {
            ("", message) => f.write_str(message),
            (name, "") => f.write_str(name),
            (name, message) => write!(f, "{name}: {message}"),
        }
    }
}
