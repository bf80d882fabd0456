//! Steps: named checkpoints within a task. The result of a step is durable before the next one starts, and a later attempt gets
//! the saved result instead of running the step again. It also gets the session of the last conversation, to resume it.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::{Conversation, EventBody, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::TaskError;
use crate::events::EventSender;

/// Stores the steps of an attempt.
#[async_trait]
pub trait StepStore: Debug + Send + Sync {
    /// Looks up a step that is about to run.
    ///
    /// # Errors
    /// When it cannot be determined whether the step was done before.
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError>;

    /// The steps that earlier attempts have saved, with the value of each: JSON text.
    ///
    /// # Errors
    /// When they cannot be read.
    async fn done(&self) -> Result<Vec<(String, String)>, StepError>;

    /// The id of the last conversation that an earlier attempt reported.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn previous_session(&self) -> Result<Option<String>, StepError>;

    /// What each earlier attempt asked of a model and spent, in order.
    ///
    /// # Errors
    /// When it cannot be read.
    async fn earlier_conversations(&self) -> Result<Vec<Conversation>, StepError> {
        Ok(Vec::new())
    }

    /// Saves the value of a step: JSON text. It is durable when this returns.
    ///
    /// # Errors
    /// When it was not saved.
    async fn save(&self, name: &str, value: &str) -> Result<(), StepError>;
}

/// The result of looking up a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepLookup {
    /// Not done yet.
    New,
    /// An earlier attempt saved this value: JSON text.
    Done(String),
    /// This attempt has already run a step of this name. Two steps cannot share a name.
    Twice,
}

/// Why a step was not saved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// The lease is lost: another session may hold the task now.
    #[error("the lease is lost")]
    Lost,
    /// Permanent: too large, too many.
    #[error("{0}")]
    Refused(String),
    /// Transient: the store is unavailable.
    #[error("{0}")]
    Away(String),
}

/// The steps of one attempt.
#[derive(Clone, Debug, Default)]
pub struct Steps(Option<Arc<dyn StepStore>>);

impl Steps {
    /// Steps saved in this store.
    #[must_use]
    pub fn kept(store: Arc<dyn StepStore>) -> Self {
        Self(Some(store))
    }

    /// Steps that are not saved: every step runs again.
    #[must_use]
    pub const fn ephemeral() -> Self {
        Self(None)
    }

    /// The store of the steps, if they are saved.
    #[must_use]
    pub const fn store(&self) -> Option<&Arc<dyn StepStore>> {
        self.0.as_ref()
    }

    /// The id of the last conversation that an earlier attempt reported.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn previous_session(&self) -> Result<Option<String>, StepError> {
        match &self.0 {
            Some(store) => store.previous_session().await,
            None => Ok(None),
        }
    }

    /// What each earlier attempt asked of a model and spent, in order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn earlier_conversations(&self) -> Result<Vec<Conversation>, StepError> {
        match &self.0 {
            Some(store) => store.earlier_conversations().await,
            None => Ok(Vec::new()),
        }
    }

    /// Runs a step, unless it was done before.
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

    /// Runs an optional step: its failure is a warning.
    pub(crate) async fn take_or_warn<T, F, R>(
        &self,
        notes: &EventSender,
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
            notes.say(EventBody::warning(format!("the step \"{name}\" failed: {message}")));
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
        // The attempt is being stopped; its result does not count.
        StepError::Lost | StepError::Away(_) => TaskError::transient(message),
        StepError::Refused(_) => TaskError::permanent(message),
    };
    error.in_step(name)
}
