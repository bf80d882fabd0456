//! A client of a node, over its HTTP API: the calls of a [`Client`](crate::Client) without the store.
//!
//! - [`connect`]: where the node is, and the token (`address.rs`). `exchange.rs`: one request, what is sent again, and the bounds.
//! - `tasks.rs`, `submit.rs`, `many.rs`: tasks. `events.rs`: their events as they come. `live.rs`: the overview. `jobs.rs`: jobs. `system.rs`: queues and the rest.
//!
//! A call has the name and the arguments that it has on a store. What it returns is a view, the JSON of the API: a node may be newer than
//! the program, and a view only gains fields.

mod address;
mod error;
mod events;
mod exchange;
mod jobs;
mod live;
mod many;
mod submit;
mod system;
mod tasks;

use std::path::Path;
use std::sync::Arc;

use ostler_core::TaskId;
use ostler_runtime::Ids;

use crate::client::DEFAULT_QUEUE;
use crate::ids::ids;
use address::NodeAddress;
use exchange::Exchange;

pub use error::{RemoteError, RemoteErrorKind};
pub use events::Follow;
pub use exchange::{ApiMethod, ApiRequest};
pub use jobs::RemoteJob;
pub use live::{Live, LiveState};
pub use many::BulkAction;
pub use tasks::{EventsPage, LettersPage, TasksPage, filter_input};

/// The address of a node that is not named: that of `ostler up` without settings.
pub const DEFAULT_NODE: &str = "http://127.0.0.1:7700";

/// A client of a node. Clones share their settings; each request has a connection of its own.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = ostler::connect("http://127.0.0.1:7700")?.with_token_file("jobs.db.token")?;
/// let id = client.on("texts").submit("count", &"to be or not").await?;
/// let words: u32 = client.wait_as(id).await?;
/// # Ok(()) }
/// ```
///
/// A request whose answer was lost is sent again, a few times, if that makes nothing twice: looks, and changes with an idempotency
/// key, which this client makes for each submission.
#[derive(Clone)]
pub struct RemoteClient {
    pub(crate) shared: Arc<Exchange>,
    queue: Arc<str>,
    ids: Ids,
}

/// A client of the node at this address: `http://host:port`, `https://…` (a proxy does TLS) or `unix:/path/api.sock`. Its token is that of
/// the variable `OSTLER_TOKEN`, unless one is named. Nothing is sent yet.
///
/// # Errors
/// When the text is not such an address, or the system has no randomness for ids.
pub fn connect(url: &str) -> Result<RemoteClient, RemoteError> {
    let token = std::env::var("OSTLER_TOKEN").ok().filter(|token| !token.is_empty());
    let ids = ids().map_err(|error| RemoteError::invalid("ids", &error.to_string()))?;
    let exchange = Exchange::new(NodeAddress::parse(url)?, token.as_deref(), Arc::clone(&ids))?;
    Ok(RemoteClient { shared: Arc::new(exchange), queue: DEFAULT_QUEUE.into(), ids })
}

impl RemoteClient {
    /// The same with this token.
    ///
    /// # Errors
    /// When it has characters that no token has.
    pub fn with_token(self, token: &str) -> Result<Self, RemoteError> {
        let exchange = self.shared.with_token(token)?;
        Ok(Self { shared: Arc::new(exchange), ..self })
    }

    /// The same with the token of the owner in this file, which `ostler up` writes beside its store.
    ///
    /// # Errors
    /// When it cannot be read, or has no token of an owner.
    pub fn with_token_file(self, path: impl AsRef<Path>) -> Result<Self, RemoteError> {
        let token = address::token_of(path.as_ref())?;
        self.with_token(&token)
    }

    /// Returns a client of another queue of the same node.
    #[must_use]
    pub fn on(&self, queue: impl Into<String>) -> Self {
        Self { queue: queue.into().into(), ..self.clone() }
    }

    /// Returns the queue that tasks are submitted to.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns the address of the node, as it was given.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.shown()
    }

    /// Returns a new id for a task; see [`Submission::id`](crate::Submission::id).
    #[must_use]
    pub fn new_id(&self) -> TaskId {
        TaskId((self.ids)())
    }
}
