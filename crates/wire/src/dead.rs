//! Dead letters: tasks that failed for good, with their failure and steps.

use std::collections::BTreeMap;

use ostler_core::{State, Step, Task, is_too_deep};
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::TaskDetail;
use serde::Serialize;

use crate::json::Json;
use crate::remains::AttemptRemains;
use crate::task::{Detail, Summary, steps};
use crate::time::TimeView;

/// A dead letter in a list.
#[derive(Clone, Debug, Serialize)]
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
pub struct LetterDetail {
    #[serde(flatten)]
    pub detail: Detail,
    #[serde(flatten)]
    pub post_mortem: PostMortem,
}

/// A dead letter, as hooks receive it.
#[derive(Clone, Debug, Serialize)]
pub struct DeadLetterNotice {
    /// Always `failed`.
    pub event: &'static str,
    /// The number of the outbox entry. Delivery is at least once: use it to recognise a repeat.
    pub sequence: u64,
    /// Whether parts were left out because the notice was too large.
    pub cut: bool,
    #[serde(flatten)]
    pub letter: LetterDetail,
}

/// How a task failed.
#[derive(Clone, Debug, Serialize)]
pub struct PostMortem {
    /// Why it is not retried, in one word; `null` if it has been replayed since.
    pub reason: Option<&'static str>,
    /// The class of the last failure; `null` if the task failed because its nodes died or its deadline passed.
    pub class: Option<&'static str>,
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

impl DeadLetterNotice {
    #[must_use]
    pub fn new(entry: &OutboxEntry, found: &TaskDetail) -> Self {
        let letter = LetterDetail::new(found, AttemptRemains::default());
        Self { event: "failed", sequence: entry.number, cut: false, letter }
    }

    /// The JSON text in at most `most` bytes, nested no deeper than a payload may be: large parts are left out, and `cut` is
    /// set. `None` if even the rest does not fit.
    #[must_use]
    pub fn json_within(&self, most: usize) -> Option<String> {
        let whole = self.json();
        if whole.len() <= most && !is_too_deep(&whole) {
            return Some(whole);
        }
        let mut brief = Self { cut: true, ..self.clone() };
        let detail = &mut brief.letter.detail;
        (detail.payload, detail.output) = (Json::from_text("null"), None);
        detail.steps.clear();
        detail.attempts.clear();
        let text = brief.json();
        if text.len() <= most {
            return Some(text);
        }
        brief.letter.post_mortem.details = None;
        brief.letter.detail.summary.error = None;
        Some(brief.json()).filter(|text| text.len() <= most)
    }

    /// The whole JSON text.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a view is JSON")
    }
}
