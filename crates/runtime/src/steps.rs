//! Durable steps of one attempt, stored under its lease.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_exec::{StepError, StepLookup, StepStore};
use ostler_store::calls::{NewStep, Saved};
use ostler_store::views::TaskRef;
use ostler_store::{LeaseRef, MAX_STEPS, Store};
use tokio::sync::Mutex;

/// The steps of one attempt.
pub(crate) struct AttemptSteps {
    store: Arc<dyn Store>,
    lease: LeaseRef,
    known: Mutex<KnownSteps>,
}

/// The steps known so far.
#[derive(Default)]
struct KnownSteps {
    /// Steps completed by earlier attempts; loaded when the first step begins.
    done: Option<HashMap<String, String>>,
    begun: HashSet<String>,
}

impl AttemptSteps {
    pub(crate) fn new(store: Arc<dyn Store>, lease: LeaseRef) -> Self {
        Self { store, lease, known: Mutex::default() }
    }

    async fn look_up(&self) -> Result<HashMap<String, String>, StepError> {
        // Under the first lease there are no earlier steps. An attempt that was lost with its node may not have been
        // counted, but its lease was.
        if self.lease.token <= 1 {
            return Ok(HashMap::new());
        }
        let found = self.store.show(TaskRef::Id(self.lease.task)).await;
        match found.map_err(|error| StepError::Away(error.to_string()))? {
            Some(detail) if detail.task.token == self.lease.token => {
                Ok(detail.steps.into_iter().map(|step| (step.name, step.value)).collect())
            }
            Some(_) | None => Err(StepError::Lost),
        }
    }
}

impl fmt::Debug for AttemptSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptSteps").field("lease", &self.lease).finish_non_exhaustive()
    }
}

#[async_trait]
impl StepStore for AttemptSteps {
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError> {
        let mut known = self.known.lock().await;
        if known.done.is_none() {
            known.done = Some(self.look_up().await?);
        }
        if !known.begun.insert(name.to_owned()) {
            return Ok(StepLookup::Twice);
        }
        let done = known.done.as_ref().and_then(|done| done.get(name));
        Ok(done.map_or(StepLookup::New, |value| StepLookup::Done(value.clone())))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        let mut known = self.known.lock().await;
        if known.done.is_none() {
            known.done = Some(self.look_up().await?);
        }
        let done = known.done.iter().flatten();
        Ok(done.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn save(&self, name: &str, value: &str) -> Result<(), StepError> {
        let step = NewStep { name: name.to_owned(), value: value.to_owned() };
        match self.store.save_step(self.lease, step).await {
            // Already saved by this attempt itself, whose response was lost; the stored value stays.
            Ok(Saved::Recorded | Saved::AlreadySaved) => Ok(()),
            Ok(Saved::TooMany) => Err(StepError::Refused(format!("a task has at most {MAX_STEPS} steps"))),
            Ok(Saved::LeaseLost) => Err(StepError::Lost),
            Err(error) if error.is_transient() => Err(StepError::Away(error.to_string())),
            Err(error) => Err(StepError::Refused(error.to_string())),
        }
    }
}
