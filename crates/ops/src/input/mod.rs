//! Input of users, read into requests: the same for a line of JSON on the command line and the body of an HTTP request.
//!
//! - `task.rs`: a task to submit. `filter.rs`: filters. `settings.rs`: limits of a queue, amendments, schedules.
//! - `job.rs`: a job over a pool, and more of its items.

mod filter;
mod job;
mod settings;
mod task;

use std::fmt::Display;

pub use filter::filter;
pub use job::{JobRequest, items, job, job_input};
pub use settings::{amendment, queue_set, schedule};
pub use task::submit_request;

/// A value that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct BadField {
    /// The field, if the fault is in one.
    pub field: Option<&'static str>,
    /// What is wrong; begins with the field.
    pub sentence: String,
}

impl BadField {
    fn of(field: &'static str, sentence: &str) -> Self {
        let sentence =
            if sentence.starts_with(field) { sentence.to_owned() } else { format!("{field}: {sentence}") };
        Self { field: Some(field), sentence }
    }

    fn plain(sentence: impl Into<String>) -> Self {
        Self { field: None, sentence: sentence.into() }
    }
}

/// Reads a value as the command line does.
fn read<T>(
    name: &'static str,
    value: Option<impl Display>,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, BadField> {
    value.map(|value| field(name, &value.to_string(), parse)).transpose()
}

fn field<T>(name: &'static str, text: &str, parse: fn(&str) -> Result<T, String>) -> Result<T, BadField> {
    parse(text).map_err(|error| BadField::of(name, &error))
}

/// A folder that a request names: the caller and the node have no common working folder.
fn folder(given: Option<String>) -> Result<Option<String>, BadField> {
    match given {
        Some(path) if !path.starts_with('/') => {
            Err(BadField::of("folder", "expected an absolute path, such as /srv/data"))
        }
        given => Ok(given),
    }
}
