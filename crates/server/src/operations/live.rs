//! Live streams: events of a task, and the overview.

use std::sync::Arc;

use hyper::StatusCode;
use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::tasks;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;
use crate::sse;
use crate::task_events::RawLines;

/// The header by which a browser goes on.
const LAST_EVENT_ID: &str = "last-event-id";

/// Where a stream of events begins.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventsQuery {
    #[allow(dead_code, reason = "read with the name of the task")]
    queue: Option<String>,
    /// Only events with a higher number. The header Last-Event-ID wins if it is higher.
    after: Option<u64>,
    /// Also the lines of an agent as it wrote them.
    raw: Option<bool>,
}

pub(super) async fn task_events(call: ApiCall) -> Result<Answer, RequestError> {
    let query: EventsQuery = call.query()?;
    let id = tasks::find(call.store(), &call.task()?).await?.task.id;
    let last = match call.header(LAST_EVENT_ID) {
        None | Some("") => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| {
            RequestError::field("Last-Event-ID", "Last-Event-ID: expected the number of an event")
        })?),
    };
    let after = query.after.unwrap_or(0).max(last.unwrap_or(0));
    let raw = if query.raw == Some(true) { RawLines::Sent } else { RawLines::LeftOut };
    if last.is_some() {
        let tail = LogTail::new(id, after);
        let mut tail = if raw == RawLines::Sent { tail.with_raw() } else { tail };
        if tail.next(call.store()).await? == LogPage::Ended {
            // A browser that has everything does not come back after this status.
            return Ok(plain(StatusCode::NO_CONTENT, "text/event-stream", ""));
        }
    }
    let (answer, writer) = sse::open(&call)?;
    tokio::spawn(Arc::clone(&call.app.streams).serve(id, raw, after, writer));
    Ok(answer)
}

/// Where the overview goes on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LiveQuery {
    /// The id of the last event that was seen, as in the header Last-Event-ID.
    after: Option<String>,
}

pub(super) async fn overview(call: ApiCall) -> Result<Answer, RequestError> {
    let query: LiveQuery = call.query()?;
    let last = call.header(LAST_EVENT_ID).map(str::to_owned).or(query.after);
    let (answer, writer) = sse::open(&call)?;
    tokio::spawn(Arc::clone(&call.app.overview).serve(last, writer));
    Ok(answer)
}
