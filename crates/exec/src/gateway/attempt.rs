//! The gateway as one attempt sees it: numbered sessions and queries, answers that are kept, and bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ostler_core::{ErrorClass, EventBody, Failure};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard, RwLock, Semaphore};
use tokio::time::Instant;

use super::stream::{QueryStream, Streams};
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

/// The gateway of an attempt's pool. Clones share its numbers and its bounds. Queries that are under way end with the last of them.
#[derive(Clone, Debug)]
pub struct AttemptGateway(Arc<Visit>);

/// What a handler holds: its streams end with it.
#[derive(Debug)]
pub(super) struct Visit {
    desk: Arc<Desk>,
    /// Queries that stream.
    pub(super) streams: Streams,
}

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
    visit: Arc<Visit>,
    number: u32,
    request: Arc<SessionRequest>,
    /// Can be read while a query runs.
    id: Arc<RwLock<String>>,
    state: Arc<Mutex<SessionState>>,
}

#[derive(Debug)]
struct SessionState {
    origin: SessionOrigin,
    queries: u32,
}

/// A query whose turn has come: no other one of its session runs.
struct SessionTurn {
    desk: Arc<Desk>,
    id: Arc<RwLock<String>>,
    state: OwnedMutexGuard<SessionState>,
    request: Arc<SessionRequest>,
    number: (u32, u32),
    query: GatewayQuery,
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
        let desk = Arc::new(Desk {
            gateway,
            until: Instant::now() + work.timeout,
            work: work.clone(),
            control: control.clone(),
            sessions: AtomicU32::new(0),
            open: Semaphore::new(MAX_OPEN_QUERIES),
        });
        Self(Arc::new(Visit { desk, streams: Streams::default() }))
    }

    /// Creates a session. Its id is durable when this returns. In a repeated attempt it is the session that the earlier one
    /// created at this place.
    ///
    /// # Errors
    /// When there is none, with the class of the cause: a gateway that cannot be reached is transient.
    pub async fn create_session(&self, request: SessionRequest) -> Result<GatewaySession, TaskError> {
        let desk = &self.0.desk;
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
        Ok(self.session(number, request, id, origin))
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
        let (desk, id) = (&self.0.desk, id.into());
        let number = desk.next_session()?;
        desk.has_session(&id).await?;
        Ok(self.session(number, request, id, SessionOrigin::Earlier))
    }

    fn session(
        &self,
        number: u32,
        request: SessionRequest,
        id: String,
        origin: SessionOrigin,
    ) -> GatewaySession {
        GatewaySession {
            visit: Arc::clone(&self.0),
            number,
            request: Arc::new(request),
            id: Arc::new(RwLock::new(id)),
            state: Arc::new(Mutex::new(SessionState { origin, queries: 0 })),
        }
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
        self.id.read().await.clone()
    }

    /// Asks, and waits for the answer. What the agent says and does meanwhile is in the attempt's transcript, and what it costs in
    /// the attempt's cost. The answer is durable when this returns: a repeated attempt that asks the same at this place gets it
    /// without another request.
    ///
    /// # Errors
    /// When there is no answer, with the class of the cause. An error that the handler returns ends the attempt with that class.
    pub async fn run_query(&self, query: impl Into<GatewayQuery>) -> Result<GatewayAnswer, TaskError> {
        let turn = self.turn(query.into()).await?;
        let control = turn.desk.control.clone();
        turn.answer(&control).await
    }

    /// Asks, and hands over what the agent says and does as it arrives, and then the answer. It returns when the turn of the query has
    /// come: queries of one session run one after the other. Otherwise it is like [`run_query`](Self::run_query).
    ///
    /// ```
    /// # use ostler_core::EventBody;
    /// # use ostler_exec::{Context, SessionRequest, TaskError};
    /// async fn handle(prompt: String, ctx: Context) -> Result<String, TaskError> {
    ///     let session = ctx.gateway()?.create_session(SessionRequest::default()).await?;
    ///     let mut stream = session.stream(prompt).await?;
    ///     while let Some(event) = stream.next().await? {
    ///         if let EventBody::ToolCall { tool, .. } = event {
    ///             ctx.log(format!("it uses {tool}"));
    ///         }
    ///     }
    ///     Ok(stream.answer().await?.text())
    /// }
    /// ```
    ///
    /// # Errors
    /// When the query cannot begin.
    pub async fn stream(&self, query: impl Into<GatewayQuery>) -> Result<QueryStream, TaskError> {
        let turn = self.turn(query.into()).await?;
        let Desk { control, until, .. } = &*turn.desk;
        let (control, until) = (control.clone(), *until);
        QueryStream::begin(&self.visit, &control, until, |control| async move { turn.answer(&control).await })
    }

    /// Waits for the turn of a query.
    async fn turn(&self, query: GatewayQuery) -> Result<SessionTurn, TaskError> {
        if query.input.trim().is_empty() {
            return Err(TaskError::permanent("the input of a query is empty"));
        }
        if query.input.len() > MAX_INPUT_BYTES {
            let bytes = query.input.len();
            let message = format!("the input of a query has {bytes} bytes; the limit is {MAX_INPUT_BYTES}");
            return Err(TaskError::permanent(message));
        }
        let mut state = Arc::clone(&self.state).lock_owned().await;
        state.queries += 1;
        if state.queries > MAX_QUERIES {
            return Err(TaskError::permanent(format!("a session has at most {MAX_QUERIES} queries")));
        }
        let number = (self.number, state.queries);
        let (desk, request) = (Arc::clone(&self.visit.desk), Arc::clone(&self.request));
        Ok(SessionTurn { desk, id: Arc::clone(&self.id), state, request, number, query })
    }
}

