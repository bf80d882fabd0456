//! The login page: a script posts the text after the `#` of a login link, once. There is also a field to paste a link, or a token.

use hyper::StatusCode;
use maud::{Markup, html};

use super::actions::see_other;
use super::assets;
use super::forms::FormFields;
use super::layout::{HTML, document, root_of};
use super::parts::button::command;
use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;
use crate::operations::{close_session, open_session};

/// The field with a link, the text of a link, or a token.
const TOKEN: &str = "token";
/// Where to go then, from the root of the pages.
const TO: &str = "to";

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let asked = FormFields(form_urlencoded::parse(call.query.as_bytes()).into_owned().collect());
    Ok(page(StatusCode::OK, "./", &way(&asked), ""))
}

/// The login page in the place of another one, whose address stays.
pub(crate) fn in_place(path: &str, query: Option<&str>) -> Answer {
    let path = path.trim_start_matches('/');
    let to = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    page(StatusCode::UNAUTHORIZED, &root_of(path), &to, "")
}

/// Logs in by the form: by a link in browsers without script, or by a token.
pub(crate) async fn by_form(call: ApiCall) -> Result<Answer, RequestError> {
    let fields = FormFields::read(call.text()?)?;
    let to = way(&fields);
    let text = fields.get(TOKEN).unwrap_or_default();
    // People paste the whole link.
    let text = text.rsplit_once('#').map_or(text, |(_, text)| text).trim();
    if text.is_empty() {
        return Ok(page(StatusCode::BAD_REQUEST, "../", &to, "Paste a login link or a token."));
    }
    let Some(granted) = open_session(&call, text) else {
        let sentence = "This login link was used or is too old, or the token is not one of this node. Make another link.";
        return Ok(page(StatusCode::UNAUTHORIZED, "../", &to, sentence));
    };
    let mut answer = see_other(&format!("../{to}"))?;
    answer.headers_mut().extend(granted);
    Ok(answer)
}

pub(crate) async fn log_out(call: ApiCall) -> Result<Answer, RequestError> {
    let mut answer = see_other("../login")?;
    answer.headers_mut().extend(close_session(&call));
    Ok(answer)
}

/// Where to go, if it stays on the pages.
fn way(fields: &FormFields) -> String {
    let to = fields.get(TO).unwrap_or_default().to_owned();
    FormFields(vec![(super::forms::BACK.to_owned(), to)]).back()
}

fn page(status: StatusCode, root: &str, to: &str, wrong: &str) -> Answer {
    let body: Markup = html! {
        main id="main" class="narrow login" {
            h1 { "Ostler" }
            p { "To log in, make a link on the machine of the node, and open it in this browser:" }
            p { (command("ostler open")) }
            form id="login" method="post" action=(format!("{root}login/form")) data-root=(root) {
                input type="hidden" name=(TO) value=(to);
                label for="token" { "Or paste a login link or a token here" }
                input id="token" name=(TOKEN) type="password" autocomplete="off" spellcheck="false" required;
                button class="button" { "Log in" }
            }
            p id="wrong" role="alert" class="refused" { (wrong) }
            p class="quiet" { "A link is valid once and for five minutes. A session lasts twelve hours, and ends when the node stops. With a read token it may only look." }
        }
    };
    plain(status, HTML, document(root, "Log in", &assets::LOGIN, &body))
}
