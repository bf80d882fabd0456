//! Continuing a conversation: a new task that goes on where a finished one ended.

use ostler_core::TaskId;
use ostler_store::Store;
use ostler_store::calls::NewTask;
use ostler_store::jobs::job_of;
use ostler_store::views::TaskDetail;
use serde_json::{Map, Value};

use crate::error::{OpsError, Refusal};
use crate::submit::SubmitRequest;
use crate::task_name::NamedTask;
use crate::tasks;

/// A conversation to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The task that has it.
    pub which: NamedTask,
    pub prompt: String,
    /// Where the new task goes; `None`: the queue of the other one, or of the pool that served its job.
    pub queue: Option<String>,
}

/// The task that continues the last conversation of a finished one, in the same folder and with the same settings.
///
/// # Errors
/// When there is no such task, it has not finished, it has no conversation, or no queue is known for the new task.
pub async fn request(store: &dyn Store, asked: &Continuation, id: TaskId) -> Result<SubmitRequest, OpsError> {
    let found = tasks::find(store, &asked.which).await?;
    let (task, state) = (&found.task, found.task.state.name());
    if !state.is_terminal() {
        return Err(Refusal::NotFinished { id: task.id, state }.into());
    }
    let Some(talk) = found.talks.last() else { return Err(Refusal::NoConversation(task.id).into()) };
    let queue = match &asked.queue {
        Some(queue) => queue.clone(),
        None => queue_for(store, &found).await?,
    };
    let payload = payload(&task.payload, &asked.prompt, &talk.session);
    let task = NewTask {
        priority: task.priority,
        folder: task.folder.clone(),
        overrides: task.overrides,
        ..NewTask::new(id, queue, task.kind.clone(), payload)
    };
    Ok(SubmitRequest { task, delay: None, deadline: None, after: Vec::new() })
}

/// The queue of a task. That of a job is served only while the job runs: then the pool of its tasks decides.
async fn queue_for(store: &dyn Store, found: &TaskDetail) -> Result<String, OpsError> {
    let queue = &found.task.queue;
    if job_of(queue).is_none() {
        return Ok(queue.clone());
    }
    let pool = store.queue_settings(queue).await?.pool;
    pool.ok_or_else(|| Refusal::NoPool(found.task.id).into())
}

/// The payload of the other task with another prompt, and with its conversation.
fn payload(before: &str, prompt: &str, session: &str) -> String {
    let mut fields = match serde_json::from_str(before) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    fields.insert("prompt".to_owned(), prompt.into());
    fields.insert("session".to_owned(), session.into());
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_stay_and_the_prompt_is_another_one() {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("it is JSON");
        let kept = read(&payload(r#"{"prompt":"a","model":"m","session":"s-0"}"#, "b", "s-1"));
        assert_eq!(kept, json!({"prompt": "b", "model": "m", "session": "s-1"}));
        assert_eq!(read(&payload("\"a\"", "b", "s-1")), json!({"prompt": "b", "session": "s-1"}));
    }
}
