//! The overview of a node as it changes: the newest state of its queues, nodes and workers. After a cut the stream goes on with what has
//! changed meanwhile.

use ostler_http::SseEvent;
use ostler_wire::limits::QueueView;
use ostler_wire::system::{NodeView, StatsView, WorkerView};
use serde::de::DeserializeOwned;

use super::error::RemoteError;
use super::events::{EventStream, StreamPiece};
use super::{ApiMethod, ApiRequest, RemoteClient};

/// What a node shows of its system, at one moment.
#[derive(Clone, Debug)]
pub struct LiveState {
    /// All queues together.
    pub stats: StatsView,
    /// All queues but those of jobs.
    pub queues: Vec<QueueView>,
    /// The running nodes with their pools.
    pub nodes: Vec<NodeView>,
    /// The workers of all nodes.
    pub workers: Vec<WorkerView>,
}

/// The overview as it changes; see [`RemoteClient::live`].
pub struct Live {
    stream: EventStream,
    /// The id of the last event: the start of the node, and a number.
    last: Option<String>,
    stats: Option<StatsView>,
    queues: Option<Vec<QueueView>>,
    nodes: Option<Vec<NodeView>>,
    workers: Option<Vec<WorkerView>>,
}

impl RemoteClient {
    /// Watches the overview: its newest state, again after each change. What changes several times a second comes once.
    ///
    /// ```no_run
    /// # async fn example(client: ostler::RemoteClient) -> Result<(), ostler::RemoteError> {
    /// let mut live = client.live();
    /// loop {
    ///     let now = live.next().await?;
    ///     println!("{} waiting, {} running", now.stats.tasks.queued, now.stats.tasks.running);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn live(&self) -> Live {
        let stream = EventStream::new(self.clone());
        Live { stream, last: None, stats: None, queues: None, nodes: None, workers: None }
    }
}

impl Live {
    /// Returns the newest state when it has changed; the first one at once.
    ///
    /// # Errors
    /// When the node cannot be reached any more.
    pub async fn next(&mut self) -> Result<LiveState, RemoteError> {
        loop {
            let request = ApiRequest::new(ApiMethod::Get, &["live"]).query("after", self.last.as_deref());
            let StreamPiece::Events(events) = self.stream.next(&request).await? else { continue };
            let mut changed = false;
            for event in events {
                changed |= self.take(event)?;
            }
            if changed && let Some(state) = self.state() {
                return Ok(state);
            }
        }
    }

    /// Takes what an event has. Whether that is a part of the state.
    fn take(&mut self, event: SseEvent) -> Result<bool, RemoteError> {
        let SseEvent { name, data, id } = event;
        self.last = id.or(self.last.take());
        match name.as_deref() {
            // Another start of the node, which sends everything anew.
            Some("reset") => {
                (self.last, self.stats, self.queues, self.nodes, self.workers) =
                    (None, None, None, None, None);
                return Ok(false);
            }
            Some("stats") => self.stats = Some(read(&data)?),
            Some("queues") => self.queues = Some(read(&data)?),
            Some("nodes") => self.nodes = Some(read(&data)?),
            Some("workers") => self.workers = Some(read(&data)?),
            // A newer node may have more.
            Some(_) | None => return Ok(false),
        }
        self.stream.is_good();
        Ok(true)
    }

    /// `None`: not all of it has come yet.
    fn state(&self) -> Option<LiveState> {
        let (stats, queues) = (self.stats.clone()?, self.queues.clone()?);
        Some(LiveState { stats, queues, nodes: self.nodes.clone()?, workers: self.workers.clone()? })
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, RemoteError> {
    serde_json::from_str(data).map_err(|error| RemoteError::unreadable(&error))
}
