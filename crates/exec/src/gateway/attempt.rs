//! The gateway as one attempt sees it: numbered sessions and queries, answers that are kept, and bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ostler_core::{ErrorClass, EventBody, Failure};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::{
    Gateway, GatewayAnswer, GatewayQuery, NewSession, QueryEnd, SessionOrigin, SessionQuery, SessionRequest,
};
use crate::contract::{Control, Work};
use crate::error::TaskError;
use crate::events::Sent;
use crate::steps::{StepError, StepLookup};

/// Queries of one attempt that run at once. Others wait; queries of one session run one after the other.
pub const MAX_OPEN_QUERIES: usize = 4;
/// Sessions of one attempt.
pub const MAX_SESSIONS: u32 = 64;
/// Queries of one session in one attempt.
pub const MAX_QUERIES: u32 = 1_000;
/// Bytes of an input.
pub const MAX_INPUT_BYTES: usize = 8 << 20;
/// Digits of an input's digest in the name of its step.
const DIGEST_DIGITS: usize = 12;

/// The gateway of an attempt's pool. Clones share its numbers and its bounds.
#[derive(Clone, Debug)]
pub struct AttemptGateway(Arc<Desk>);

#[derive(Debug)]
struct Desk {
    gateway: Arc<dyn Gateway>,
    work: Work,
    control: Control,
    until: Instant,
    sessions: AtomicU32,
    open: Semaphore,
}

/// A session, in which queries see what was said before.
#[derive(Debug)]
pub struct GatewaySession {
    desk: Arc<Desk>,
    number: u32,
    request: SessionRequest,
    state: Mutex<SessionState>,
}

#[derive(Debug)]
struct SessionState {
    id: String,
    origin: SessionOrigin,
    queries: u32,
}

/// A session, as its step has it.
#[derive(Serialize, Deserialize)]
struct KeptSession {
    id: String,
}

/// An answer, as its step has it.
#[derive(Serialize, Deserialize)]
struct KeptAnswer {
    session: String,
    /// JSON text.
    output: String,
}

impl AttemptGateway {
    /// The view of this attempt.
    #[must_use]
    pub fn new(gateway: Arc<dyn Gateway>, work: &Work, control: &Control) -> Self {
        Self(Arc::new(Desk {
            gateway,
            until: Instant::now() + work.timeout,
            work: work.clone(),
            control: control.clone(),
            sessions: AtomicU32::new(0),
            open: Semaphore::new(MAX_OPEN_QUERIES),
        }))
    }

    /// Creates a session. Its id is durable when this returns. In a repeated attempt it is the session that the earlier one
    /// created at this place.
    ///
    /// # Errors
    /// When there is none, with the class of the cause: a gateway that cannot be reached is transient.
    pub async fn create_session(&self, request: SessionRequest) -> Result<GatewaySession, TaskError> {
        let desk = &self.0;
        let number = desk.next_session()?;
        // Of another gateway, it would not be known there.
        let step = format!("gateway session {number}: {}", desk.gateway.name());
        let kept = desk.kept::<KeptSession>(&step).await?;
        let (id, origin) = match kept {
            Some(kept) => {
                desk.note(format!("goes on in the session {}", kept.id)).await;
                (kept.id, SessionOrigin::Earlier)
            }
            None => {
                let id = desk.created(number, &request).await.map_err(failed)?;
                desk.keep(&step, &KeptSession { id: id.clone() }).await?;
                (id, SessionOrigin::New)
            }
        };
        desk.has_session(&id).await?;
        let state = Mutex::new(SessionState { id, origin, queries: 0 });
        Ok(GatewaySession { desk: Arc::clone(desk), number, request, state })
    }

    /// Goes on in a session that another task has created.
    ///
    /// # Errors
    /// When the lease is lost, or there are too many sessions.
    pub async fn resume_session(
        &self,
        id: impl Into<String>,
        request: SessionRequest,
    ) -> Result<GatewaySession, TaskError> {
        let (desk, id) = (&self.0, id.into());
        let number = desk.next_session()?;
        desk.has_session(&id).await?;
        let state = Mutex::new(SessionState { id, origin: SessionOrigin::Earlier, queries: 0 });
        Ok(GatewaySession { desk: Arc::clone(desk), number, request, state })
    }
}

impl GatewaySession {
    /// The number of the session in its attempt, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The id by which the gateway knows the session.
    pub async fn id(&self) -> String {
        self.state.lock().await.id.clone()
    }

