//! Questions before something dangerous, as pages of their own: what will be done, the command, and two ways out. With script the same
//! question is a dialog on the page of the button.

use hyper::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::assets;
use super::command::command_line;
use super::forms::{CONFIRMED, FormFields};
use super::layout::{HTML, document};
use super::parts::button::{class, command};
use crate::answer::{Answer, RequestError, plain};
use crate::operations::Operation;

/// Asks about an operation.
pub(super) fn ask(operation: &Operation, fields: &FormFields) -> Answer {
    let tasks = fields.all("p:id").count();
    let about = if tasks > 1 { format!("{tasks} tasks are selected.") } else { String::new() };
    whole(StatusCode::OK, operation, fields, &html! { @if !about.is_empty() { p { (about) } } }, &[])
}

/// Asks about all tasks that match, with their number.
pub(super) fn ask_about_all(operation: &Operation, fields: &FormFields, preview: &Value) -> Answer {
    let tasks = preview.get("tasks").and_then(Value::as_u64).unwrap_or(0);
    let cutoff = preview.get("cutoff").and_then(Value::as_str).unwrap_or_default().to_owned();
    let main = html! {
        p class="big" { (tasks) @if tasks == 1 { " task matches." } @else { " tasks match." } }
        p class="quiet" { "Tasks that begin to match after " time datetime=(cutoff) { (cutoff) } " are not touched." }
    };
    whole(StatusCode::OK, operation, fields, &main, &[("s:cutoff", cutoff.as_str())])
}

/// Shows what was typed again, with what is wrong beside it.
pub(super) fn edit_again(operation: &Operation, fields: &FormFields, error: &RequestError) -> Answer {
    let field = error.details.get("field").and_then(Value::as_str).unwrap_or_default().to_owned();
    let main = html! {
        @if let Some(payload) = fields.get("j:payload") {
            label for="payload" { "Payload" }
            p class="notice refused" id="wrong" { (error.message) }
            textarea id="payload" name="j:payload" form="question" rows="12" spellcheck="false"
                aria-invalid=[(field == "payload").then_some("true")] aria-describedby="wrong" { "\n" (payload) }
        } @else {
            p class="notice refused" { (error.message) }
        }
    };
    let mut rest = fields.clone();
    rest.0.retain(|(name, _)| name != "j:payload");
    whole(StatusCode::BAD_REQUEST, operation, &rest, &main, &[])
}

fn whole(
    status: StatusCode,
    operation: &Operation,
    fields: &FormFields,
    main: &Markup,
    more: &[(&str, &str)],
) -> Answer {
    let back = format!("../{}", fields.back());
    let kept = fields.0.iter().filter(|(name, _)| name != CONFIRMED);
    let body = html! {
        main id="main" class="narrow" {
            h1 { "Are you sure?" }
            p { (operation.summary) "." }
            (main)
            p { (command(&command_line(operation, fields))) }
            form id="question" class="answers" method="post" action=(operation.id) {
                @for (name, value) in kept { input type="hidden" name=(name) value=(value); }
                @for (name, value) in more { input type="hidden" name=(name) value=(value); }
                input type="hidden" name=(CONFIRMED) value="yes";
                button class=(class(operation)) { "Yes, go on" }
                " "
                a class="button plain" href=(back) { "No, go back" }
            }
        }
    };
    plain(status, HTML, document("../", "Question", &assets::LIVE, &body))
}
