//! Testing of handlers: an attempt that no node made, whose handler is called directly (a feature).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_core::{EventBody, Id, TaskId, WorkerId};
use serde::Serialize;

use crate::context::Context;
use crate::contract::{Control, Work};
use crate::error::TaskError;
use crate::events::{EventReceiver, event_channel};
use crate::resources::Resources;
use crate::secrets::{OutputRedaction, Secret, Secrets};
use crate::steps::{StepError, StepLookup, StepStore, Steps};

/// Events taken at once.
const BATCH: usize = 100;

/// An attempt for a test: what the handler finds in its context.
///
/// ```
/// use ostler_exec::testing::TestAttempt;
/// use ostler_exec::{Context, TaskError};
///
/// async fn greet(name: String, ctx: Context) -> Result<String, TaskError> {
///     ctx.log(format!("attempt {}", ctx.attempt()));
///     Ok(format!("hello, {name}"))
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let run = TestAttempt::new().attempt(2).call(greet, "Ada".to_owned()).await;
/// assert_eq!(run.result.as_deref(), Ok("hello, Ada"));
/// assert_eq!(run.logs(), ["attempt 2"]);
/// # });
/// ```
#[derive(Debug)]
pub struct TestAttempt {
    work: Work,
    shared: Resources,
    saved: BTreeMap<String, String>,
    session: Option<String>,
    secrets: Vec<Secret>,
    cancelled: Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancelled {
    No,
    FromTheStart,
}

/// What a handler did.
#[derive(Debug)]
pub struct TestRun<O> {
    /// What it returned.
    pub result: Result<O, TaskError>,
    /// What it reported, in order.
    pub events: Vec<EventBody>,
    /// The steps that are saved now, with their values as JSON text.
    pub steps: BTreeMap<String, String>,
}

impl<O> TestRun<O> {
    /// Its log lines.
    #[must_use]
    pub fn logs(&self) -> Vec<&str> {
        let lines = self.events.iter().filter_map(|event| {
            if let EventBody::Log { text, .. } = event { Some(text.as_str()) } else { None }
        });
        lines.collect()
    }
}

impl Default for TestAttempt {
    fn default() -> Self {
        Self::new()
    }
}

impl TestAttempt {
    /// The first attempt of a task of the kind "test" in the queue "test", with a minute of time.
    #[must_use]
    pub fn new() -> Self {
        let work = Work {
            task: TaskId(Id::from_bits(1)),
            token: 1,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 1,
            queue: "test".into(),
            kind: "test".into(),
            payload: String::new(),
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(5),
            folder: None,
            traceparent: None,
        };
        Self {
            work,
            shared: Resources::default(),
            saved: BTreeMap::new(),
            session: None,
            secrets: Vec::new(),
            cancelled: Cancelled::No,
        }
    }

    /// Sets the number of the attempt, counted from one.
    #[must_use]
    pub fn attempt(mut self, number: u32) -> Self {
        self.work.attempt = number;
        self
    }

    /// Sets the id of the task.
    #[must_use]
    pub fn task(mut self, id: TaskId) -> Self {
        self.work.task = id;
        self
    }

    /// Sets queue and kind.
    #[must_use]
    pub fn of(mut self, queue: &str, kind: &str) -> Self {
        (self.work.queue, self.work.kind) = (queue.into(), kind.into());
        self
    }

    /// Sets the task's folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<String>) -> Self {
        self.work.folder = Some(folder.into());
        self
    }

    /// Sets the time that the attempt has. The handler is not stopped when it is over.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.work.timeout = timeout;
        self
    }

    /// Shares a value with the handler.
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared = self.shared.with(value);
        self
    }

    /// A step that an earlier attempt has saved.
    ///
    /// # Panics
    /// When the value cannot be written as JSON.
    #[must_use]
    pub fn saved<T: Serialize>(mut self, step: impl Into<String>, value: &T) -> Self {
        let value = serde_json::to_string(value).expect("a step is saved as JSON");
        self.saved.insert(step.into(), value);
        self
    }

    /// The session that an earlier attempt has reported.
    #[must_use]
    pub fn previous_session(mut self, id: impl Into<String>) -> Self {
        self.session = Some(id.into());
        self
    }

    /// A secret of the pool.
    ///
    /// # Panics
    /// When the name is not like that of an environment variable, or the value is empty.
    #[must_use]
    pub fn secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.push(Secret::new(name, value).expect("a valid secret"));
        self
    }

    /// The attempt should stop, from the start.
    #[must_use]
    pub fn cancelled(mut self) -> Self {
        self.cancelled = Cancelled::FromTheStart;
        self
    }

    /// Calls the handler.
    pub async fn call<P, O, F, R>(self, handler: F, payload: P) -> TestRun<O>
    where
        F: FnOnce(P, Context) -> R,
        R: Future<Output = Result<O, TaskError>>,
    {
        let saved = SavedSteps { values: self.saved, begun: BTreeSet::new(), session: self.session };
        let steps = Arc::new(TestSteps(Mutex::new(saved)));
        let secrets = Secrets::new(self.secrets, OutputRedaction::Off).expect("each has its own name");
        let (sender, receiver) = event_channel();
        sender.redact(&secrets);
        let store: Arc<dyn StepStore> = Arc::clone(&steps) as Arc<dyn StepStore>;
        let control = Control { steps: Steps::kept(store), secrets, ..Control::new(sender) };
        if self.cancelled == Cancelled::FromTheStart {
            control.cancel.cancel();
        }
        let context = Context::new(&self.work, &control, &Arc::new(self.shared), Instant::now());
        let mut events = Vec::new();
        let mut running = std::pin::pin!(handler(payload, context));
        let result = loop {
            tokio::select! {
                biased;
                result = &mut running => break result,
                () = take(&receiver, &mut events) => {}
            }
        };
        receiver.close();
        while let Some(event) = receiver.try_recv() {
            events.push(event);
        }
        let steps = std::mem::take(&mut steps.lock().values);
        TestRun { result, events, steps }
    }
}

/// Takes the next events, as a store would.
async fn take(receiver: &EventReceiver, events: &mut Vec<EventBody>) {
    let mut batch = Vec::new();
    receiver.recv_many(&mut batch, BATCH).await;
    for queued in batch {
        events.push(queued.body);
        queued.receipt.stored();
    }
}

/// Steps that are saved for the length of one call.
#[derive(Debug)]
struct TestSteps(Mutex<SavedSteps>);

#[derive(Debug)]
struct SavedSteps {
    values: BTreeMap<String, String>,
    begun: BTreeSet<String>,
    session: Option<String>,
}

impl TestSteps {
    fn lock(&self) -> MutexGuard<'_, SavedSteps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StepStore for TestSteps {
    async fn begin(&self, name: &str) -> Result<StepLookup, StepError> {
        let mut steps = self.lock();
        if !steps.begun.insert(name.to_owned()) {
            return Ok(StepLookup::Twice);
        }
        let done = steps.values.get(name).cloned();
        Ok(done.map_or(StepLookup::New, StepLookup::Done))
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        Ok(self.lock().values.clone().into_iter().collect())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(self.lock().session.clone())
    }

    async fn save(&self, name: &str, value: &str) -> Result<(), StepError> {
        self.lock().values.insert(name.to_owned(), value.to_owned());
        Ok(())
    }
}
