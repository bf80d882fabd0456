//! Single tasks of a node: wait, show, list, cancel, replay, amend.

use std::fmt::Display;
use std::time::Duration;

use ostler_core::Overrides;
use ostler_store::calls::{Replay, StepsOnReplay};
use ostler_store::views::{Filter, ItemFilter, LeaseFilter, ListOrder};
use ostler_wire::action::ActionView;
use ostler_wire::dead::{Letter, LetterDetail};
use ostler_wire::event::EventView;
use ostler_wire::input::{AmendInput, FilterInput};
use ostler_wire::json::Json;
use ostler_wire::task::{ShownTask, Summary, Waited};
use ostler_wire::time::TimeView;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::error::RemoteError;
use super::submit::millis;
use super::{ApiMethod, ApiRequest, RemoteClient};
use crate::kind::Kind;

/// One long poll: below the minute after which proxies lose patience.
const MAX_POLL: Duration = Duration::from_secs(30);
/// An answer that comes too early, as from a node that stops, is not asked for again at once.
const EARLY_PAUSE: Duration = Duration::from_millis(200);

/// A page of tasks.
#[derive(Clone, Debug, Deserialize)]
pub struct TasksPage {
    /// The tasks.
    pub tasks: Vec<Summary>,
    /// Where the next page begins; `None`: this is the last one.
    pub cursor: Option<String>,
}

/// A page of dead letters.
#[derive(Clone, Debug, Deserialize)]
pub struct LettersPage {
    /// The dead letters.
    pub letters: Vec<Letter>,
    /// Where the next page begins; `None`: this is the last one.
    pub cursor: Option<String>,
}

/// A page of events.
#[derive(Clone, Debug, Deserialize)]
pub struct EventsPage {
    /// The events, in order.
    pub events: Vec<EventView>,
    /// Where the next page begins; `None`: there are no more by now.
    pub after: Option<u64>,
}

/// How to run a task again.
#[derive(Serialize)]
struct RetryBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    from_scratch: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Json>,
}

impl RemoteClient {
    /// Waits until a task has finished, and returns how. Wherever a task is named, `key:K` is possible too, in the client's queue.
    ///
    /// # Errors
    /// When there is no such task, or the node does not answer.
    pub async fn wait(&self, task: impl Display) -> Result<Waited, RemoteError> {
        self.wait_until(&task.to_string(), None).await
    }

    /// The same, for this long at most.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and [`NotFinished`](super::RemoteErrorKind::NotFinished).
    pub async fn wait_within(&self, task: impl Display, timeout: Duration) -> Result<Waited, RemoteError> {
        self.wait_until(&task.to_string(), Some(Instant::now() + timeout)).await
    }

    async fn wait_until(&self, task: &str, until: Option<Instant>) -> Result<Waited, RemoteError> {
        loop {
            let asked = Instant::now();
            let left = until.map_or(MAX_POLL, |until| until.saturating_duration_since(asked));
            let waited = self.poll(task, left.min(MAX_POLL)).await?;
            if matches!(waited.state, "completed" | "failed" | "cancelled") {
                return Ok(waited);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(RemoteError::of_task(waited));
            }
            if asked.elapsed() < EARLY_PAUSE {
                tokio::time::sleep(EARLY_PAUSE.min(left)).await;
            }
        }
    }

    async fn poll(&self, task: &str, wait: Duration) -> Result<Waited, RemoteError> {
        let wanted = (!wait.is_zero()).then(|| millis(wait));
        let request = self.about(ApiMethod::Get, &["tasks", task, "result"], task).query("wait", wanted);
        self.request(request.waiting(wait)).await
    }

    /// Waits until a task has completed, and returns its output.
    ///
    /// # Errors
    /// When the task fails or is cancelled, its output is of another type, or as for [`wait`](Self::wait).
    pub async fn wait_as<T: DeserializeOwned>(&self, task: impl Display) -> Result<T, RemoteError> {
        output_of(self.wait(task).await?)
    }

    /// Returns the output of a task that has completed, without waiting.
    ///
    /// # Errors
    /// As for [`wait_as`](Self::wait_as), and [`NotFinished`](super::RemoteErrorKind::NotFinished).
    pub async fn result<T: DeserializeOwned>(&self, task: impl Display) -> Result<T, RemoteError> {
        output_of(self.poll(&task.to_string(), Duration::ZERO).await?)
    }

