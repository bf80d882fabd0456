//! The layout of all pages: head, navigation, "as of", and who is logged in.

use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use maud::{DOCTYPE, Markup, html};
use ostler_core::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::assets;
use super::notices::{Notice, NoticeTone};
use super::parts::time;
use crate::answer::{Answer, RequestError, plain};
use crate::call::ApiCall;
use crate::tokens::Access;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
/// The parameter of an address that names a notice.
pub(super) const NOTICE: &str = "notice";

/// The events of the stream `api/v1/live` after which a page fetches itself again: those about what it shows.
pub(super) const TASKS_CHANGE: &str = "stats queues nodes";
pub(super) const NODES_CHANGE: &str = "stats nodes workers";
pub(super) const ANYTHING_CHANGES: &str = "stats queues nodes changes";

/// The views of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageView {
    Overview,
    Tasks,
    Dead,
    Jobs,
    Nodes,
    Schedules,
    Cost,
}

impl PageView {
    const ALL: [Self; 7] =
        [Self::Overview, Self::Tasks, Self::Dead, Self::Jobs, Self::Nodes, Self::Schedules, Self::Cost];

    /// The address from the root of the pages, the name, and the key that leads there.
    const fn link(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Overview => ("", "Overview", "o"),
            Self::Tasks => ("tasks", "Tasks", "t"),
            Self::Dead => ("dead", "Dead letters", "d"),
            Self::Jobs => ("jobs", "Jobs", "j"),
            Self::Nodes => ("nodes", "Nodes", "n"),
            Self::Schedules => ("schedules", "Schedules", "s"),
            Self::Cost => ("cost", "Cost", "c"),
        }
    }
}

/// What the parts of a page need to know about it.
pub(crate) struct PageContext {
    pub(crate) view: PageView,
    /// The address of this page from the root of the pages, with its query and without the notice.
    pub(crate) address: String,
    pub(crate) now: Timestamp,
    /// How far the root is: `./`, `../`. Links are relative, so that the pages work under any path of a proxy.
    root: String,
    who: String,
    access: Access,
    notice: Option<Notice>,
}

impl PageContext {
    /// A page with this path from the root, such as `tasks/ID`.
    pub(crate) fn new(call: &ApiCall, view: PageView, path: &str) -> Self {
        let pairs: Vec<_> = form_urlencoded::parse(call.query.as_bytes()).collect();
        let notice = pairs.iter().find(|(name, _)| name == NOTICE);
        let notice = notice.and_then(|(_, id)| call.app.page.notices.find(id));
        let rest = pairs.iter().filter(|(name, _)| name != NOTICE);
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(rest).finish();
        let address = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let (who, access) = match &call.caller {
            Some(caller) => (caller.name.clone(), caller.access),
            None => ("anyone".to_owned(), Access::Read),
        };
        Self { view, address, now: call.app.now(), root: root_of(path), who, access, notice }
    }

    /// A link to an address from the root of the pages.
    pub(crate) fn link(&self, address: &str) -> String {
        format!("{}{address}", self.root)
    }

    /// Whether the visitor may press buttons.
    pub(crate) fn may_change(&self) -> bool {
        self.access == Access::Full
    }

    /// The whole page. `reports` are the events after which it is fetched again.
    pub(crate) fn page(&self, title: &str, reports: &str, main: &Markup) -> Answer {
        self.page_with(StatusCode::OK, title, reports, main)
    }

    pub(crate) fn page_with(&self, status: StatusCode, title: &str, reports: &str, main: &Markup) -> Answer {
        let body = html! {
            header class="top" {
                a class="skip" href="#main" { "Skip to the content" }
                nav aria-label="Views" {
                    a class="brand" href=(self.link("")) { "Ostler" }
                    @for view in PageView::ALL {
                        @let (address, name, key) = view.link();
                        a href=(self.link(address)) accesskey=(key) aria-current=[(view == self.view).then_some("page")] { (name) }
                    }
                }
                p class="asof" {
                    span id="asof" { "As of " (time::clock(self.now)) }
                    span id="live" class="live" role="status" data-reports=(reports) data-root=(self.root) { "reload to refresh" }
                }
                div class="who" {
                    span { (self.who) @if !self.may_change() { " (may only look)" } }
                    form method="post" action=(self.link("logout/form")) { button class="plain" { "Log out" } }
                }
            }
            main id="main" tabindex="-1" {
                div id="notices" {
                    @if let Some(notice) = &self.notice {
                        p class=(match notice.tone { NoticeTone::Done => "notice done", NoticeTone::Refused => "notice refused" }) role="status" { (notice.text) }
                    }
                }
                (main)
            }
        };
        plain(status, HTML, document(&self.root, title, &assets::LIVE, &body))
    }
}

/// How far the root is from a path.
pub(super) fn root_of(path: &str) -> String {
    let depth = path.matches('/').count();
    if depth == 0 { "./".to_owned() } else { "../".repeat(depth) }
}

/// A whole document.
pub(super) fn document(root: &str, title: &str, script: &assets::Asset, body: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Ostler" }
                link rel="stylesheet" href=(format!("{root}assets/{}", assets::STYLE.name));
                link rel="icon" href=(format!("{root}assets/{}", assets::ICON.name)) type="image/svg+xml";
                script type="module" src=(format!("{root}assets/{}", script.name)) {}
            }
            body data-root=(root) { (body) }
        }
    }
    .into_string()
}

/// The page of an error.
pub(crate) fn failed(path: &str, error: &RequestError) -> Answer {
    let root = root_of(path.trim_start_matches('/'));
    let body = html! {
        main id="main" class="narrow" {
            h1 { (error.status.canonical_reason().unwrap_or("Error")) }
            p { (error.message) }
            p { a href=(root) { "To the overview" } }
        }
    };
    plain(error.status, HTML, document(&root, "Error", &assets::LIVE, &body))
}

/// What stays as it is in a part of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as one part of a path.
pub(crate) fn segment(name: &str) -> String {
    // A part that is only dots would lead elsewhere.
    if name.chars().all(|c| c == '.') {
        return name.replace('.', "%2E");
    }
    utf8_percent_encode(name, PLAIN).to_string()
}

/// An address with a query.
pub(crate) fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Sends a browser to the same address with a slash at its end.
pub(crate) fn to_folder(base: &str) -> Result<Answer, RequestError> {
    let mut answer = plain(StatusCode::PERMANENT_REDIRECT, HTML, "");
    let address = HeaderValue::from_str(&format!("{base}/"))
        .map_err(|_| RequestError::invalid("the base path has no valid address"))?;
    answer.headers_mut().insert(LOCATION, address);
    Ok(answer)
}
