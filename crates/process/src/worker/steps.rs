//! Steps of an attempt on a worker: what earlier attempts left, and the steps that it saves.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::ErrorClass;
use ostler_exec::{AttemptResult, Control, StepError, StepLookup, StepStore};
use tokio::time::Sleep;

/// A step that is being saved, with its name.
pub(super) type Saving = Pin<Box<dyn Future<Output = (String, Result<(), StepError>)> + Send>>;

/// What earlier attempts left for this one.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// The steps that they completed, with their values.
    pub(super) steps: Vec<(String, String)>,
    /// The id of the last conversation.
    pub(super) session: Option<String>,
}

/// What earlier attempts left. A first attempt has nothing, and makes no query.
pub(super) async fn earlier(
    control: &Control,
    timeout: Duration,
    timer: Pin<&mut Sleep>,
) -> Result<Earlier, AttemptResult> {
    let Some(store) = control.steps.store() else { return Ok(Earlier::default()) };
    let read = async { Ok(Earlier { steps: store.done().await?, session: store.previous_session().await? }) };
    let done = tokio::select! {
        biased;
        done = read => done,
        () = control.cancel.cancelled() => return Err(AttemptResult::cancelled()),
        () = timer => return Err(AttemptResult::too_long(timeout)),
    };
    done.map_err(|error| match error {
        StepError::Lost => AttemptResult::cancelled(),
        StepError::Away(reason) | StepError::Refused(reason) => {
            AttemptResult::failed_with(ErrorClass::Transient, format!("its steps cannot be read: {reason}"))
        }
    })
}

/// Saves a step, unless it was completed before.
pub(super) fn save(supervisor: Arc<dyn StepStore>, name: String, value: String) -> Saving {
    Box::pin(async move {
        let saved = match supervisor.begin(&name).await {
            Ok(StepLookup::New) => supervisor.save(&name, &value).await,
            // An earlier attempt has completed it: its value stays.
            Ok(StepLookup::Done(_)) => Ok(()),
            Ok(StepLookup::Twice) => {
                Err(StepError::Refused("it was already started in this attempt".to_owned()))
            }
            Err(error) => Err(error),
        };
        (name, saved)
    })
}
