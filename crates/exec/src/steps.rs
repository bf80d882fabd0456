//! Steps: named checkpoints inside a task. What a step came to is durable before the next one begins, and a later attempt gets it
//! back instead of doing it again.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::TaskError;
use crate::notes::{Note, NoteSender};

/// Where the steps of an attempt are kept.
#[async_trait]
pub trait StepStore: Debug + Send + Sync {
    /// A step is to begin.
    ///
    /// # Errors
    /// When nobody can say whether it was done before.
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError>;

    /// The steps that earlier attempts have done, with what each came to: JSON text.
    ///
    /// # Errors
    /// When nobody can say.
    async fn done(&self) -> Result<Vec<(String, String)>, StepError>;

    /// A step came to this: JSON text. When it answers, that is durable.
    ///
    /// # Errors
    /// When it is not kept.
    async fn save(&self, name: &str, value: &str) -> Result<(), StepError>;
}

/// What is known of a step that is to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepLookup {
    /// It was not done yet.
    New,
    /// An earlier attempt has done it, and it came to this: JSON text.
    Done(String),
    /// This attempt has begun it before. Two steps cannot share a name.
    Twice,
}

/// Why a step is not kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Somebody else speaks for the task now.
    #[error("the lease is lost")]
    Lost,
    /// It will never be: too large, too many.
    #[error("{0}")]
    Refused(String),
    /// It may be another time: the store is away.
    #[error("{0}")]
    Away(String),
}

/// The steps of one attempt.
#[derive(Clone, Debug, Default)]
pub struct Steps(Option<Arc<dyn StepStore>>);

impl Steps {
    /// Kept there.
    #[must_use]
    pub fn kept(store: Arc<dyn StepStore>) -> Self {
        Self(Some(store))
    }

    /// Kept nowhere: every step is done anew.
    #[must_use]
    pub const fn ephemeral() -> Self {
        Self(None)
    }

    /// Who keeps them, if anybody does.
    #[must_use]
    pub const fn store(&self) -> Option<&Arc<dyn StepStore>> {
        self.0.as_ref()
    }

    /// Does a step, unless it was done before.
    pub(crate) async fn take<T, F, R>(&self, name: &str, work: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        let Some(store) = &self.0 else { return work().await };
        match store.begin(name).await.map_err(|error| unkept(name, &error))? {
            StepLookup::New => {}
            StepLookup::Done(value) => {
                return serde_json::from_str(&value).map_err(|error| {
                    let message = format!("the step \"{name}\" was saved by another handler: {error}");
                    at(name, TaskError::permanent(message).hint("replay it from scratch"))
                });
            }
            StepLookup::Twice => {
                let message =
                    format!("the step \"{name}\" is done twice in one attempt; each has its own name");
                return Err(at(name, TaskError::permanent(message)));
            }
        }
        let done = work().await.map_err(|error| at(name, error))?;
        let value = serde_json::to_string(&done).map_err(|error| {
            at(name, TaskError::permanent(format!("the step \"{name}\" cannot be written as JSON: {error}")))
        })?;
        store.save(name, &value).await.map_err(|error| unkept(name, &error))?;
        Ok(done)
    }

    /// The same for a step that the task can do without: its failure is a warning.
    pub(crate) async fn take_or_warn<T, F, R>(
        &self,
        notes: &NoteSender,
        name: &str,
        work: F,
    ) -> Result<Option<T>, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        let mut missed = None;
        let attempted = async {
            match work().await {
                Ok(done) => Ok(Some(done)),
                Err(error) => {
                    missed = Some(error);
                    Ok(None)
                }
            }
        };
        let done = self.take(name, || attempted).await?;
        if let Some(error) = missed {
            let Failure { message, .. } = error.into_failure();
            notes.say(Note::Warning(format!("the step \"{name}\" failed: {message}")));
        }
        Ok(done)
    }
}

/// The error, with the step in which it happened.
fn at(name: &str, error: TaskError) -> TaskError {
    error.in_step(name)
}

fn unkept(name: &str, error: &StepError) -> TaskError {
    let message = format!("the step \"{name}\" is not kept: {error}");
    let error = match error {
        // It is being stopped; whatever it says does not count.
        StepError::Lost | StepError::Away(_) => TaskError::transient(message),
        StepError::Refused(_) => TaskError::permanent(message),
    };
    error.in_step(name)
}
