//! Operations on single tasks and dead letters, and submissions.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use ostler_core::{StateName, TaskId, Traceparent};
use ostler_ops::act::{Act, Acted, Approval, Operator, act};
use ostler_ops::continuation::{self, Continuation};
use ostler_ops::idempotency::{Once, submit_once};
use ostler_ops::input::{amendment, filter, submit_request};
use ostler_ops::logs::{LogPage, LogTail};
use ostler_ops::selection::Selector;
use ostler_ops::submit::{
    self, BatchError, NotEnqueued, SubmitAnswer, SubmitRequest, line_view, submit_batch,
};
use ostler_ops::task_name::NamedTask;
use ostler_ops::{OpsError, progress, tasks};
use ostler_store::MAX_PAGE;
use ostler_store::calls::{Replay, StepsOnReplay};
use ostler_store::views::{Filter, ListOrder, Page};
use ostler_wire::action::{ActionResult, ActionView};
use ostler_wire::dead::Letter;
use ostler_wire::event::EventView;
use ostler_wire::input::{AmendInput, FilterInput, TaskInput, TasksInput};
use ostler_wire::task::{Submitted, SubmittedLine, Summary, Waited};
use ostler_wire::value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::answer::{Answer, RequestError, json_answer, ok};
use crate::call::{ApiCall, read_json};

/// Tasks on a page, if the query does not say.
const USUAL_PAGE: u64 = 100;
/// The longest wait of one request; a client asks again.
const MAX_RESULT_WAIT: Duration = Duration::from_secs(60);

/// Filters and paging of a list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    #[schemars(extend("enum" = ["queued", "claimed", "running", "completed", "failed", "cancelled", null]))]
    state: Option<String>,
    queue: Option<String>,
    kind: Option<String>,
    text: Option<String>,
    r#where: Option<String>,
    class: Option<String>,
    failed_since: Option<String>,
    failed_until: Option<String>,
    ended_since: Option<String>,
    ended_until: Option<String>,
    stale: Option<bool>,
    /// `false`: without the items of jobs.
    items: Option<bool>,
    /// From 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
    /// Where the last page ended.
    cursor: Option<String>,
    /// Oldest first.
    oldest: Option<bool>,
}

impl ListQuery {
    fn filter(&self) -> Result<Filter, RequestError> {
        let order = if self.oldest == Some(true) { ListOrder::OldestFirst } else { ListOrder::NewestFirst };
        let input = FilterInput {
            state: self.state.clone(),
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            text: self.text.clone(),
            field: self.r#where.clone(),
            class: self.class.clone(),
            failed_since: self.failed_since.clone(),
            failed_until: self.failed_until.clone(),
            ended_since: self.ended_since.clone(),
            ended_until: self.ended_until.clone(),
            stale: self.stale,
            items: self.items,
        };
        Ok(filter(input, order)?)
    }

    async fn page(&self, call: &ApiCall, filter: Filter) -> Result<Page, RequestError> {
        let limit = page_size(self.limit)?;
        let cursor =
            self.cursor.as_deref().map(str::parse).transpose().map_err(|_| {
                RequestError::field("cursor", "cursor: expected the value of the previous page")
            })?;
        // One call of the store: where matches are rare, a page may be empty, and the caller goes on.
        Ok(call.store().list(filter, cursor, limit).await?)
    }
}

/// A number of things on a page.
pub(super) fn page_size(limit: Option<u64>) -> Result<usize, RequestError> {
    let limit = limit.unwrap_or(USUAL_PAGE);
    let fits = usize::try_from(limit).ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
    fits.ok_or_else(|| {
        RequestError::field("limit", format!("limit: expected a whole number from 1 to {MAX_PAGE}"))
    })
}

/// A page of tasks.
#[derive(Serialize, JsonSchema)]
pub(super) struct TaskPage {
    tasks: Vec<Summary>,
    /// Where to go on; `null`: that was all.
    cursor: Option<String>,
}

/// A page of dead letters.
#[derive(Serialize, JsonSchema)]
pub(super) struct LetterPage {
    letters: Vec<Letter>,
    /// Where to go on; `null`: that was all.
    cursor: Option<String>,
}

/// Where a key is looked up.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyQuery {
    /// The queue of a task that is named by key:K; `default` if it is left out.
    #[allow(dead_code, reason = "read with the name of the task")]
    queue: Option<String>,
}

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    let query: ListQuery = call.query()?;
    let page = query.page(&call, query.filter()?).await?;
    let tasks = progress::summaries(call.store(), &page.tasks).await?;
    ok(&TaskPage { tasks, cursor: page.next.map(|next| next.to_string()) })
}

