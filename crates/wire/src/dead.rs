//! Dead letters: tasks that failed for good, with their failure and steps.

use std::collections::BTreeMap;

use ostler_core::{State, Step, Task};
use ostler_store::views::TaskDetail;
use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{Json, in_two_parts};
use crate::remains::AttemptRemains;
use crate::task::{Detail, Summary, steps};
use crate::time::TimeView;
use crate::word::{self, Word};

/// A dead letter in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Letter {
    #[serde(flatten)]
    pub summary: Summary,
    #[serde(flatten)]
    pub post_mortem: PostMortem,
    pub first_failure: Option<TimeView>,
    pub last_failure: Option<TimeView>,
    /// Saved steps by name; a replay does not repeat them.
    pub steps: BTreeMap<String, Json>,
}

/// A dead letter with its attempts, steps and output.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LetterDetail {
    #[serde(flatten)]
    pub detail: Detail,
    #[serde(flatten)]
    pub post_mortem: PostMortem,
}

impl<'de> Deserialize<'de> for LetterDetail {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (detail, post_mortem) = in_two_parts(from)?;
        Ok(Self { detail, post_mortem })
    }
}

/// How a task failed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PostMortem {
    /// Why it is not retried, in one word; `null` if it has been replayed since.
    #[serde(deserialize_with = "word::read_option")]
    pub reason: Option<Word>,
    /// The class of the last failure; `null` if the task failed because its nodes died or its deadline passed.
    #[serde(deserialize_with = "word::read_option")]
    pub class: Option<Word>,
    /// Details of the last failure.
    pub details: Option<String>,
}

impl From<&Task> for PostMortem {
    fn from(task: &Task) -> Self {
        let reason = match task.state {
            State::Failed { reason, .. } => Some(reason.name()),
            State::Queued { .. }
            | State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Cancelled { .. } => None,
        };
        let failure = task.last_failure.as_ref();
        Self {
            reason,
            class: failure.map(|failure| failure.class.name()),
            details: failure.and_then(|failure| failure.details.clone()),
        }
    }
}

impl Letter {
    /// Builds the view of `task` with its saved steps.
    #[must_use]
    pub fn new(task: &Task, saved: &[Step]) -> Self {
        Self {
            summary: Summary::from(task),
            post_mortem: PostMortem::from(task),
            first_failure: task.first_failure_at.map(TimeView::from),
            last_failure: task.last_failure_at.map(TimeView::from),
            steps: steps(saved),
        }
    }
}

impl LetterDetail {
    /// Builds the view of a task with its attempts and steps, and the tasks it waits for if it has been replayed.
    #[must_use]
    pub fn new(found: &TaskDetail, remains: AttemptRemains) -> Self {
        Self { detail: Detail::new(found, None, remains), post_mortem: PostMortem::from(&found.task) }
    }
}