    /// Asks, and waits for the answer. What the agent says and does meanwhile is in the attempt's transcript, and what it costs in
    /// the attempt's cost. The answer is durable when this returns: a repeated attempt that asks the same at this place gets it
    /// without another request.
    ///
    /// # Errors
    /// When there is no answer, with the class of the cause. An error that the handler returns ends the attempt with that class.
    pub async fn run_query(&self, query: impl Into<GatewayQuery>) -> Result<GatewayAnswer, TaskError> {
        let (query, desk) = (query.into(), &*self.desk);
        if query.input.trim().is_empty() {
            return Err(TaskError::permanent("the input of a query is empty"));
        }
        if query.input.len() > MAX_INPUT_BYTES {
            let bytes = query.input.len();
            let message = format!("the input of a query has {bytes} bytes; the limit is {MAX_INPUT_BYTES}");
            return Err(TaskError::permanent(message));
        }
        let mut state = self.state.lock().await;
        state.queries += 1;
        if state.queries > MAX_QUERIES {
            return Err(TaskError::permanent(format!("a session has at most {MAX_QUERIES} queries")));
        }
        let number = (self.number, state.queries);
        let step = format!("gateway query {}.{} {}", number.0, number.1, digest(&query));
        if let Some(kept) = desk.kept::<KeptAnswer>(&step).await? {
            desk.note(format!("query {}.{} was answered in an earlier attempt", number.0, number.1)).await;
            return Ok(GatewayAnswer { output: kept.output, session: kept.session });
        }
        let Ok(_turn) = desk.open.acquire().await else { unreachable!("it is never closed") };
        let output = match desk.asked(&state, number, &self.request, &query).await {
            Err(QueryEnd::UnknownSession) if state.origin == SessionOrigin::Earlier => {
                desk.note(format!("the gateway does not know the session {}: a new one begins", state.id))
                    .await;
                state.id = desk.created(self.number, &self.request).await.map_err(failed)?;
                state.origin = SessionOrigin::New;
                desk.has_session(&state.id).await?;
                desk.asked(&state, number, &self.request, &query).await
            }
            other => other,
        };
        let output = output.map_err(failed)?;
        serde_json::from_str::<IgnoredAny>(&output)
            .map_err(|error| TaskError::transient(format!("the gateway's answer is not JSON: {error}")))?;
        let kept = KeptAnswer { session: state.id.clone(), output };
        match desk.keep(&step, &kept).await {
            Ok(()) => {}
            // The answer was paid for, and counts: only a repeated attempt has to ask again.
            Err(error) if error.class() == ErrorClass::Permanent => {
                desk.control.events.say(EventBody::warning(error.message().to_owned()));
            }
            Err(error) => return Err(error),
        }
        Ok(GatewayAnswer { output: kept.output, session: kept.session })
    }
}

impl Desk {
    fn next_session(&self) -> Result<u32, TaskError> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        if number > MAX_SESSIONS {
            return Err(TaskError::permanent(format!("an attempt has at most {MAX_SESSIONS} sessions")));
        }
        Ok(number)
    }

    fn workspace<'a>(&'a self, request: &'a SessionRequest) -> Option<&'a str> {
        request.workspace.as_deref().or(self.work.folder.as_deref())
    }

    async fn created(&self, number: u32, request: &SessionRequest) -> Result<String, QueryEnd> {
        let usual = format!("worker_{}", self.work.task);
        let asked = NewSession {
            user_id: request.user_id.as_deref().unwrap_or(&usual),
            workspace: self.workspace(request),
            number,
            work: &self.work,
            control: &self.control,
        };
        self.stoppable(self.gateway.create_session(asked)).await
    }

    async fn asked(
        &self,
        state: &SessionState,
        number: (u32, u32),
        request: &SessionRequest,
        query: &GatewayQuery,
    ) -> Result<String, QueryEnd> {
        let timeout = self.until.saturating_duration_since(Instant::now());
        let work = Work { timeout, ..self.work.clone() };
        let asked = SessionQuery {
            session: &state.id,
            origin: state.origin,
            workspace: self.workspace(request),
            number,
            query,
            work: &work,
            control: &self.control,
        };
        // It stops by itself when it is cancelled, so that an agent can be asked to.
        self.gateway.run_query(asked).await
    }

    async fn stoppable<T>(&self, work: impl Future<Output = Result<T, QueryEnd>>) -> Result<T, QueryEnd> {
        tokio::select! {
            biased;
            () = self.control.cancel.cancelled() => Err(QueryEnd::Cancelled),
            done = work => done,
        }
    }

    /// Stores the session's id: it is known whatever becomes of the queries that follow.
    async fn has_session(&self, id: &str) -> Result<(), TaskError> {
        match self.control.events.store(EventBody::Session { id: id.to_owned() }).await {
            Sent::Yes => Ok(()),
            Sent::Closed => Err(TaskError::transient("the lease is lost")),
        }
    }

    async fn note(&self, text: String) {
        let _ = self.control.events.send(EventBody::Status { text }).await;
    }

    /// What an earlier attempt kept under this name.
    async fn kept<T: for<'de> Deserialize<'de>>(&self, step: &str) -> Result<Option<T>, TaskError> {
        let Some(store) = self.control.steps.store() else { return Ok(None) };
        match store.begin(step).await.map_err(|error| unkept(step, &error))? {
            // A value of another form is that of a handler with a step of this name.
            StepLookup::Done(value) => Ok(serde_json::from_str(&value).ok()),
            StepLookup::New | StepLookup::Twice => Ok(None),
        }
    }

    async fn keep(&self, step: &str, value: &impl Serialize) -> Result<(), TaskError> {
        let Some(store) = self.control.steps.store() else { return Ok(()) };
        let value = serde_json::to_string(value).map_err(|error| {
            TaskError::permanent(format!("\"{step}\" cannot be written as JSON: {error}"))
        })?;
        store.save(step, &value).await.map_err(|error| unkept(step, &error))
    }
}