pub(super) async fn letters(call: ApiCall) -> Result<Answer, RequestError> {
    let query: ListQuery = call.query()?;
    if query.state.is_some() {
        return Err(RequestError::field("state", "state: dead letters are failed tasks"));
    }
    let filter = Filter { state: Some(StateName::Failed), ..query.filter()? };
    let page = query.page(&call, filter).await?;
    let letters = tasks::letters(call.store(), &page).await?;
    ok(&LetterPage { letters, cursor: page.next.map(|next| next.to_string()) })
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    ok(&tasks::show(call.store(), &call.task()?).await?.view)
}

pub(super) async fn letter(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    ok(&tasks::show_letter(call.store(), &call.task()?).await?.view)
}

/// How long to wait for a result.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResultQuery {
    #[allow(dead_code, reason = "read with the name of the task")]
    queue: Option<String>,
    /// Such as `30s`, at most `60s`. If the task has not ended by then, its state says so.
    wait: Option<String>,
}

pub(super) async fn result(call: ApiCall) -> Result<Answer, RequestError> {
    let query: ResultQuery = call.query()?;
    let found = tasks::find(call.store(), &call.task()?).await?.task;
    let Some(text) = query.wait else { return ok(&Waited::from(&found)) };
    let wait =
        value::duration(&text).map_err(|error| RequestError::field("wait", format!("wait: {error}")))?;
    let waited = tokio::select! {
        waited = submit::wait(call.store(), found.id, Some(wait.min(MAX_RESULT_WAIT))) => waited,
        () = call.app.stopping.cancelled() => Err(ostler_ops::Unsuccessful::NotFinished(found.id).into()),
    };
    match waited {
        Ok(task) => ok(&Waited::from(&task)),
        Err(OpsError::Failed(_)) => {
            let now = tasks::find(call.store(), &NamedTask::Id(found.id)).await?.task;
            ok(&Waited::from(&now))
        }
        Err(error) => Err(error.into()),
    }
}

/// One task, or many.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "describes the two forms of a body")]
pub(super) enum SubmitBody {
    One(Box<TaskInput>),
    Many(TasksInput),
}

/// What became of one task, or of each of many.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[allow(dead_code, reason = "describes the two forms of an answer")]
pub(super) enum SubmitAnswerView {
    One(Submitted),
    Many(SubmittedTasks),
}

/// What became of each task. `line` is its place, from 1.
#[derive(Serialize, JsonSchema)]
pub(super) struct SubmittedTasks {
    tasks: Vec<SubmittedLine>,
}

/// Tells the two forms of a body apart.
#[derive(Deserialize)]
struct SubmitForm {
    tasks: Option<serde::de::IgnoredAny>,
}

pub(super) async fn submit(call: ApiCall) -> Result<Answer, RequestError> {
    let (text, key) = (call.text()?, call.idempotency_key()?);
    let inputs = match read_json::<SubmitForm>(text) {
        Ok(SubmitForm { tasks: Some(_) }) => read_json::<TasksInput>(text)?.tasks,
        Ok(SubmitForm { tasks: None }) | Err(_) => vec![read_json::<TaskInput>(text)?],
    };
    let many = read_json::<SubmitForm>(text)?.tasks.is_some();
    if inputs.is_empty() {
        return Err(RequestError::field("tasks", "tasks: expected at least one task"));
    }
    let keyed = key.as_ref().map(|key| key.tasks(&call.body));
    // A header that is wrong says nothing, as its standard wants: a proxy may have made it.
    let trace: Option<Traceparent> = call.header("traceparent").and_then(|text| text.parse().ok());
    let mut requests = Vec::with_capacity(inputs.len());
    for (place, input) in inputs.into_iter().enumerate() {
        let at = |error: RequestError| if many { at_place(place, error) } else { error };
        if key.is_some() && input.id.is_some() {
            return Err(at(RequestError::field("id", "id: an id and an Idempotency-Key exclude each other")));
        }
        let id = || keyed.as_ref().map_or_else(|| call.new_task_id(), |task| task(place));
        let mut request = submit_request(input, id).map_err(|error| at(error.into()))?;
        request.task.traceparent = request.task.traceparent.or_else(|| trace.clone());
        request.check(call.app.bounds, call.app.now()).map_err(|error| at(error.into()))?;
        requests.push(request);
    }
    let answers = match key {
        None => submit_batch(call.store(), &requests).await.map_err(|error| in_batch(many, error))?,
        Some(_) => {
            // Bodies under one key are compared one after the other.
            let _one_at_a_time = call.app.keyed.lock().await;
            match submit_once(call.store(), &requests).await.map_err(|error| in_batch(many, error))? {
                Once::Answers(answers) => answers,
                Once::OtherBody => {
                    let message = "this Idempotency-Key was used with another body; nothing was enqueued";
                    return Err(RequestError::conflict("idempotency_key_reused", message));
                }
            }
        }
    };
    if many { answer_many(&answers) } else { answer_one(&requests, &answers) }
}

