//! Notices: the end of an attempt, as hooks receive it.

use ostler_core::is_too_deep;
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::TaskDetail;
use serde::Serialize;

use crate::dead::LetterDetail;
use crate::json::Json;
use crate::remains::AttemptRemains;
use crate::task::AttemptView;
use crate::time::TimeView;

/// The end of an attempt, as hooks receive it: with the task, as `show` and `dead show` print it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndNotice {
    /// `completed`, `failed`, or `retry` if the task is retried after a failed attempt.
    pub event: &'static str,
    /// The number of the outbox entry. Delivery is at least once: use it to recognise a repeat.
    pub sequence: u64,
    /// Whether parts were left out because the notice was too large.
    pub cut: bool,
    #[serde(flatten)]
    pub letter: LetterDetail,
    /// How often it was handed to a node before. Above 0, the hooks may have run already.
    pub earlier: u32,
    /// The attempt that ended; `null` if the task ended without one.
    pub attempt: Option<AttemptView>,
    /// When the next attempt may start, if there will be one.
    pub next_attempt_at: Option<TimeView>,
}

impl EndNotice {
    /// Builds the notice of an outbox entry, with the task as it is now and what its attempts left.
    #[must_use]
    pub fn new(entry: &OutboxEntry, found: &TaskDetail, remains: AttemptRemains) -> Self {
        let letter = LetterDetail::new(found, remains);
        let ended = letter.detail.attempts.iter().find(|attempt| attempt.number == entry.attempt);
        Self {
            event: entry.what.name(),
            sequence: entry.number,
            earlier: entry.earlier,
            attempt: ended.cloned(),
            next_attempt_at: entry.run_at.map(TimeView::from),
            cut: false,
            letter,
        }
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
        if let Some(attempt) = &mut brief.attempt {
            (attempt.prompt, attempt.stdout, attempt.error) = (None, None, None);
            attempt.files.clear();
        }
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
