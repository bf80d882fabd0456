//! Durable steps of one attempt, stored under its lease.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::Conversation;
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
    /// Loaded when the first step begins.
    earlier: Option<Arc<Earlier>>,
    begun: HashSet<String>,
}

/// What earlier attempts have left.
#[derive(Default)]
struct Earlier {
    steps: HashMap<String, String>,
    /// The id of the last conversation.
    session: Option<String>,
    conversations: Vec<Conversation>,
}

impl AttemptSteps {
    pub(crate) fn new(store: Arc<dyn Store>, lease: LeaseRef) -> Self {
        Self { store, lease, known: Mutex::default() }
    }

    /// What earlier attempts have left; read once.
    async fn earlier(&self, known: &mut KnownSteps) -> Result<Arc<Earlier>, StepError> {
        if let Some(earlier) = &known.earlier {
            return Ok(Arc::clone(earlier));
        }
        let earlier = Arc::new(self.look_up().await?);
        known.earlier = Some(Arc::clone(&earlier));
        Ok(earlier)
    }

    async fn look_up(&self) -> Result<Earlier, StepError> {
        // Under the first lease there is nothing earlier. An attempt that was lost with its node may not have been
        // counted, but its lease was.
        if self.lease.token <= 1 {
            return Ok(Earlier::default());
        }
        let found = self.store.show(TaskRef::Id(self.lease.task)).await;
        match found.map_err(|error| StepError::Away(error.to_string()))? {
            Some(detail) if detail.task.token == self.lease.token => {
                let session = detail.session_before(self.lease.token).map(str::to_owned);
                let steps = detail.steps.into_iter().map(|step| (step.name, step.value)).collect();
                let earlier = detail.attempts.into_iter().filter(|attempt| attempt.token < self.lease.token);
                let conversations = earlier.map(|attempt| attempt.conversation).collect();
                Ok(Earlier { steps, session, conversations })
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
        let earlier = self.earlier(&mut known).await?;
        if !known.begun.insert(name.to_owned()) {
            return Ok(StepLookup::Twice);
        }
        Ok(earlier.steps.get(name).map_or(StepLookup::New, |value| StepLookup::Done(value.clone())))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        let earlier = self.earlier(&mut *self.known.lock().await).await?;
        Ok(earlier.steps.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(self.earlier(&mut *self.known.lock().await).await?.session.clone())
    }

    async fn earlier_conversations(&self) -> Result<Vec<Conversation>, StepError> {
        Ok(self.earlier(&mut *self.known.lock().await).await?.conversations.clone())
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
