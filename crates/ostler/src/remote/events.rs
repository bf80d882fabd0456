//! Events of a task as they come. After a cut the stream goes on behind the last event: none is left out, none comes twice.

use std::collections::VecDeque;
use std::fmt::Display;
use std::time::Duration;

use ostler_http::{HttpAnswer, SseEvent, SseParser};
use ostler_wire::event::EventView;
use tokio::time::Instant;

use super::error::RemoteError;
use super::exchange::{MAX_SENDS, pause};
use super::{ApiMethod, RemoteClient};

/// A stream that lasted this long was a good one: a cut after it begins a new count of reconnects.
const GOOD_STREAM: Duration = Duration::from_secs(5);

/// The events of a task up to its end; see [`RemoteClient::follow`].
pub struct Follow {
    client: RemoteClient,
    task: String,
    with_raw: bool,
    /// The number of the last event that was returned.
    last: u64,
    ready: VecDeque<EventView>,
    stream: Option<OpenStream>,
    /// Cuts since the last event.
    cuts: u32,
    ended: bool,
}

struct OpenStream {
    answer: HttpAnswer,
    parser: SseParser,
    opened: Instant,
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
            stream: None,
            cuts: 0,
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
            let Some(stream) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            match stream.answer.chunk().await {
                Ok(Some(piece)) => {
                    let events = stream.parser.push(&piece).map_err(|error| {
                        RemoteError::unreachable(&self.client.shared.shown(), &error.to_string())
                    })?;
                    self.take(events)?;
                }
                Ok(None) => self.cut("the stream ended").await?,
                Err(lost) => self.cut(&lost.to_string()).await?,
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
                        (self.last, self.cuts) = (view.number, 0);
                        self.ready.push_back(view);
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    async fn open(&mut self) -> Result<(), RemoteError> {
        let parts = ["tasks", self.task.as_str(), "events"];
        let request = self
            .client
            .about(ApiMethod::Get, &parts, &self.task)
            .query("after", Some(self.last))
            .query("raw", self.with_raw.then_some("true"));
        let answer = self.client.open(&request).await?;
        // There is nothing to follow.
        if answer.status.as_u16() == 204 {
            self.ended = true;
            return Ok(());
        }
        self.stream = Some(OpenStream { answer, parser: SseParser::default(), opened: Instant::now() });
        Ok(())
    }

    async fn cut(&mut self, why: &str) -> Result<(), RemoteError> {
        let lasted = self.stream.take().is_some_and(|stream| stream.opened.elapsed() >= GOOD_STREAM);
        self.cuts = if lasted { 1 } else { self.cuts + 1 };
        if self.cuts >= MAX_SENDS {
            return Err(RemoteError::unreachable(&self.client.shared.shown(), why));
        }
        tokio::time::sleep(pause(self.cuts)).await;
        Ok(())
    }
}