fn failed(end: QueryEnd) -> TaskError {
    match end {
        QueryEnd::Failed(failure) => TaskError::from_failure(failure),
        QueryEnd::UnknownSession => TaskError::permanent("the gateway does not know the session"),
        QueryEnd::Cancelled => TaskError::transient("the attempt is to stop"),
    }
}

fn unkept(step: &str, error: &StepError) -> TaskError {
    let class = match error {
        StepError::Lost | StepError::Away(_) => ErrorClass::Transient,
        StepError::Refused(_) => ErrorClass::Permanent,
    };
    TaskError::from_failure(Failure::new(class, format!("\"{step}\" is not kept: {error}")))
}

/// Names what was asked: a handler that asks something else at the same place gets no earlier answer.
fn digest(query: &GatewayQuery) -> String {
    let options = serde_json::to_string(&query.options).unwrap_or_default();
    let digest = Sha256::new().chain_update(&query.input).chain_update("\n").chain_update(options).finalize();
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..DIGEST_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use async_trait::async_trait;
    use ostler_core::{Id, TaskId, WorkerId};

    use super::*;
    use crate::events::event_channel;

    /// Answers with the number of queries that run at that moment.
    #[derive(Debug, Default)]
    struct Counting {
        open: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait]
    impl Gateway for Counting {
        fn name(&self) -> String {
            "counting".to_owned()
        }

        async fn create_session(&self, asked: NewSession<'_>) -> Result<String, QueryEnd> {
            Ok(format!("{}-{}", asked.user_id, asked.number))
        }

        async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd> {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(open, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.open.fetch_sub(1, Ordering::SeqCst);
            Ok(format!("\"{}.{}\"", asked.number.0, asked.number.1))
        }
    }

    fn attempt() -> (AttemptGateway, Arc<Counting>) {
        let (sender, receiver) = event_channel();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while receiver.recv_many(&mut batch, 100).await > 0 {
                batch.drain(..).for_each(|queued| queued.receipt.stored());
            }
        });
        let work = Work {
            task: TaskId(Id::from_bits(1)),
            token: 1,
            worker: WorkerId(Id::from_bits(2)),
            attempt: 1,
            queue: "runs".into(),
            kind: "run".into(),
            payload: "null".into(),
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(1),
            folder: None,
            traceparent: None,
        };
        let counting = Arc::<Counting>::default();
        let gateway = Arc::clone(&counting) as Arc<dyn Gateway>;
        (AttemptGateway::new(gateway, &work, &Control::new(sender)), counting)
    }

    #[tokio::test(start_paused = true)]
    async fn queries_of_an_attempt_are_bounded_and_those_of_a_session_come_one_by_one() {
        let (gateway, counting) = attempt();
        let mut sessions = Vec::new();
        for _ in 0..MAX_OPEN_QUERIES + 2 {
            sessions
                .push(Arc::new(gateway.create_session(SessionRequest::default()).await.expect("a session")));
        }
        let usual = format!("worker_{}-1", TaskId(Id::from_bits(1)));
        assert_eq!(sessions[0].id().await, usual, "the user, unless another is given");
        let ask = |session: &Arc<GatewaySession>| {
            let session = Arc::clone(session);
            tokio::spawn(async move { session.run_query("x").await.expect("an answer").text() })
        };
        let running: Vec<_> = sessions.iter().map(ask).collect();
        for (at, running) in running.into_iter().enumerate() {
            assert_eq!(running.await.expect("it ends"), format!("{}.1", at + 1));
        }
        assert_eq!(counting.most.swap(0, Ordering::SeqCst), MAX_OPEN_QUERIES);
        let (second, third) = (ask(&sessions[0]), ask(&sessions[0]));
        let both = [second.await.expect("it ends"), third.await.expect("it ends")];
        assert!(both.contains(&"1.2".to_owned()) && both.contains(&"1.3".to_owned()), "{both:?}");
        assert_eq!(counting.most.load(Ordering::SeqCst), 1);
    }
}
