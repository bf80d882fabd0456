//! Actions of pages: a form is posted, and the operation that it names is run with its own permission and audit record. Then the browser is
//! sent back with a line about the result. What is dangerous asks first.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use serde_json::Value;

use super::forms::FormFields;
use super::layout::{HTML, NOTICE};
use super::notices::{Notice, NoticeTone};
use super::parts::button::asks;
use super::parts::{counted, short};
use super::question;
use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;
use crate::dispatch::run_operation;
use crate::operations::{Answers, Credentials, OPERATIONS, Operation, OperationEffect};

/// Runs an operation of the table for a page.
pub(crate) async fn act(call: ApiCall) -> Result<Answer, RequestError> {
    let wanted = call.param("operation");
    let operation = OPERATIONS.iter().find(|row| row.id == wanted && is_for_pages(row));
    let operation = operation.ok_or_else(|| RequestError::not_found("there is no such action"))?;
    let fields = FormFields::read(call.text()?)?;
    let runs = fields.runs(operation);
    if runs.is_empty() {
        return back(&call, &fields, refusal("No task is selected."));
    }
    let body = match fields.body() {
        Ok(body) => body,
        Err(error) => return Ok(question::edit_again(operation, &fields, &error)),
    };
    if asks(operation).is_some() && !fields.is_confirmed() {
        if operation.id == "tasks.act" {
            return match preview(&call, operation, &fields).await {
                Ok(found) => Ok(question::ask_about_all(operation, &fields, &found)),
                Err(error) => back(&call, &fields, refusal(error.message)),
            };
        }
        return Ok(question::ask(operation, &fields));
    }
    let (mut done, mut last, mut refused): (usize, Option<Value>, Option<RequestError>) = (0, None, None);
    for params in &runs {
        match run(&call, operation, params, &body).await {
            Ok(view) => (done, last) = (done + 1, Some(view)),
            Err(error) if is_about_payload(&error) && runs.len() == 1 => {
                return Ok(question::edit_again(operation, &fields, &error));
            }
            Err(error) => refused = Some(error),
        }
    }
    call.app.page.pulse.forget().await;
    let notice = match (done, refused) {
        (_, None) if runs.len() == 1 => {
            Notice { tone: NoticeTone::Done, text: said(operation, &last.unwrap_or(Value::Null)) }
        }
        (done, None) => {
            Notice { tone: NoticeTone::Done, text: format!("Done for {}.", counted(done, "task")) }
        }
        (0, Some(error)) => refusal(sentence(&error.message)),
        (done, Some(error)) => refusal(format!(
            "Done for {done} of {} tasks. The last refusal: {}",
            runs.len(),
            sentence(&error.message)
        )),
    };
    back(&call, &fields, notice)
}

/// Whether a form may run it: what changes something, and is open to a session of a browser.
fn is_for_pages(row: &Operation) -> bool {
    row.effect == OperationEffect::Change
        && row.credentials == Credentials::Needed
        && matches!(row.answers, Answers::Json(_))
}

fn is_about_payload(error: &RequestError) -> bool {
    error.details.get("field").and_then(Value::as_str) == Some("payload")
}

/// One run, as if the caller had asked for it over the API.
async fn run(
    call: &ApiCall,
    operation: &'static Operation,
    params: &[(String, String)],
    body: &str,
) -> Result<Value, RequestError> {
    let mut target = format!("{} {}", operation.method.name(), operation.path);
    for (name, value) in params {
        if value.is_empty() {
            return Err(RequestError::field(name, format!("{name}: it is missing")));
        }
        target = target.replace(&format!("{{{name}}}"), &super::layout::segment(value));
    }
    let inner = ApiCall {
        app: Arc::clone(&call.app),
        params: params.to_vec(),
        query: String::new(),
        headers: hyper::HeaderMap::new(),
        body: if operation.body.is_some() { Bytes::from(body.to_owned()) } else { Bytes::new() },
        caller: call.caller.clone(),
        peer: call.peer,
        connection: call.connection.clone(),
    };
    let answer = run_operation(operation, inner, target).await?;
    let whole = answer.into_body().collect().await;
    let bytes = whole.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// How many tasks an action would touch. It changes nothing, so the audit has no record of it.
async fn preview(
    call: &ApiCall,
    operation: &'static Operation,
    fields: &FormFields,
) -> Result<Value, RequestError> {
    let mut fields = fields.clone();
    fields.0.push(("t:preview".to_owned(), "yes".to_owned()));
    let body = Bytes::from(fields.body()?);
    let inner = ApiCall {
        app: Arc::clone(&call.app),
        params: Vec::new(),
        query: String::new(),
        headers: hyper::HeaderMap::new(),
        body,
        caller: call.caller.clone(),
        peer: call.peer,
        connection: call.connection.clone(),
    };
    let answer = (operation.run)(inner).await?;
    let whole = answer.into_body().collect().await;
    let bytes = whole.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn refusal(text: impl Into<String>) -> Notice {
    Notice { tone: NoticeTone::Refused, text: text.into() }
}

/// A message as a sentence.
fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let end = if message.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// What an answer says, in a line.
fn said(operation: &Operation, view: &Value) -> String {
    let text = |name: &str| view.get(name).and_then(Value::as_str).map(|text| text.replace('_', " "));
    let id = text("id").map(|id| format!(" ({})", short(&id))).unwrap_or_default();
    if let Some(copy) = text("copy") {
        return format!("A copy was enqueued: {copy}.");
    }
    if let Some(queue) = text("queue").filter(|_| matches!(operation.id, "queues.pause" | "queues.resume")) {
        let what = if operation.id == "queues.pause" { "paused" } else { "resumed" };
        return format!("The queue {queue} is {what}.");
    }
    if operation.id == "tasks.act" {
        return "The action has begun; its progress is below.".to_owned();
    }
    if operation.id == "tasks.continue" {
        return format!("Enqueued{id}.");
    }
    if let Some(workers) = view.get("recycled").and_then(Value::as_array) {
        let busy = view.get("busy").and_then(Value::as_array).map_or(0, Vec::len);
        return format!("{} recycled, {busy} busy and left alone.", workers.len());
    }
    match text("result").or_else(|| text("done")).or_else(|| text("state")) {
        Some(result) => sentence(&format!("{result}{id}")),
        None => "Done.".to_owned(),
    }
}

/// Sends the browser back to the page of the button.
fn back(call: &ApiCall, fields: &FormFields, notice: Notice) -> Result<Answer, RequestError> {
    let id = call.app.page.notices.keep(notice);
    let back = fields.back();
    let join = if back.contains('?') { '&' } else { '?' };
    see_other(&format!("../{back}{join}{NOTICE}={id}"))
}

/// Sends a browser to another address, with GET.
pub(super) fn see_other(address: &str) -> Result<Answer, RequestError> {
    let mut answer = plain(StatusCode::SEE_OTHER, HTML, "");
    let address = HeaderValue::from_str(address)
        .map_err(|_| RequestError::invalid("the page to go back to has no valid address"))?;
    answer.headers_mut().insert(LOCATION, address);
    Ok(answer)
}
