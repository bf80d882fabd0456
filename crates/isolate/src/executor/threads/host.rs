//! The function host on a thread of the node: events go to the attempt directly, and calls to the task that waits for it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use ostler_core::{ErrorClass, EventBody, Failure, Level, LogStream};
use ostler_exec::{Control, EventSender, Secrets, StepError, StepLookup, Steps};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::executor::calls::NodeCalls;
use crate::host::{FunctionHost, FunctionProgress, HostAnswer, HostCall, HostError, HostReply};

/// A call of a function, and where its answer goes. The bridge bounds how many are open.
pub(super) struct Question {
    call: HostCall,
    reply: HostReply,
}

/// What the thread gets of an attempt.
pub(super) struct ThreadSide {
    events: EventSender,
    secrets: Secrets,
    questions: mpsc::UnboundedSender<Question>,
}

/// What the attempt keeps: it answers the calls.
pub(super) struct NodeSide {
    questions: mpsc::UnboundedReceiver<Question>,
    steps: Steps,
    calls: Arc<NodeCalls>,
    unsaved: Arc<OnceLock<Failure>>,
}

impl ThreadSide {
    pub(super) fn new(control: &Control, calls: NodeCalls, secrets: Secrets) -> (Self, NodeSide) {
        let (sender, questions) = mpsc::unbounded_channel();
        let side = Self { events: control.events.clone(), secrets, questions: sender };
        let (steps, calls) = (control.steps.clone(), Arc::new(calls));
        (side, NodeSide { questions, steps, calls, unsaved: Arc::default() })
    }
}

impl NodeSide {
    /// The failure of a step that could not be saved: whatever the function makes of it, this is why the attempt fails.
    pub(super) fn unsaved(&self) -> Arc<OnceLock<Failure>> {
        Arc::clone(&self.unsaved)
    }

    /// Answers calls, until it is dropped with the attempt: unanswered ones are dropped then.
    pub(super) async fn answer_all(mut self) -> Infallible {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                question = self.questions.recv() => {
                    // When the call has ended, its result is there.
                    let Some(Question { call, reply }) = question else { return std::future::pending().await };
                    let (steps, calls) = (self.steps.clone(), Arc::clone(&self.calls));
                    let unsaved = self.unsaved();
                    open.spawn(async move { reply.send(answer(&steps, &calls, &unsaved, call).await) });
                }
                Some(_) = open.join_next() => {}
            }
        }
    }
}

async fn answer(
    steps: &Steps,
    calls: &NodeCalls,
    unsaved: &OnceLock<Failure>,
    call: HostCall,
) -> Result<HostAnswer, HostError> {
    let unkept = |name: &str, error: &StepError| {
        let message = format!("the step \"{name}\" is not kept: {error}");
        let class = match error {
            StepError::Lost | StepError::Away(_) => ErrorClass::Transient,
            StepError::Refused(_) => ErrorClass::Permanent,
        };
        // The first one counts.
        let failure = Failure { step: Some(name.to_owned()), ..Failure::new(class, message.clone()) };
        let _ = unsaved.set(failure);
        HostError(message)
    };
    match call {
        HostCall::BeginStep { name } => match steps.store() {
            None => Ok(HostAnswer::Nothing),
            Some(store) => match store.begin(&name).await {
                Ok(StepLookup::New) => Ok(HostAnswer::Nothing),
                Ok(StepLookup::Done(value)) => Ok(HostAnswer::Json(value)),
                Ok(StepLookup::Twice) => {
                    Err(HostError(format!("the step \"{name}\" is done twice in one attempt")))
                }
                Err(error) => Err(unkept(&name, &error)),
            },
        },
        HostCall::SaveStep { name, value } => match steps.store() {
            None => Ok(HostAnswer::Nothing),
            Some(store) => {
                let saved = store.save(&name, &value).await;
                saved.map(|()| HostAnswer::Nothing).map_err(|error| unkept(&name, &error))
            }
        },
        other @ (HostCall::WriteFile { .. }
        | HostCall::Fetch(_)
        | HostCall::FetchBody { .. }
        | HostCall::FetchClose { .. }) => calls.answer(other).await,
    }
}

/// The host of one call.
pub(super) struct ThreadHost(ThreadSide);

impl ThreadHost {
    pub(super) const fn new(side: ThreadSide) -> Self {
        Self(side)
    }
}

impl FunctionHost for ThreadHost {
    fn log(&self, level: Level, line: &str) {
        self.0.events.say(EventBody::Log { level, stream: LogStream::Log, text: line.to_owned() });
    }

    fn progress(&self, progress: &FunctionProgress) {
        let FunctionProgress { done, total, note } = progress.clone();
        self.0.events.say(EventBody::Progress { done, total, note });
    }

    fn secret(&self, name: &str) -> Option<String> {
        self.0.secrets.get(name).map(|secret| secret.expose().to_owned())
    }

    fn call(&self, call: HostCall, reply: HostReply) {
        // Dropping the question answers it with an error.
        let _ = self.0.questions.send(Question { call, reply });
    }
}
