//! The gateway in the process: each query is a run of an agent, under the supervisor of this node.

use async_trait::async_trait;
use ostler_core::{ErrorClass, Failure, Outcome, Timestamp};
use ostler_exec::{AttemptResult, Gateway, NewSession, QueryEnd, SessionOrigin, SessionQuery, Work};
use ostler_process::supervisor::Supervisor;
use serde_json::Value;

use crate::executor::{AgentExecutor, AgentPolicy, AgentPolicyError, Talk};
use crate::launch::is_session_id;

/// Runs queries by agents of this node. A session has a home of its own, so that it outlives the attempt and the node.
#[derive(Debug)]
pub struct AgentGateway(AgentExecutor);

impl AgentGateway {
    /// A gateway whose agents run by this policy. `now` is the wall clock.
    ///
    /// # Errors
    /// When the policy is not valid.
    pub fn new(
        supervisor: Supervisor,
        policy: AgentPolicy,
        now: fn() -> Timestamp,
    ) -> Result<Self, AgentPolicyError> {
        AgentExecutor::new(supervisor, policy, now).map(Self)
    }
}

#[async_trait]
impl Gateway for AgentGateway {
    fn name(&self) -> String {
        self.0.policy().dialect.name().to_owned()
    }

    /// A session begins with its first query. Its name is that of its home: it must differ from those of all other claims.
    async fn create_session(&self, asked: NewSession<'_>) -> Result<String, QueryEnd> {
        Ok(format!("{}-{}-{}", asked.work.task, asked.work.token, asked.number))
    }

    async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd> {
        if !is_session_id(asked.session) {
            return Err(match asked.origin {
                SessionOrigin::Earlier => QueryEnd::UnknownSession,
                SessionOrigin::New => {
                    Failure::new(ErrorClass::Permanent, "the id of the session is not valid").into()
                }
            });
        }
        let mut fields = asked.query.options.clone();
        fields.insert("prompt".to_owned(), asked.query.input.clone().into());
        let work = Work {
            payload: Value::Object(fields).to_string(),
            folder: asked.workspace.map(str::to_owned),
            ..asked.work.clone()
        };
        let (session, query) = asked.number;
        let talk =
            Talk::Session { home: asked.session.to_owned(), query: format!("query {session}.{query}") };
        let mut ended = self.0.hold(&work, asked.control, talk).await;
        if let Some(reading) = ended.reading.take() {
            asked.control.account.read(reading);
        }
        answer(ended)
    }
}

/// How a run ended, for the handler that asked.
fn answer(ended: AttemptResult) -> Result<String, QueryEnd> {
    let AttemptResult { outcome, output, shortage, .. } = ended;
    match outcome {
        Outcome::Success => Ok(output.unwrap_or_else(|| "null".to_owned())),
        Outcome::Failed(failure) => Err(failure.into()),
        Outcome::Cancelled => Err(QueryEnd::Cancelled),
        Outcome::HandedBack | Outcome::NodeDied => {
            let why = shortage.unwrap_or_else(|| "the agent was not started".to_owned());
            Err(Failure::new(ErrorClass::Transient, why).into())
        }
    }
}