    /// Waits until a task of a [`Kind`] has completed, and returns its output.
    ///
    /// # Errors
    /// As for [`wait_as`](Self::wait_as).
    pub async fn wait_kind<K: Kind>(&self, task: impl Display) -> Result<K::Output, RemoteError> {
        self.wait_as(task).await
    }

    /// Returns the state of a task, and its output or error.
    ///
    /// # Errors
    /// When there is no such task, or the node does not answer.
    pub async fn get(&self, task: impl Display) -> Result<Waited, RemoteError> {
        self.poll(&task.to_string(), Duration::ZERO).await
    }

    /// Returns a task with its payload, output, steps and attempts.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn show(&self, task: impl Display) -> Result<ShownTask, RemoteError> {
        let task = task.to_string();
        self.request(self.about(ApiMethod::Get, &["tasks", &task], &task)).await
    }

    /// Lists the tasks that match the filter, newest first. Without a queue in the filter, only tasks of the client's queue are listed.
    /// An empty page with a cursor is not the end.
    ///
    /// # Errors
    /// When a value is wrong, or the node does not answer.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<TasksPage, RemoteError> {
        let queue = filter.queue.clone().or_else(|| Some(self.queue().to_owned()));
        self.page("tasks", &Filter { queue, ..filter }, after, limit).await
    }

    /// Lists dead letters, of all queues unless the filter names one.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub async fn dead_letters(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<LettersPage, RemoteError> {
        self.page("dead", filter, after, limit).await
    }

    /// A page of `tasks` or `dead`, by the filter alone.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        list: &str,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<T, RemoteError> {
        let oldest = match filter.order {
            ListOrder::NewestFirst => None,
            ListOrder::OldestFirst => Some("true"),
        };
        let input = filter_input(filter);
        let request = ApiRequest::new(ApiMethod::Get, &[list])
            .query("state", input.state)
            .query("queue", input.queue)
            .query("kind", input.kind)
            .query("text", input.text)
            .query("where", input.field)
            .query("class", input.class)
            .query("failed_since", input.failed_since)
            .query("failed_until", input.failed_until)
            .query("ended_since", input.ended_since)
            .query("ended_until", input.ended_until)
            .query("stale", input.stale)
            .query("items", input.items)
            .query("oldest", oldest)
            .query("limit", Some(limit))
            .query("cursor", after);
        self.request(request).await
    }

    /// Lists tasks of all queues, by the filter alone.
    ///
    /// # Errors
    /// As for [`list`](Self::list).
    pub async fn list_all(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<TasksPage, RemoteError> {
        self.page("tasks", filter, after, limit).await
    }

    /// Returns a page of the events of a task with a number above `after`.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn events(&self, task: impl Display, after: u64) -> Result<EventsPage, RemoteError> {
        let task = task.to_string();
        self.request(self.about(ApiMethod::Get, &["tasks", &task, "log"], &task).query("after", Some(after)))
            .await
    }

    /// The same with the lines of an agent as it wrote them.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn raw_events(&self, task: impl Display, after: u64) -> Result<EventsPage, RemoteError> {
        let task = task.to_string();
        let request = self.about(ApiMethod::Get, &["tasks", &task, "log"], &task);
        self.request(request.query("after", Some(after)).query("raw", Some("true"))).await
    }

    /// Cancels a waiting task, and asks a running one to stop.
    ///
    /// # Errors
    /// When there is no such task, it has ended, or the node does not answer.
    pub async fn cancel(&self, task: impl Display) -> Result<ActionView, RemoteError> {
        let task = task.to_string();
        self.request(self.about(ApiMethod::Post, &["tasks", &task, "cancel"], &task)).await
    }

    /// Requeues a failed or cancelled task, and makes a waiting one due now.
    ///
    /// # Errors
    /// When there is no such task, its state does not allow it, or the node does not answer.
    pub async fn replay(&self, task: impl Display, how: Replay) -> Result<ActionView, RemoteError> {
        self.again(&["tasks", &task.to_string(), "retry"], &how, None).await
    }

    /// Enqueues a copy of a task, with this payload if there is one. A copy whose answer was lost is made once.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub async fn copy(&self, task: impl Display, payload: Option<String>) -> Result<ActionView, RemoteError> {
        let how = Replay { steps: StepsOnReplay::Keep, payload };
        self.again(&["tasks", &task.to_string(), "retry"], &how, Some(true)).await
    }

    /// Runs a dead letter again.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub async fn replay_dead_letter(
        &self,
        task: impl Display,
        how: Replay,
    ) -> Result<ActionView, RemoteError> {
        self.again(&["dead", &task.to_string(), "replay"], &how, None).await
    }

    async fn again(
        &self,
        parts: &[&str],
        how: &Replay,
        again: Option<bool>,
    ) -> Result<ActionView, RemoteError> {
        let payload = how.payload.as_deref().map(Json::from_text);
        let from_scratch = match how.steps {
            StepsOnReplay::Keep => None,
            StepsOnReplay::Drop => Some(true),
        };
        let body = RetryBody { from_scratch, again, payload: payload.as_ref() };
        let request = self.about(ApiMethod::Post, parts, parts[1]).body(&body);
        self.request(if again == Some(true) { request.keyed(&self.shared.new_key()) } else { request }).await
    }

    /// Returns one dead letter.
    ///
    /// # Errors
    /// When there is none, or the node does not answer.
    pub async fn dead_letter(&self, task: impl Display) -> Result<LetterDetail, RemoteError> {
        let task = task.to_string();
        self.request(self.about(ApiMethod::Get, &["dead", &task], &task)).await
    }

    /// Removes a dead letter for good.
    ///
    /// # Errors
    /// As for [`dead_letter`](Self::dead_letter).
    pub async fn drop_dead_letter(&self, task: impl Display) -> Result<ActionView, RemoteError> {
        let task = task.to_string();
        self.request(self.about(ApiMethod::Delete, &["dead", &task], &task)).await
    }

    /// Changes attempts, backoff and timeout of a task that has not finished.
    ///
    /// # Errors
    /// When there is no such task, it has ended, or the node does not answer.
    pub async fn amend(&self, task: impl Display, overrides: Overrides) -> Result<ActionView, RemoteError> {
        let input = AmendInput {
            attempts: overrides.attempts.map(u64::from),
            timeout: overrides.timeout.map(millis),
            backoff: overrides.backoff.map(|backoff| backoff.name().to_owned()),
            base: overrides.base.map(millis),
            max: overrides.max.map(millis),
        };
        let task = task.to_string();
        self.request(self.about(ApiMethod::Post, &["tasks", &task, "amend"], &task).body(&input)).await
    }

    /// A request about a task; a key is looked up in the client's queue.
    pub(super) fn about(&self, method: ApiMethod, parts: &[&str], task: &str) -> ApiRequest {
        ApiRequest::new(method, parts).query("queue", task.starts_with("key:").then(|| self.queue()))
    }
}

