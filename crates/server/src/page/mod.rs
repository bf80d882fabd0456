//! The dashboard: pages in HTML over the same views as the API, rendered by the node and embedded in the program.
//!
//! Every page works without script, by links and forms. With script it is live: `assets/live.js` fetches the page's own address again when
//! a stream of the API reports a change, and merges the new document into the old one. So there is one rendering only.
//!
//! - One file for each view: `overview.rs`, `tasks.rs`, `task.rs`, `transcript.rs` with `search.rs`, `dead.rs`, `jobs.rs`, `nodes.rs`, `schedules.rs`,
//!   `cost.rs`, `login.rs`. Their functions are rows of the table of operations.
//! - `why.rs`, `throttle.rs`: why a task waits. `pulse.rs`: rates and ages. `mend.rs`: advice as buttons.
//! - `layout.rs`: what all pages have. `parts`: components. `assets.rs`: the style sheet and the scripts.
//! - `actions.rs`: what a button does: it runs an operation of the table, with the permission and the audit record of that operation.
//!   `forms.rs`: its fields. `question.rs`: asks first. `command.rs`: the command line that does the same.

pub(crate) mod actions;
pub(crate) mod assets;
mod command;
pub(crate) mod cost;
pub(crate) mod dead;
mod forms;
pub(crate) mod jobs;
mod layout;
pub(crate) mod login;
mod mend;
pub(crate) mod nodes;
mod notices;
pub(crate) mod overview;
mod parts;
mod pulse;
mod question;
pub(crate) mod schedules;
mod search;
pub(crate) mod task;
pub(crate) mod tasks;
mod throttle;
pub(crate) mod transcript;
mod why;

pub(crate) use layout::{failed, to_folder};

use notices::Notices;
use pulse::Pulse;

/// What the pages of a node remember between requests.
#[derive(Default)]
pub(crate) struct PageState {
    notices: Notices,
    pulse: Pulse,
}
