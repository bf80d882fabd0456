//! Submissions to a node: one task or many, each made once even if an answer is lost.

use std::time::Duration;

use ostler_core::{KeyHold, TaskId, Traceparent};
use ostler_wire::input::TaskInput;
use ostler_wire::task::{SubmitResult, Submitted, SubmittedLine};
use ostler_wire::time::TimeView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{RemoteError, RemoteErrorKind};
use super::{ApiMethod, ApiRequest, RemoteClient};
use crate::kind::Kind;
use crate::submit::Submission;

/// A chunk of tasks is one request and one transaction. The API takes more; a node answers these long before the timeout.
const CHUNK_TASKS: usize = 500;

#[derive(Deserialize)]
struct SubmittedTasks {
    tasks: Vec<SubmittedLine>,
}

/// The body of many submissions. A payload keeps every digit.
#[derive(Serialize)]
struct TaskList {
    tasks: Vec<Box<RawValue>>,
}

impl RemoteClient {
    /// Submits a task and returns its id. Once this returns, the task is on disk.
    ///
    /// # Errors
    /// When the payload cannot be serialized, the queue is full, or the node refuses it or does not answer.
    pub async fn submit<P: Serialize + ?Sized>(
        &self,
        kind: &str,
        payload: &P,
    ) -> Result<TaskId, RemoteError> {
        self.submit_with(kind, payload, Submission::default()).await
    }

    /// Submits a task with options. If another task has the unique key, its id is returned, unless
    /// [`Submission::on_conflict`] says otherwise.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit). Of the retry settings, a submission over HTTP has attempts and timeout.
    pub async fn submit_with<P: Serialize + ?Sized>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskId, RemoteError> {
        let key = self.shared.new_key();
        id_of(&self.submit_once(&key, kind, payload, about).await?.id)
    }

    /// Submits a task under an idempotency key of the caller's: the same call makes one task, even after a restart of the program.
    /// Another payload or other options under that key are refused.
    ///
    /// # Errors
    /// As for [`submit_with`](Self::submit_with).
    pub async fn submit_once<P: Serialize + ?Sized>(
        &self,
        idempotency_key: &str,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<Submitted, RemoteError> {
        let input = self.input(kind, payload, about)?;
        self.submit_input(&input, Some(idempotency_key)).await
    }

    /// Submits a task of a [`Kind`].
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub async fn submit_kind<K: Kind>(&self, task: &K) -> Result<TaskId, RemoteError> {
        self.submit_kind_with(task, Submission::default()).await
    }

    /// Submits a task of a [`Kind`] with options. What they set comes before [`Kind::overrides`].
    ///
    /// # Errors
    /// As for [`submit_with`](Self::submit_with).
    pub async fn submit_kind_with<K: Kind>(
        &self,
        task: &K,
        about: Submission,
    ) -> Result<TaskId, RemoteError> {
        let overrides = about.overrides.or(&K::overrides());
        self.submit_with(K::NAME, task, Submission { overrides, ..about }).await
    }

    /// Submits tasks of one kind, up to 500 in each transaction, and returns an answer for each payload, in order.
    ///
    /// # Errors
    /// When a payload cannot be serialized or a task is wrong, the node refuses it or does not answer: then the chunks before may be
    /// in. A queue that becomes full refuses the tasks that do not fit, each with its own error.
    pub async fn submit_many<P: Serialize + Sync>(
        &self,
        kind: &str,
        payloads: &[P],
    ) -> Result<Vec<Result<TaskId, RemoteError>>, RemoteError> {
        let inputs = payloads.iter().map(|payload| self.input(kind, payload, Submission::default()));
        let answers = self.submit_inputs(&inputs.collect::<Result<Vec<_>, _>>()?, None).await?;
        Ok(answers.iter().map(taken_in).collect())
    }

    /// Submits tasks as the API has them, of any queues and kinds, up to 500 in each transaction. With an idempotency key, the same call
    /// makes nothing twice.
    ///
    /// # Errors
    /// As for [`submit_many`](Self::submit_many).
    pub async fn submit_inputs(
        &self,
        tasks: &[TaskInput],
        idempotency_key: Option<&str>,
    ) -> Result<Vec<SubmittedLine>, RemoteError> {
        let mut answers = Vec::with_capacity(tasks.len());
        for (number, chunk) in tasks.chunks(CHUNK_TASKS).enumerate() {
            let request = ApiRequest::new(ApiMethod::Post, &["tasks"]).body(&TaskList { tasks: raw(chunk)? });
            // The API takes ids or an idempotency key, and either makes a repeat safe.
            let request = match idempotency_key {
                _ if chunk.iter().all(|task| task.id.is_some()) => request.repeatable(),
                Some(key) => request.keyed(&format!("{key}-{number}")),
                None => request.keyed(&self.shared.new_key()),
            };
            let SubmittedTasks { tasks: lines } = self.request(request).await?;
            let before = answers.len() as u64;
            answers.extend(lines.into_iter().map(|line| SubmittedLine { line: line.line + before, ..line }));
        }
        Ok(answers)
    }

    /// Submits one task as the API has it.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub async fn submit_input(
        &self,
        task: &TaskInput,
        idempotency_key: Option<&str>,
    ) -> Result<Submitted, RemoteError> {
        let request = ApiRequest::new(ApiMethod::Post, &["tasks"]).body(task);
        let request = match (&task.id, idempotency_key) {
            (Some(_), _) => request.repeatable(),
            (None, Some(key)) => request.keyed(key),
            (None, None) => request.keyed(&self.shared.new_key()),
        };
        self.request(request).await
    }

