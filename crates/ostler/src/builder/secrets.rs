//! Secrets of a pool: what the builder takes, and how its executor gets them.

use ostler_exec::{OutputRedaction, Secret, SecretError, Secrets};

use super::Builder;

/// The secrets that a builder has so far.
#[derive(Clone, Default)]
pub(super) struct SecretSettings {
    all: Vec<Secret>,
    outputs: OutputRedaction,
    /// The first invalid one.
    refused: Option<SecretError>,
}

impl SecretSettings {
    pub(super) fn into_secrets(self) -> Result<Secrets, SecretError> {
        match self.refused {
            Some(error) => Err(error),
            None => Secrets::new(self.all, self.outputs),
        }
    }
}

impl Builder {
    /// Gives the handlers of the queue a secret, by [`Context::secret`](crate::Context::secret). Wherever its value would be recorded (logs, events,
    /// errors, panics), it is replaced by `[secret NAME]` if it has eight bytes or more. Payloads, steps and outputs stay as they
    /// are; see [`redact_output`](Self::redact_output). A name that is not like that of an environment variable, or an empty value,
    /// makes [`start`](Self::start) fail.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        match Secret::new(name, value) {
            Ok(secret) => self.plan.secrets.all.push(secret),
            Err(error) => self.plan.secrets.refused = self.plan.secrets.refused.or(Some(error)),
        }
        self
    }

    /// Redacts secrets in the outputs of the queue's tasks too.
    #[must_use]
    pub fn redact_output(mut self) -> Self {
        self.plan.secrets.outputs = OutputRedaction::On;
        self
    }
}
