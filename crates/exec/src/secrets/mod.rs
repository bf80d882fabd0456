//! Secrets of a pool: values that its work gets, and that are redacted in everything that is recorded of it.
//!
//! - `redactor.rs`: the rule, which finds values in a text. `escapes.rs`: values in the notation of JSON.
//! - `stream.rs`: values in a stream of bytes. `guard.rs`: the one place where events, errors and outputs of a pool pass.

mod escapes;
mod guard;
mod redactor;
mod stream;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ostler_core::Failure;

pub(crate) use escapes::TextEnd;
use guard::Guarded;
pub use redactor::MIN_REDACTED_BYTES;
pub(crate) use redactor::{Findings, Redactor};
pub use stream::RedactedStream;

use crate::contract::Executor;

/// The longest value, in bytes.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;
/// The longest name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Whether this can be the name of an environment variable.
#[must_use]
pub fn is_variable_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.chars().all(word)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A named value that must not be recorded. Its `Debug` output has only the name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: Arc<str>,
    value: Arc<str>,
}

/// Why a secret, or a set of them, cannot be used. Never has a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the name of a secret consists of letters, digits and _, like that of a variable")]
    Name,
    #[error("the secret {0} is empty")]
    Empty(String),
    #[error("the secret {0} contains a NUL character, which cannot be passed to a program")]
    Nul(String),
    #[error("the secret {0} is longer than {MAX_SECRET_BYTES} bytes")]
    TooLong(String),
    #[error("the secret {0} is there twice")]
    Twice(String),
    #[error("the secrets together are too large")]
    TooLarge,
}

impl Secret {
    /// # Errors
    /// When the name is not that of a variable, or the value cannot be one.
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Result<Self, SecretError> {
        let (name, value) = (name.into(), value.into());
        if !is_variable_name(&name) {
            return Err(SecretError::Name);
        }
        if value.trim().is_empty() {
            return Err(SecretError::Empty(name.to_string()));
        }
        if value.contains('\0') {
            return Err(SecretError::Nul(name.to_string()));
        }
        if value.len() > MAX_SECRET_BYTES {
            return Err(SecretError::TooLong(name.to_string()));
        }
        Ok(Self { name, value })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value, for the work alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Whether the value is long enough to be redacted.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        self.searched().len() >= MIN_REDACTED_BYTES
    }

    /// What is looked for: a newline at the end of a file is seldom printed with the value.
    fn searched(&self) -> &str {
        self.value.trim()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[secret {}]", self.name)
    }
}

/// Whether outputs of tasks are redacted too. They are data for other programs, so by default they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputRedaction {
    #[default]
    Off,
    On,
}

/// The secrets of a pool. A clone is cheap; a pool without secrets has the default.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<SecretSet>>);

struct SecretSet {
    all: Vec<Secret>,
    outputs: OutputRedaction,
    /// `None` if no value is long enough.
    redactor: Option<Redactor>,
}

impl Secrets {
    /// # Errors
    /// When two have the same name, or all together are too large.
    pub fn new(all: Vec<Secret>, outputs: OutputRedaction) -> Result<Self, SecretError> {
        if all.is_empty() {
            return Ok(Self::default());
        }
        let twice = |(at, secret): (usize, &Secret)| {
            all[..at].iter().find(|other| other.name == secret.name).map(|other| other.name.to_string())
        };
        if let Some(name) = all.iter().enumerate().find_map(twice) {
            return Err(SecretError::Twice(name));
        }
        let redactor = Redactor::new(&all).map_err(|_| SecretError::TooLarge)?;
        Ok(Self(Some(Arc::new(SecretSet { all, outputs, redactor }))))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter().flat_map(|set| &set.all)
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.iter().find(|secret| secret.name() == name)
    }

    #[must_use]
    pub fn outputs(&self) -> OutputRedaction {
        self.0.as_ref().map_or(OutputRedaction::Off, |set| set.outputs)
    }

    /// The text without the values of secrets.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redactor().and_then(|redactor| redactor.redacted(text.as_bytes())) {
            // Values and texts are UTF-8, so that nothing is lost here.
            Some(redacted) => Cow::Owned(String::from_utf8_lossy(&redacted).into_owned()),
            None => Cow::Borrowed(text),
        }
    }

    /// Bytes without the values of secrets.
    #[must_use]
    pub fn redact_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.redactor().and_then(|redactor| redactor.redacted(&bytes)).unwrap_or(bytes)
    }

    /// How many bytes around a cut may belong to a secret that is only partly there.
    #[must_use]
    pub fn longest_form(&self) -> usize {
        self.redactor().map_or(0, Redactor::longest_form)
    }

    /// The same executor, whose work gets these secrets, and nothing that is recorded of it has their values.
    #[must_use]
    pub fn guard(self, executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
        if self.0.is_none() { executor } else { Arc::new(Guarded::new(executor, self)) }
    }

    pub(crate) fn redact_failure(&self, failure: &mut Failure) {
        let Failure { class: _, message, details, step, hint, retry_after: _, exit_code: _ } = failure;
        for text in [Some(message), details.as_mut(), step.as_mut(), hint.as_mut()].into_iter().flatten() {
            self.redact_in(text);
        }
    }

    pub(crate) fn redact_in(&self, text: &mut String) {
        if let Cow::Owned(redacted) = self.redact(text) {
            *text = redacted;
        }
    }

    pub(crate) fn redactor(&self) -> Option<&Redactor> {
        self.0.as_ref()?.redactor.as_ref()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for Secrets {
    fn eq(&self, other: &Self) -> bool {
        self.outputs() == other.outputs() && self.iter().eq(other.iter())
    }
}

impl Eq for Secrets {}
