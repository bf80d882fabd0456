//! Events of a task as they come. After a cut the stream goes on behind the last event: none is left out, none comes twice.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use ostler_http::{HttpAnswer, SseEvent, SseParser};
use ostler_wire::event::EventView;
use tokio::time::Instant;

use super::error::RemoteError;
use super::exchange::{MAX_SENDS, pause};
use super::{ApiMethod, ApiRequest, RemoteClient};

/// A stream that lasted this long was a good one: a cut after it begins a new count of reconnects.
const GOOD_STREAM: Duration = Duration::from_secs(5);

/// A stream of the API that is opened again after a cut.
pub(super) struct EventStream {
    client: RemoteClient,
    open: Option<OpenStream>,
    /// Cuts since the last event.
    cuts: u32,
}

struct OpenStream {
    answer: HttpAnswer,
    parser: SseParser,
    opened: Instant,
}

/// What a stream has next.
pub(super) enum StreamPiece {
    /// Events, which may be none.
    Events(Vec<SseEvent>),
    /// There is nothing to follow.
    Nothing,
}

impl EventStream {
    pub(super) fn new(client: RemoteClient) -> Self {
        Self { client, open: None, cuts: 0 }
    }

    /// The next events. The request is that for what has not come yet.
    pub(super) async fn next(&mut self, request: &ApiRequest) -> Result<StreamPiece, RemoteError> {
        let Some(stream) = &mut self.open else {
            let answer = self.client.open(request).await?;
            if answer.status.as_u16() == 204 {
                return Ok(StreamPiece::Nothing);
            }
            self.open = Some(OpenStream { answer, parser: SseParser::default(), opened: Instant::now() });
            return Ok(StreamPiece::Events(Vec::new()));
        };
        match stream.answer.chunk().await {
            Ok(Some(piece)) => {
                let events = stream.parser.push(&piece).map_err(|error| {
                    RemoteError::unreachable(&self.client.shared.shown(), &error.to_string())
                })?;
                return Ok(StreamPiece::Events(events));
            }
            Ok(None) => self.cut("the stream ended").await?,
            Err(lost) => self.cut(&lost.to_string()).await?,
        }
        Ok(StreamPiece::Events(Vec::new()))
    }

    /// Something new has come: cuts are counted anew.
    pub(super) fn is_good(&mut self) {
        self.cuts = 0;
    }

    async fn cut(&mut self, why: &str) -> Result<(), RemoteError> {
        let lasted = self.open.take().is_some_and(|stream| stream.opened.elapsed() >= GOOD_STREAM);
        self.cuts = if lasted { 1 } else { self.cuts + 1 };
        if self.cuts >= MAX_SENDS {
            return Err(RemoteError::unreachable(&self.client.shared.shown(), why));
        }
        tokio::time::sleep(pause(self.cuts)).await;
        Ok(())
    }
}

/// The events of a task up to its end; see [`RemoteClient::follow`].
pub struct Follow {
    client: RemoteClient,
    task: String,
    with_raw: bool,
    /// The number of the last event that was returned.
    last: u64,
    ready: VecDeque<EventView>,
    stream: EventStream,
    ended: bool,
}

impl RemoteClient {
    /// Follows the events of a task with a number above `after`, up to its end.
    ///
    /// ```no_run
    /// # async fn example(client: ostler::RemoteClient, id: ostler::TaskId) -> Result<(), ostler::RemoteError> {
    /// let mut events = client.follow(id, 0);
    /// while let Some(event) = events.next().await? {
    ///     println!("{} {}", event.number, event.line());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn follow(&self, task: impl Display, after: u64) -> Follow {
        Follow {
            client: self.clone(),
            task: task.to_string(),
            with_raw: false,
            last: after,
            ready: VecDeque::new(),
            stream: EventStream::new(self.clone()),
            ended: false,
        }
    }
}

impl Follow {
    /// The same with the lines of an agent as it wrote them.
    #[must_use]
    pub fn with_raw(self) -> Self {
        Self { with_raw: true, ..self }
    }

    /// Returns the next event; `None`: the task has ended.
    ///
    /// # Errors
    /// When there is no such task, or the node cannot be reached any more.
    pub async fn next(&mut self) -> Result<Option<EventView>, RemoteError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            let parts = ["tasks", self.task.as_str(), "events"];
            let request = self
                .client
                .about(ApiMethod::Get, &parts, &self.task)
                .query("after", Some(self.last))
                .query("raw", self.with_raw.then_some("true"));
            match self.stream.next(&request).await? {
                StreamPiece::Events(events) => self.take(events)?,
                StreamPiece::Nothing => self.ended = true,
            }
        }
    }

    fn take(&mut self, events: Vec<SseEvent>) -> Result<(), RemoteError> {
        for event in events {
            match event.name.as_deref() {
                Some("end") => self.ended = true,
                None | Some("message") => {
                    let view: EventView =
                        serde_json::from_str(&event.data).map_err(|error| RemoteError::unreadable(&error))?;
                    if view.number > self.last {
                        self.last = view.number;
                        self.stream.is_good();
                        self.ready.push_back(view);
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
