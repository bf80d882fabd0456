//! What a handler sees of the attempt that it runs.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::TaskId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::contract::{Control, Work};
use crate::error::TaskError;
use crate::notes::{Level, Note, NoteSender};
use crate::steps::Steps;

/// The attempt, for its handler.
#[derive(Clone, Debug)]
pub struct Context {
    task: TaskId,
    attempt: u32,
    queue: Arc<str>,
    kind: Arc<str>,
    folder: Option<String>,
    until: Instant,
    cancel: CancellationToken,
    notes: NoteSender,
    steps: Steps,
}

impl Context {
    pub(crate) fn new(work: &Work, control: &Control, now: Instant) -> Self {
        Self {
            task: work.task,
            attempt: work.attempt,
            queue: Arc::clone(&work.queue),
            kind: Arc::clone(&work.kind),
            folder: work.folder.clone(),
            until: now + work.timeout,
            cancel: control.cancel.clone(),
            notes: control.notes.clone(),
            steps: control.steps.clone(),
        }
    }

    /// The task.
    #[must_use]
    pub const fn task(&self) -> TaskId {
        self.task
    }

    /// The number of the attempt, counted from one.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The task's queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// What sort of work it is.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The folder to work in, if the task has one.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// How much time is left.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether the attempt is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the attempt is to stop.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Says how far the work is.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        self.notes.say(Note::Progress { done, total, note: None });
    }

    /// Writes a log line.
    pub fn log(&self, message: impl Into<String>) {
        self.log_at(Level::Info, message);
    }

    /// Writes a log line that matters more, or less.
    pub fn log_at(&self, level: Level, message: impl Into<String>) {
        self.notes.say(Note::Log { level, message: message.into() });
    }

    /// Does a step of the task, once: what it came to is durable before this answers, and a later attempt gets it back instead of
    /// doing it again. Each step of a handler has a name of its own.
    ///
    /// ```
    /// # use ostler_exec::{Context, TaskError};
    /// # async fn download(_: &str) -> Result<String, TaskError> { Ok(String::new()) }
    /// async fn handle(url: String, ctx: Context) -> Result<usize, TaskError> {
    ///     let text = ctx.step("downloaded", || download(&url)).await?;
    ///     ctx.step("counted", || async { Ok(text.len()) }).await
    /// }
    /// ```
    ///
    /// # Errors
    /// What the step failed with, with its name; or when it cannot be kept.
    pub async fn step<T, F, R>(&self, name: &str, work: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        self.steps.take(name, work).await
    }

    /// Does a step that the task can do without: if it fails, that is a warning on the task, and `None`. It is not tried again by a
    /// later attempt.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub async fn step_or_warn<T, F, R>(&self, name: &str, work: F) -> Result<Option<T>, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        self.steps.take_or_warn(&self.notes, name, work).await
    }
}