impl SessionTurn {
    /// The answer: what an earlier attempt got, or what the gateway says now.
    async fn answer(self, control: &Control) -> Result<GatewayAnswer, TaskError> {
        let Self { desk, id, mut state, request, number, query } = self;
        let step = format!("gateway query {}.{} {}", number.0, number.1, digest(&query));
        if let Some(kept) = desk.kept::<KeptAnswer>(&step).await? {
            desk.note(format!("query {}.{} was answered in an earlier attempt", number.0, number.1)).await;
            return Ok(GatewayAnswer { output: kept.output, session: kept.session });
        }
        let _place = tokio::select! {
            biased;
            () = control.cancel.cancelled() => return Err(failed(QueryEnd::Cancelled)),
            place = desk.open.acquire() => place,
        };
        let mut session = id.read().await.clone();
        let output = match desk.asked((&session, state.origin), number, &request, &query, control).await {
            Err(QueryEnd::UnknownSession) if state.origin == SessionOrigin::Earlier => {
                desk.note(format!("the gateway does not know the session {session}: a new one begins")).await;
                session = desk.created(number.0, &request).await.map_err(failed)?;
                id.write().await.clone_from(&session);
                state.origin = SessionOrigin::New;
                desk.has_session(&session).await?;
                desk.asked((&session, state.origin), number, &request, &query, control).await
            }
            other => other,
        };
        let output = output.map_err(failed)?;
        serde_json::from_str::<IgnoredAny>(&output)
            .map_err(|error| TaskError::transient(format!("the gateway's answer is not JSON: {error}")))?;
        let kept = KeptAnswer { session, output };
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
        (session, origin): (&str, SessionOrigin),
        number: (u32, u32),
        request: &SessionRequest,
        query: &GatewayQuery,
        control: &Control,
    ) -> Result<String, QueryEnd> {
        let timeout = self.until.saturating_duration_since(Instant::now());
        let work = Work { timeout, ..self.work.clone() };
        let asked = SessionQuery {
            session,
            origin,
            workspace: self.workspace(request),
            number,
            query,
            work: &work,
            control,
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
mod tests;
