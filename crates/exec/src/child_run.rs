//! A run that a handler submits: a prompt for a pool of agents, in one line.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::path::Path;
use std::pin::Pin;

use ostler_core::{RUN_KIND, TaskId};
use serde_json::{Map, Value};

use crate::error::TaskError;
use crate::task_calls::{ChildTask, TaskCallError, TaskCalls};

/// A prompt that is about to be submitted: await it for the id of its task.
#[must_use = "a run does nothing unless it is awaited"]
pub struct ChildRun {
    calls: TaskCalls,
    task: ChildTask,
    fields: Map<String, Value>,
}

impl fmt::Debug for ChildRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildRun").field("task", &self.task).finish_non_exhaustive()
    }
}

impl ChildRun {
    pub(crate) fn new(calls: TaskCalls, prompt: String) -> Self {
        let fields = Map::from_iter([("prompt".to_owned(), prompt.into())]);
        Self { calls, task: ChildTask::new(RUN_KIND, String::new()), fields }
    }

    /// Names the pool of agents. Default: that of the handler's own task.
    pub fn on(mut self, pool: impl Into<String>) -> Self {
        self.task.queue = Some(pool.into());
        self
    }

    /// Gives the run an id of the handler's own, any text. While the task is stored, another run of this id is the same task.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.task.key = Some(id.into());
        self
    }

    /// Sets the folder in which the agent works.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        // A worker may have another current folder.
        let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        self.task.folder = Some(whole.to_string_lossy().into_owned());
        self
    }

    /// Sets how many model requests it may make, over all its attempts. Default: that of the pool.
    pub fn max_iterations(mut self, most: u32) -> Self {
        self.fields.insert("max_iterations".to_owned(), most.into());
        self
    }

    /// Names the model, in the words of the agent. Default: that of the pool.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.fields.insert("model".to_owned(), model.into().into());
        self
    }
}

impl IntoFuture for ChildRun {
    type Output = Result<TaskId, TaskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { calls, task, fields } = self;
        let task = ChildTask { payload: Value::Object(fields).to_string(), ..task };
        Box::pin(async move { calls.submit(task).await.map_err(TaskCallError::into_task_error) })
    }
}
