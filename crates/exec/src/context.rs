//! Context: a handler's view of the attempt that it runs.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ostler_core::{EventBody, Level, LogStream, Role, TaskId, ToolStatus, Traceparent, Usage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::breaker::{Breakers, CallBreaker};
use crate::child_run::ChildRun;
use crate::contract::{Control, Work};
use crate::error::TaskError;
use crate::events::{EventSender, Sent};
use crate::files;
use crate::gateway::{AttemptGateway, PoolGateway};
use crate::resources::Resources;
use crate::secrets::{Secret, Secrets};
use crate::steps::Steps;
use crate::task_calls::{ChildTask, TaskCallError, TaskCalls, TaskInfo};

/// The attempt that a handler runs.
#[derive(Clone, Debug)]
pub struct Context {
    task: TaskId,
    attempt: u32,
    queue: Arc<str>,
    kind: Arc<str>,
    folder: Option<String>,
    traceparent: Option<Traceparent>,
    until: Instant,
    cancel: CancellationToken,
    events: EventSender,
    steps: Steps,
    secrets: Secrets,
    tasks: TaskCalls,
    shared: Arc<Resources>,
    breakers: Breakers,
    gateway: Option<AttemptGateway>,
}

impl Context {
    pub(crate) fn new(work: &Work, control: &Control, shared: &Arc<Resources>, now: Instant) -> Self {
        let gateway = shared.get::<PoolGateway>();
        Self {
            gateway: gateway
                .map(|PoolGateway(gateway)| AttemptGateway::new(Arc::clone(gateway), work, control)),
            task: work.task,
            attempt: work.attempt,
            queue: Arc::clone(&work.queue),
            kind: Arc::clone(&work.kind),
            folder: work.folder.clone(),
            traceparent: work.traceparent.clone(),
            until: now + work.timeout,
            cancel: control.cancel.clone(),
            events: control.events.clone(),
            steps: control.steps.clone(),
            secrets: control.secrets.clone(),
            tasks: control.tasks.clone(),
            shared: Arc::clone(shared),
            breakers: control.breakers.clone(),
        }
    }

    /// The id of the task.
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

