//! Frames of a worker that take time to process: a step to save, a file to read, an event that must not be lost, a question about
//! tasks. The attempt's next frames wait meanwhile.

use std::pin::Pin;
use std::sync::Arc;

use ostler_core::EventBody;
use ostler_exec::{EventSender, Sent, StepError, StepLookup, StepStore, TaskCallError, TaskCalls, TaskInfo};

use super::task_frames::TaskRequest;
use crate::files::filing;
use crate::folders::TaskFolder;

/// A frame that is being processed.
pub(super) type Processing = Pin<Box<dyn Future<Output = Processed> + Send>>;

/// What became of a frame.
pub(super) enum Processed {
    /// A step, by its name.
    Saved(String, Result<(), StepError>),
    /// A file that the worker reported was read.
    Filed(Option<EventBody>),
    Event,
    /// The id of a session is durable. The worker waits for this.
    Session(String),
    /// The answer to the request with this number.
    Answered(u64, Result<TaskAnswer, TaskCallError>),
    /// The lease is lost: nothing more that the worker sends counts.
    Lost,
}

/// The answer to a request about tasks.
pub(super) enum TaskAnswer {
    Submitted(ostler_core::TaskId),
    Found(Option<Box<TaskInfo>>),
}

/// Records an event: it waits for room in the buffer, and a session until it is stored.
pub(super) fn keep(events: EventSender, event: EventBody) -> Processing {
    Box::pin(async move {
        let session = if let EventBody::Session { id } = &event { Some(id.clone()) } else { None };
        let sent = match session {
            Some(_) => events.store(event).await,
            None => events.send(event).await,
        };
        match (sent, session) {
            (Sent::Closed, _) => Processed::Lost,
            (Sent::Yes, Some(session)) => Processed::Session(session),
            (Sent::Yes, None) => Processed::Event,
        }
    })
}

/// Reads a file that the worker reported.
pub(super) fn file(folder: Option<TaskFolder>, path: String) -> Processing {
    let filing = filing(folder, path);
    Box::pin(async move { Processed::Filed(filing.await) })
}

/// Saves a step, unless it was completed before.
pub(super) fn save(store: Arc<dyn StepStore>, name: String, value: String) -> Processing {
    Box::pin(async move {
        let saved = match store.begin(&name).await {
            Ok(StepLookup::New) => store.save(&name, &value).await,
            // An earlier attempt has completed it: its value stays.
            Ok(StepLookup::Done(_)) => Ok(()),
            Ok(StepLookup::Twice) => {
                Err(StepError::Refused("it was already started in this attempt".to_owned()))
            }
            Err(error) => Err(error),
        };
        Processed::Saved(name, saved)
    })
}

/// Submits or looks up a task.
pub(super) fn ask(tasks: TaskCalls, number: u64, request: TaskRequest) -> Processing {
    Box::pin(async move {
        let answer = match request {
            TaskRequest::Submit(Ok(submission)) => tasks.submit(submission).await.map(TaskAnswer::Submitted),
            TaskRequest::LookUp(Ok(task)) => {
                tasks.look_up(task).await.map(|found| TaskAnswer::Found(found.map(Box::new)))
            }
            TaskRequest::Submit(Err(wrong)) | TaskRequest::LookUp(Err(wrong)) => {
                Err(TaskCallError::Refused(wrong))
            }
        };
        Processed::Answered(number, answer)
    })
}
