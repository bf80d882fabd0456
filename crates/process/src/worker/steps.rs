//! Steps and the conversation that earlier attempts of a task left.

use std::pin::Pin;
use std::time::Duration;

use ostler_core::ErrorClass;
use ostler_exec::{AttemptResult, Control, StepError};
use tokio::time::Sleep;

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