fn output_of<T: DeserializeOwned>(waited: Waited) -> Result<T, RemoteError> {
    if waited.state != "completed" {
        return Err(RemoteError::of_task(waited));
    }
    let output = waited.output.as_ref().map_or("null", Json::as_str);
    serde_json::from_str(output).map_err(|error| RemoteError::unreadable(&error))
}

/// The filter as the API has it.
#[must_use]
pub fn filter_input(filter: &Filter) -> FilterInput {
    let time = |at: ostler_core::Timestamp| TimeView::from(at).to_string();
    FilterInput {
        state: filter.state.map(|state| state.name().to_owned()),
        queue: filter.queue.clone(),
        kind: filter.kind.clone(),
        text: filter.text.clone(),
        field: filter.field.as_ref().map(|field| format!("payload.{}={}", field.path.join("."), field.value)),
        class: filter.class.map(|class| class.name().to_owned()),
        failed_since: filter.failed_since.map(time),
        failed_until: filter.failed_until.map(time),
        ended_since: filter.ended_since.map(time),
        ended_until: filter.ended_until.map(time),
        stale: match filter.lease {
            LeaseFilter::Any => None,
            LeaseFilter::Stale => Some(true),
        },
        items: match filter.items {
            ItemFilter::Listed => None,
            ItemFilter::Hidden => Some(false),
        },
    }
}