    fn input<P: Serialize + ?Sized>(
        &self,
        kind: &str,
        payload: &P,
        about: Submission,
    ) -> Result<TaskInput, RemoteError> {
        let payload = serde_json::value::to_raw_value(payload)
            .map_err(|error| RemoteError::invalid("payload", &error.to_string()))?;
        let overrides = about.overrides;
        if overrides.backoff.is_some() || overrides.base.is_some() || overrides.max.is_some() {
            let sentence = "a submission over HTTP has attempts and timeout; use amend for the rest";
            return Err(RemoteError::invalid("overrides", sentence));
        }
        let time = |at| TimeView::from(at).to_string();
        let (key_until, key_for) = match about.key_hold {
            Some(KeyHold::For(span)) => (None, Some(millis(span))),
            Some(hold @ (KeyHold::Removed | KeyHold::End)) => (hold.name().map(str::to_owned), None),
            None => (None, None),
        };
        let deadline = about.deadline.map(|at| at.since(crate::remote::system::now()));
        Ok(TaskInput {
            queue: Some(self.queue().to_owned()),
            kind: Some(kind.to_owned()),
            payload: Some(payload),
            priority: Some(about.priority.points()).filter(|points| *points != 0),
            delay: None,
            at: about.run_at.map(time),
            id: about.id.map(|id| id.to_string()),
            if_taken: about.key.is_some().then(|| about.on_conflict.name().to_owned()),
            key: about.key,
            timeout: overrides.timeout.map(millis),
            attempts: overrides.attempts.map(u64::from),
            folder: about.folder,
            traceparent: about.traceparent.as_ref().map(Traceparent::to_string),
            not_after: about.not_after.map(time),
            limit_key: about.limit_key,
            cost: about.cost.map(u64::from),
            key_for,
            key_until,
            if_failed: (!about.after.is_empty()).then(|| about.on_failed.name().to_owned()),
            after: about.after.iter().map(TaskId::to_string).collect(),
            deadline: deadline.map(millis),
        })
    }
}

/// Tasks as JSON.
fn raw(tasks: &[TaskInput]) -> Result<Vec<Box<RawValue>>, RemoteError> {
    tasks
        .iter()
        .map(serde_json::value::to_raw_value)
        .collect::<Result<_, _>>()
        .map_err(|error| RemoteError::unreadable(&error))
}

pub(super) fn millis(span: Duration) -> String {
    format!("{}ms", span.as_millis().max(1))
}

fn id_of(text: &str) -> Result<TaskId, RemoteError> {
    text.parse()
        .map_err(|_| RemoteError::new(RemoteErrorKind::Other, "unreadable", format!("{text} is not an id")))
}

/// The id of the task that is stored now, or why none is.
fn taken_in(line: &SubmittedLine) -> Result<TaskId, RemoteError> {
    let refused = |kind, sentence: &str| Err(RemoteError::new(kind, line.result.name(), sentence.to_owned()));
    match line.result {
        SubmitResult::Created | SubmitResult::Existing | SubmitResult::Replaced => {
            id_of(line.id.as_deref().unwrap_or_default())
        }
        SubmitResult::Rejected => refused(RemoteErrorKind::Conflict, "another task has this key"),
        SubmitResult::IdTaken => refused(RemoteErrorKind::Conflict, "the id belongs to another task"),
        SubmitResult::NoSuchTask => refused(RemoteErrorKind::NotFound, "a task to wait for does not exist"),
        SubmitResult::QueueFull => refused(RemoteErrorKind::QueueFull, "the queue is full"),
    }
}