fn at_place(place: usize, error: RequestError) -> RequestError {
    let field = error.details.get("field").and_then(|field| field.as_str()).unwrap_or_default();
    let path = format!("tasks[{place}].{field}");
    let path = path.trim_end_matches('.');
    RequestError {
        details: serde_json::json!({ "field": path }),
        message: format!("task {}: {}", place + 1, error.message),
        ..error
    }
}

fn in_batch(many: bool, error: BatchError) -> RequestError {
    match error {
        BatchError::Request(place, error) if many => at_place(place, error.into()),
        BatchError::Request(_, error) | BatchError::Store(error) | BatchError::Comparison(error) => {
            error.into()
        }
    }
}

fn answer_many(answers: &[Result<SubmitAnswer, NotEnqueued>]) -> Result<Answer, RequestError> {
    let view = |(place, answer): (u64, &Result<SubmitAnswer, NotEnqueued>)| line_view(place, answer);
    json_answer(StatusCode::CREATED, &SubmittedTasks { tasks: (1..).zip(answers).map(view).collect() })
}

fn answer_one(
    requests: &[SubmitRequest],
    answers: &[Result<SubmitAnswer, NotEnqueued>],
) -> Result<Answer, RequestError> {
    let (Some(request), Some(answer)) = (requests.first(), answers.first()) else {
        return Err(RequestError::invalid("there is no task"));
    };
    match answer {
        Ok(SubmitAnswer::Rejected(holder)) => {
            let message = format!("task {holder} already has this key; nothing was enqueued");
            let details = serde_json::json!({ "field": "key", "holder": holder.to_string(), "queue": request.task.queue });
            Err(RequestError { details, ..RequestError::conflict("key_taken", message) })
        }
        Ok(answer @ SubmitAnswer::Created(_)) => json_answer(StatusCode::CREATED, &answer.view()),
        Ok(answer) => ok(&answer.view()),
        Err(why) => Err(OpsError::from(why.clone()).into()),
    }
}

/// The caller of an action on one task has decided already.
struct Decided;

#[async_trait::async_trait]
impl Operator for Decided {
    async fn approve(&mut self, _tasks: usize) -> Approval {
        Approval::GoOn
    }
}

async fn act_on_one(call: &ApiCall, what: Act<'_>) -> Result<Answer, RequestError> {
    let selector = Selector::Named(vec![call.task()?]);
    let acted = act(call.store(), &selector, &what, &mut Decided).await?;
    let view = match acted {
        Acted::Done { answers, .. } => answers.into_iter().next(),
        Acted::Declined => None,
    };
    let Some(view) = view else { return Err(RequestError::not_found("there is no such task")) };
    match view.result {
        ActionResult::NotFound => Err(RequestError::not_found(format!("there is no task {}", view.id))),
        ActionResult::Refused => Err(refused(&view)),
        ActionResult::Cancelled
        | ActionResult::Requested
        | ActionResult::Requeued
        | ActionResult::Hastened
        | ActionResult::Unchanged
        | ActionResult::Copied
        | ActionResult::Amended
        | ActionResult::Dropped => ok(&view),
    }
}

fn refused(view: &ActionView) -> RequestError {
    let why = match (&view.holder, view.state) {
        (Some(holder), _) => format!("{} cannot run again while task {holder} has its key", view.id),
        (None, Some(state)) => format!("{} is {state}, which does not allow this", view.id),
        (None, None) => format!("the state of {} does not allow this", view.id),
    };
    let details = serde_json::json!({ "state": view.state, "holder": view.holder });
    RequestError { details, ..RequestError::conflict("refused", why) }
}

pub(super) async fn cancel(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    act_on_one(&call, Act::Cancel).await
}

