//! The gateway contract: how a handler asks an agent, in sessions of one query or several.
//!
//! - [`Gateway`]: what an implementation does, whatever is behind it: an agent that this node runs, or a server elsewhere.
//! - [`AttemptGateway`] and [`GatewaySession`]: a handler's view. They number sessions and queries, keep what was answered, and
//!   bound what one attempt may ask. `crates/agent/src/gateway` has the implementations.
//! - [`QueryStream`]: a query whose events a handler sees as they arrive. Its implementation knows nothing of it: the sender of events that
//!   it gets makes copies.
//!
//! Sessions and answers are steps of the task. A repeated attempt gets the sessions of the earlier one in the order in which it
//! creates them, and the answers that are stored; only what was not answered is asked again, in the same session.

mod attempt;
mod stream;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use ostler_core::Failure;
use serde_json::{Map, Value};

use crate::contract::{Control, Work};
pub use attempt::{
    AttemptGateway, GatewaySession, MAX_INPUT_BYTES, MAX_OPEN_QUERIES, MAX_QUERIES, MAX_SESSIONS,
};
pub use stream::{MAX_STREAMS, QueryStream};

/// Runs queries in sessions. Events of a query go to the attempt's transcript as they arrive, and its usage to the attempt's cost.
#[async_trait]
pub trait Gateway: Debug + Send + Sync {
    /// Names the gateway: a session belongs to the one that created it.
    fn name(&self) -> String;

    /// Creates a session, and returns its id.
    ///
    /// # Errors
    /// When there is none.
    async fn create_session(&self, asked: NewSession<'_>) -> Result<String, QueryEnd>;

    /// Runs a query to its end, and returns the answer: JSON text. It stops when the attempt is cancelled or lost.
    ///
    /// # Errors
    /// When there is no answer.
    async fn run_query(&self, asked: SessionQuery<'_>) -> Result<String, QueryEnd>;
}

/// A session that is to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    pub user_id: &'a str,
    /// The folder in which its queries work.
    pub workspace: Option<&'a str>,
    /// The number of the session in its attempt, from 1.
    pub number: u32,
    pub work: &'a Work,
    pub control: &'a Control,
}

/// A query that is to be run.
#[derive(Clone, Copy, Debug)]
pub struct SessionQuery<'a> {
    pub session: &'a str,
    pub origin: SessionOrigin,
    pub workspace: Option<&'a str>,
    /// The number of its session in the attempt, and its own in the session: the same in every attempt of the task.
    pub number: (u32, u32),
    pub query: &'a GatewayQuery,
    /// The attempt, with the time that is left of it.
    pub work: &'a Work,
    pub control: &'a Control,
}

/// Where the session of a query comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOrigin {
    /// This attempt created it.
    New,
    /// An earlier attempt did, or another task.
    Earlier,
}

/// What a session is created with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionRequest {
    /// The user that the gateway is to know; `None`: `worker_` and the id of the task.
    pub user_id: Option<String>,
    /// The folder in which its queries work; `None`: the task's.
    pub workspace: Option<String>,
}

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayQuery {
    /// The prompt.
    pub input: String,
    /// Settings of this query, such as `model`, `max_iterations` and `schema`. They win over those of the gateway.
    pub options: Map<String, Value>,
}

impl GatewayQuery {
    #[must_use]
    pub fn new(input: impl Into<String>) -> Self {
        Self { input: input.into(), options: Map::new() }
    }

    /// The same with this setting.
    #[must_use]
    pub fn with(mut self, option: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(option.into(), value.into());
        self
    }
}

impl<T: Into<String>> From<T> for GatewayQuery {
    fn from(input: T) -> Self {
        Self::new(input)
    }
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAnswer {
    /// JSON text: a string, or the value that a schema asked for.
    pub output: String,
    /// The session that it was given in.
    pub session: String,
}

impl GatewayAnswer {
    /// The text of the answer; of a value, its JSON.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::from_str::<String>(&self.output).unwrap_or_else(|_| self.output.clone())
    }
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryEnd {
    Failed(Failure),
    /// The gateway does not know the session.
    UnknownSession,
    /// The attempt must stop.
    Cancelled,
}

impl From<Failure> for QueryEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The gateway of a pool's handlers, among their shared resources.
#[derive(Clone, Debug)]
pub struct PoolGateway(pub Arc<dyn Gateway>);