    /// The task's kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The working directory, if the task has one.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// The W3C trace context that the task was submitted with, if it was.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_ref().map(Traceparent::as_str)
    }

    /// The value of one of the pool's secrets. In logs, events and errors it is replaced by `[secret NAME]` if it has eight bytes
    /// or more.
    ///
    /// # Errors
    /// When the pool has no such secret. Its queue is stopped then: other tasks of this kind lack it too.
    pub fn secret(&self, name: &str) -> Result<&str, TaskError> {
        let missing = || {
            TaskError::queue_stop(format!("the pool has no secret \"{name}\""))
                .hint("add it to the pool's secrets")
        };
        self.secrets.get(name).map(Secret::expose).ok_or_else(missing)
    }

    /// The value of this type that the pool shares with all of its handlers, such as a client or a connection pool.
    ///
    /// # Errors
    /// A permanent one when the pool shares no value of this type.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Result<&T, TaskError> {
        self.shared.get().ok_or_else(|| {
            let what = std::any::type_name::<T>();
            TaskError::permanent(format!("the pool shares no value of the type {what} with its handlers"))
        })
    }

    /// The gateway of the pool: sessions with an agent, in which a handler asks several things one after the other.
    ///
    /// ```
    /// # use ostler_exec::{Context, SessionRequest, TaskError};
    /// async fn handle(prompt: String, ctx: Context) -> Result<String, TaskError> {
    ///     let session = ctx.gateway()?.create_session(SessionRequest::default()).await?;
    ///     session.run_query(format!("Make a plan: {prompt}")).await?;
    ///     Ok(session.run_query("Do the first step.").await?.text())
    /// }
    /// ```
    ///
    /// # Errors
    /// A permanent one when the pool has none.
    pub fn gateway(&self) -> Result<&AttemptGateway, TaskError> {
        self.gateway.as_ref().ok_or_else(|| {
            TaskError::permanent("the pool has no gateway").hint("give the pool one where it is configured")
        })
    }

    /// The task's own record: payload, key, attempts so far, and when it was submitted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn record_of_task(&self) -> Result<TaskInfo, TaskError> {
        let found = self.look_up(self.task).await?;
        found.ok_or_else(|| TaskError::transient("the task is gone"))
    }

    /// A circuit breaker around a call, such as one to another service. It is durable, and shared by all processes of the store:
    /// after repeated failures no call of this name is made until the reset time has passed; then one call is made as a probe, and
    /// its result closes or reopens the breaker.
    ///
    /// ```
    /// # use ostler_exec::{Context, TaskError};
    /// # async fn charge(_: u32) -> Result<String, TaskError> { Ok(String::new()) }
    /// async fn handle(amount: u32, ctx: Context) -> Result<String, TaskError> {
    ///     ctx.breaker("payments").call(|| charge(amount)).await
    /// }
    /// ```
    pub fn breaker(&self, name: impl Into<String>) -> CallBreaker {
        CallBreaker::new(name.into(), self.breakers.clone())
    }

    /// The time left before the attempt times out.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether the attempt should stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the attempt should stop.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Reports progress.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        self.events.say(EventBody::Progress { done, total, note: None });
    }

    /// Writes a log line at level info.
    pub fn log(&self, message: impl Into<String>) {
        self.log_at(Level::Info, message);
    }

    /// Writes a log line at the given level.
    pub fn log_at(&self, level: Level, message: impl Into<String>) {
        self.events.say(EventBody::Log { level, stream: LogStream::Log, text: message.into() });
    }

    /// Records the rendered prompt of the attempt. Like every part of a conversation, it is never lost: while the store is slower
    /// than the handler, this waits.
    pub async fn prompt(&self, text: impl Into<String>) {
        self.record(EventBody::Prompt { text: text.into() }).await;
    }

    /// Records a message of a conversation.
    pub async fn message(&self, role: Role, text: impl Into<String>) {
        self.record(EventBody::Message { role, text: text.into() }).await;
    }

    /// Records a model's reasoning.
    pub async fn thinking(&self, text: impl Into<String>) {
        self.record(EventBody::Thinking { text: text.into() }).await;
    }

    /// Records that a model calls a tool. `call` joins the call and its result; `input` is JSON text.
    pub async fn tool_call(
        &self,
        call: impl Into<String>,
        tool: impl Into<String>,
        input: impl Into<String>,
    ) {
        let (call, tool, input) = (call.into(), tool.into(), input.into());
        self.record(EventBody::ToolCall { call, tool, input }).await;
    }

    /// Records the result of a tool.
    pub async fn tool_result(&self, call: impl Into<String>, status: ToolStatus, output: impl Into<String>) {
        let (call, output) = (call.into(), output.into());
        self.record(EventBody::ToolResult { call, tool: None, status, output }).await;
    }

    /// Records what a model was paid for since the last such call. The sum stands in the attempt, by model.
    pub async fn usage(&self, usage: Usage) {
        self.record(EventBody::Usage(usage)).await;
    }

    /// Records the id of a conversation that a later attempt can resume. It is durable when this returns, so that it is known
    /// whatever becomes of the work that follows.
    ///
    /// # Errors
    /// When the lease is lost: nothing more that the attempt reports counts.
    pub async fn session(&self, id: impl Into<String>) -> Result<(), TaskError> {
        match self.events.store(EventBody::Session { id: id.into() }).await {
            Sent::Yes => Ok(()),
            Sent::Closed => Err(TaskError::transient("the lease is lost")),
        }
    }

    /// The id of the last conversation that an earlier attempt of the task reported with [`session`](Self::session), to resume
    /// it. A first attempt has none, and reads nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn previous_session(&self) -> Result<Option<String>, TaskError> {
        let read = self.steps.previous_session().await;
        read.map_err(|error| TaskError::transient(format!("the previous session cannot be read: {error}")))
    }

    /// Submits another task, which is durable when this returns its id. A later attempt that submits the same again (queue, kind and
    /// payload) gets the same task, and so does one with the same key or id.
    ///
    /// # Errors
    /// When it was not submitted: transient if the queue is full, the store is unavailable or the lease is lost.
    pub async fn submit(&self, task: ChildTask) -> Result<TaskId, TaskError> {
        self.tasks.submit(task).await.map_err(TaskCallError::into_task_error)
    }

    /// Submits a prompt to a pool of agents, or of an external gateway, as one task. A later attempt that submits the same again gets the
    /// same task.
    ///
    /// ```no_run
    /// # async fn example(ctx: &ostler_exec::Context) -> Result<(), ostler_exec::TaskError> {
    /// let id = ctx.run("Analyze the codebase and generate a report").on("runs").id("job_abc123").max_iterations(50).await?;
    /// # Ok(()) }
    /// ```
    pub fn run(&self, prompt: impl Into<String>) -> ChildRun {
        ChildRun::new(self.tasks.clone(), prompt.into())
    }

    /// Looks up a task: its state, output and last error. `None`: there is no such task.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn look_up(&self, task: TaskId) -> Result<Option<TaskInfo>, TaskError> {
        self.tasks.look_up(task).await.map_err(TaskCallError::into_task_error)
    }

    /// An event of an attempt that is over is dropped: nothing of it counts any more.
    async fn record(&self, event: EventBody) {
        let _ = self.events.send(event).await;
    }

    /// Records a file that the handler has written into the task's folder: its path within the folder, its size and its SHA-256.
    /// It is part of the attempt's record, up to 1,000 files.
    ///
    /// # Errors
    /// When the task has no folder, or the path does not lead to a regular file in it.
    pub async fn file(&self, path: impl AsRef<Path>) -> Result<(), TaskError> {
        let path = path.as_ref().to_owned();
        let folder = files::own_folder(self.folder(), &path)?;
        let event = self.read_file(move |stopped| files::read(&folder, &path, stopped)).await?;
        self.events.say(event);
        Ok(())
    }

    /// Writes a file into the task's folder, and records it like [`file`](Self::file). A file of this name is replaced.
    ///
    /// # Errors
    /// When the task has no folder, the name leads out of it, or the file cannot be written.
    pub async fn write_file(
        &self,
        name: impl AsRef<Path>,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<(), TaskError> {
        let (name, bytes) = (name.as_ref().to_owned(), bytes.into());
        let folder = files::own_folder(self.folder(), &name)?;
        let written = move |stopped: &AtomicBool| {
            files::write(&folder, &name, &bytes)?;
            files::read(&folder, &name, stopped)
        };
        self.events.say(self.read_file(written).await?);
        Ok(())
    }

    /// Reads on a thread of its own. Dropping the future stops the reading.
    async fn read_file<F>(&self, read: F) -> Result<EventBody, TaskError>
    where
        F: FnOnce(&AtomicBool) -> Result<EventBody, TaskError> + Send + 'static,
    {
        let stopped = Arc::new(AtomicBool::new(false));
        let _stops = StopOnDrop(Arc::clone(&stopped));
        let reading = tokio::task::spawn_blocking(move || read(&stopped));
        reading.await.unwrap_or_else(|_| Err(TaskError::transient("the reading of a file was stopped")))
    }

    /// Runs a step of the task once: its result is durable before this returns, and a later attempt gets the saved result instead of
    /// running the step again. Step names are unique within a handler.
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
    /// The error of the step, with the step's name; or when the result cannot be saved.
    pub async fn step<T, F, R>(&self, name: &str, work: F) -> Result<T, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        self.steps.take(name, work).await
    }

    /// Runs an optional step: if it fails, the task gets a warning, and this returns `None`. A later attempt does not
    /// run it again.
    ///
    /// # Errors
    /// When the result cannot be saved.
    pub async fn step_or_warn<T, F, R>(&self, name: &str, work: F) -> Result<Option<T>, TaskError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, TaskError>>,
    {
        self.steps.take_or_warn(&self.events, name, work).await
    }
}

/// Stops a thread that reads a file.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
