//! Runs: a prompt for a queue of agents, in one line, by a client of a store or of a node.

use std::future::IntoFuture;
use std::path::Path;
#[cfg(feature = "connect")]
use std::pin::Pin;

use ostler_core::RUN_KIND;
#[cfg(feature = "connect")]
use ostler_core::TaskId;
use ostler_ops::run::RunRequest;
use serde_json::Value;

use crate::client::Client;
#[cfg(feature = "connect")]
use crate::remote::{RemoteClient, RemoteError};
use crate::submit::{Submission, Submit};

/// A prompt that is about to be submitted: await it for the id of its task.
#[must_use = "a run does nothing unless it is awaited"]
#[derive(Clone)]
pub struct AgentRun<C = Client> {
    client: C,
    request: RunRequest,
}

impl Client {
    /// Submits a prompt to the queue, which agents or a gateway serve.
    ///
    /// ```no_run
    /// # async fn example(client: ostler::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let id = client
    ///     .on("runs")
    ///     .run("Analyze the codebase and generate a report")
    ///     .id("job_abc123")
    ///     .folder("/home/user/project")
    ///     .max_iterations(50)
    ///     .await?;
    /// println!("{}", client.wait_as::<String>(id).await?);
    /// # Ok(()) }
    /// ```
    pub fn run(&self, prompt: impl Into<String>) -> AgentRun {
        AgentRun { client: self.clone(), request: RunRequest::new(prompt) }
    }
}

#[cfg(feature = "connect")]
impl RemoteClient {
    /// Submits a prompt to the queue, which agents or a gateway serve, as [`Client::run`] does.
    pub fn run(&self, prompt: impl Into<String>) -> AgentRun<Self> {
        AgentRun { client: self.clone(), request: RunRequest::new(prompt) }
    }
}

impl<C> AgentRun<C> {
    /// Gives the run an id of the caller's own, any text. While the task is stored, another run of this id is the same task.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.request.id = Some(id.into());
        self
    }

    /// Sets the folder in which the agent works.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        // A worker may have another current folder.
        let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        self.request.folder = Some(whole.to_string_lossy().into_owned());
        self
    }

    /// Sets how many model requests it may make, over all its attempts. Default: that of the pool.
    pub const fn max_iterations(mut self, most: u32) -> Self {
        self.request.max_iterations = Some(most);
        self
    }

    /// Names the model, in the words of the agent. Default: that of the pool.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.request.model = Some(model.into());
        self
    }
}

/// What is submitted for a run: its payload and its options.
fn submission(request: RunRequest) -> (Value, Submission) {
    let payload = request.payload();
    let RunRequest { id: key, folder, .. } = request;
    (payload, Submission { key, folder, ..Submission::default() })
}

impl IntoFuture for AgentRun {
    type Output = <Submit as Future>::Output;
    type IntoFuture = Submit;

    fn into_future(self) -> Submit {
        let (payload, about) = submission(self.request);
        self.client.submit_with(RUN_KIND, &payload, about)
    }
}

#[cfg(feature = "connect")]
impl IntoFuture for AgentRun<RemoteClient> {
    type Output = Result<TaskId, RemoteError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (payload, about) = submission(self.request);
        Box::pin(async move { self.client.submit_with(RUN_KIND, &payload, about).await })
    }
}
