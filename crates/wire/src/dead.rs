//! Dead letters: tasks that failed for good, with what whoever mends them asks first.

use std::collections::BTreeMap;

use ostler_core::{Attempt, State, Step, Task, TaskId};
use serde::Serialize;

use crate::json::Json;
use crate::task::{Detail, Summary, steps};
use crate::time::TimeView;

/// A dead letter in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Letter {
    /// What a list shows of any task.
    #[serde(flatten)]
    pub summary: Summary,
    /// How it came to its end.
    #[serde(flatten)]
    pub post_mortem: PostMortem,
    /// When it first failed.
    pub first_failure: Option<TimeView>,
    /// When it last failed.
    pub last_failure: Option<TimeView>,
    /// Its steps by name: what is done and need not be done again.
    pub steps: BTreeMap<String, Json>,
}

/// A dead letter with all that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct LetterDetail {
    /// What is shown of any task.
    #[serde(flatten)]
    pub detail: Detail,
    /// How it came to its end.
    #[serde(flatten)]
    pub post_mortem: PostMortem,
}

/// A dead letter, as hooks are told of it.
#[derive(Clone, Debug, Serialize)]
pub struct DeadLetterNotice {
    /// What happened: `failed`.
    pub event: &'static str,
    /// The number of the telling. It may come twice; whoever has seen it need not act again.
    pub sequence: u64,
    /// Whether parts were left out because all of it was too large.
    pub cut: bool,
    /// The dead letter.
    #[serde(flatten)]
    pub letter: LetterDetail,
}

/// How a task came to its end.
#[derive(Clone, Debug, Serialize)]
pub struct PostMortem {
    /// Why it is not tried again, in one word; `null` when somebody has replayed it meanwhile.
    pub reason: Option<&'static str>,
    /// The class of its last failure. A task may die of its nodes or its deadline, and have none.
    pub class: Option<&'static str>,
    /// More about its last failure, for whoever looks closer.
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
    /// The task with these steps.
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
    /// The task with these attempts and steps, and those that it waits for if somebody has replayed it.
    #[must_use]
    pub fn new(task: &Task, attempts: &[Attempt], steps: &[Step], after: &[TaskId]) -> Self {
        Self { detail: Detail::new(task, attempts, steps, after, None), post_mortem: PostMortem::from(task) }
    }
}
