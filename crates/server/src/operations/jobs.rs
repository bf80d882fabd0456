//! Operations on jobs.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::channel::Channel;
use hyper::StatusCode;
use ostler_core::JobId;
use ostler_ops::input;
use ostler_ops::jobs::create::{CreatedJob, add_items};
use ostler_ops::jobs::results::JobResults;
use ostler_ops::jobs::{self, manage, pilot};
use ostler_wire::input::{ItemsInput, JobInput};
use ostler_wire::job::JobActionView;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::{StepsInput, page_size};
use crate::answer::{Answer, RequestError, json_answer, ok, streamed};
use crate::call::ApiCall;
use crate::dispatch::TaskCount;

/// Results between the store and the connection.
const BUFFER: usize = 4;

fn done(view: &JobActionView) -> Result<Answer, RequestError> {
    let mut answer = ok(view)?;
    answer.extensions_mut().insert(TaskCount(view.tasks));
    Ok(answer)
}

/// Which jobs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JobsQuery {
    /// From 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
    /// The id of a job: only older ones. The last job of a page leads to the next page.
    before: Option<String>,
}

pub(super) async fn list(call: ApiCall) -> Result<Answer, RequestError> {
    let JobsQuery { limit, before } = call.query()?;
    let before = before.as_deref().map(str::parse).transpose().map_err(|_| {
        RequestError::field("before", "before: expected the id of the last job of the previous page")
    })?;
    ok(&jobs::page(call.store(), before, page_size(limit)?).await?)
}

pub(super) async fn create(call: ApiCall) -> Result<Answer, RequestError> {
    let request = input::job(call.body::<JobInput>()?, call.app.bounds.payload_bytes)?;
    let id = match call.idempotency_key()? {
        Some(key) => key.job(),
        None => JobId((call.app.ids)()),
    };
    match jobs::create::create(call.store(), request, id).await? {
        CreatedJob::Enqueued(view) => {
            let mut answer = json_answer(StatusCode::CREATED, &view)?;
            answer.extensions_mut().insert(TaskCount(view.tasks));
            Ok(answer)
        }
        CreatedJob::OtherJob(_) => Err(RequestError::conflict(
            "idempotency_key_reused",
            "this Idempotency-Key was used with another body; nothing was created",
        )),
        CreatedJob::Refused(error) => Err(RequestError::field("items", error.to_string())),
    }
}

pub(super) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    ok(&jobs::show(call.store(), call.param("job")).await?.0)
}

pub(super) async fn export(call: ApiCall) -> Result<Answer, RequestError> {
    let id = jobs::find(call.store(), call.param("job")).await?.job.id;
    let mut results = JobResults::of(call.store(), id).await?;
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(BUFFER);
    let store = std::sync::Arc::clone(&call.app.store);
    tokio::spawn(async move {
        // A reader that sees no end knows that the results are not whole.
        while let Ok(Some(result)) = results.next(store.as_ref()).await {
            let Ok(line) = serde_json::to_string(&result.view()) else { return };
            if sender.send_data(Bytes::from(line + "\n")).await.is_err() {
                return;
            }
        }
    });
    Ok(streamed("application/x-ndjson", body))
}

pub(super) async fn approve(call: ApiCall) -> Result<Answer, RequestError> {
    done(&pilot::approve(call.store(), call.param("job")).await?)
}

pub(super) async fn reject(call: ApiCall) -> Result<Answer, RequestError> {
    done(&pilot::reject(call.store(), call.param("job")).await?)
}

pub(super) async fn pause(call: ApiCall) -> Result<Answer, RequestError> {
    done(&manage::pause(call.store(), call.param("job")).await?)
}

/// How to go on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ResumeInput {
    /// A new budget, such as `$5`.
    max_cost: Option<String>,
}

pub(super) async fn resume(call: ApiCall) -> Result<Answer, RequestError> {
    let ResumeInput { max_cost } = call.body()?;
    let cost = max_cost.as_deref().map(ostler_core::parse_usd).transpose();
    let cost = cost.map_err(|error| RequestError::field("max_cost", format!("max_cost: {error}")))?;
    done(&manage::resume(call.store(), call.param("job"), cost).await?)
}

pub(super) async fn cancel(call: ApiCall) -> Result<Answer, RequestError> {
    done(&manage::cancel(call.store(), call.param("job")).await?)
}

pub(super) async fn retry_failed(call: ApiCall) -> Result<Answer, RequestError> {
    let steps = call.body::<StepsInput>()?.steps();
    done(&manage::retry_failed(call.store(), call.param("job"), steps).await?)
}

/// How many items run at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConcurrencyInput {
    /// From 1 to 10000.
    #[schemars(range(min = 1, max = 10_000))]
    items: u32,
}

pub(super) async fn set(call: ApiCall) -> Result<Answer, RequestError> {
    let ConcurrencyInput { items } = call.body()?;
    if !(1..=10_000).contains(&items) {
        return Err(RequestError::field("items", "items: expected a whole number from 1 to 10000"));
    }
    done(&manage::set_concurrency(call.store(), call.param("job"), items).await?)
}

pub(super) async fn add(call: ApiCall) -> Result<Answer, RequestError> {
    let items = input::items(call.body::<ItemsInput>()?)?;
    match add_items(call.store(), call.param("job"), items, call.app.bounds.payload_bytes).await? {
        Ok(view) => done(&view),
        Err(error) => Err(RequestError::field("items", error.to_string())),
    }
}

pub(super) async fn remove(call: ApiCall) -> Result<Answer, RequestError> {
    done(&manage::remove(call.store(), call.param("job")).await?)
}