/// What becomes of saved steps.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepsInput {
    /// Discard the saved steps, and begin a new conversation with an agent.
    from_scratch: Option<bool>,
}

impl StepsInput {
    pub(super) fn steps(&self) -> StepsOnReplay {
        steps(self.from_scratch)
    }
}

pub(super) fn steps(from_scratch: Option<bool>) -> StepsOnReplay {
    if from_scratch == Some(true) { StepsOnReplay::Drop } else { StepsOnReplay::Keep }
}

/// How to run a task again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetryInput {
    /// Discard the saved steps, and begin a new conversation with an agent.
    from_scratch: Option<bool>,
    /// Enqueue a copy instead; completed tasks can only be run again this way.
    again: Option<bool>,
    /// A new payload. Its text is kept byte by byte.
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
}

impl RetryInput {
    fn replay(&self, call: &ApiCall) -> Result<Replay, RequestError> {
        let payload = self.payload.as_ref().map(|payload| payload.get().to_owned());
        call.app.bounds.check_payload(payload.as_deref())?;
        Ok(Replay { steps: steps(self.from_scratch), payload })
    }
}

pub(super) async fn retry(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    let input: RetryInput = call.body()?;
    let replay = input.replay(&call)?;
    if input.again != Some(true) {
        return act_on_one(&call, Act::Replay(replay)).await;
    }
    if input.from_scratch.is_some() {
        return Err(RequestError::field("from_scratch", "from_scratch: a copy has no steps"));
    }
    let (key, ids) = (call.idempotency_key()?, Arc::clone(&call.app.ids));
    let ids = move || key.as_ref().map_or_else(|| ids(), |key| key.task().0);
    act_on_one(&call, Act::Copy { payload: replay.payload, ids: &ids }).await
}

pub(super) async fn replay(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    let input: RetryInput = call.body()?;
    if input.again.is_some() {
        return Err(RequestError::field("again", "again: a dead letter is replayed, not copied"));
    }
    let replay = input.replay(&call)?;
    act_on_one(&call, Act::ReplayLetters(replay)).await
}

pub(super) async fn drop_letter(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    act_on_one(&call, Act::DropLetters).await
}

pub(super) async fn amend(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    let overrides = amendment(call.body::<AmendInput>()?)?;
    ok(&tasks::amend(call.store(), &call.task()?, overrides).await?)
}

/// What to say next.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContinueInput {
    prompt: String,
    /// The queue of the new task; that of the finished one if it is left out.
    to: Option<String>,
}

pub(super) async fn go_on(call: ApiCall) -> Result<Answer, RequestError> {
    call.query::<KeyQuery>()?;
    let ContinueInput { prompt, to } = call.body()?;
    if prompt.trim().is_empty() {
        return Err(RequestError::field("prompt", "prompt: it is empty"));
    }
    let queue =
        to.map(|to| value::queue(&to)).transpose().map_err(|error| RequestError::field("to", error))?;
    let id: TaskId = match call.idempotency_key()? {
        Some(key) => key.task(),
        None => call.new_task_id(),
    };
    let asked = Continuation { which: call.task()?, prompt, queue };
    let request = continuation::request(call.store(), &asked, id).await?;
    request.check(call.app.bounds, call.app.now())?;
    let answer = submit::submit(call.store(), &request).await?;
    json_answer(StatusCode::CREATED, &answer.view())
}

/// Which events to read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogQuery {
    #[allow(dead_code, reason = "read with the name of the task")]
    queue: Option<String>,
    /// Only events with a higher number.
    after: Option<u64>,
    /// Also the lines of an agent as it wrote them.
    raw: Option<bool>,
}

/// Events of a task.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventPage {
    events: Vec<EventView>,
    /// Where to go on: the number of the last event; `null`: there are no more by now.
    after: Option<u64>,
}

pub(super) async fn log(call: ApiCall) -> Result<Answer, RequestError> {
    let query: LogQuery = call.query()?;
    let id = tasks::find(call.store(), &call.task()?).await?.task.id;
    let tail = LogTail::new(id, query.after.unwrap_or(0));
    let mut tail = if query.raw == Some(true) { tail.with_raw() } else { tail };
    let events = match tail.next(call.store()).await? {
        LogPage::Events(events) => events,
        LogPage::UpToDate | LogPage::Ended => Vec::new(),
    };
    let after = events.last().map(|event| event.number);
    ok(&EventPage { events: events.iter().map(EventView::from).collect(), after })
}
