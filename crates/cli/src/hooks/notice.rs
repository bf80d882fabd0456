//! The notice sent to a hook: the dead letter, as `ostler dead show --json` prints it, and the number of the outbox entry.

use ostler_core::{TaskId, Timestamp, is_too_deep};
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::TaskDetail;
use ostler_wire::dead::{DeadLetterNotice as View, LetterDetail};
use ostler_wire::json::Json;

pub(super) struct HookNotice {
    /// The number of the outbox entry: the same when it is delivered again.
    pub(super) sequence: u64,
    pub(super) task: TaskId,
    pub(super) queue: String,
    pub(super) kind: String,
    pub(super) attempt: u32,
    pub(super) at: Timestamp,
    view: View,
}

impl HookNotice {
    pub(super) fn new(telling: &OutboxEntry, found: &TaskDetail) -> Self {
        let letter = LetterDetail::new(&found.task, &found.attempts, &found.steps, &found.after);
        Self {
            sequence: telling.number,
            task: telling.task,
            queue: telling.queue.clone(),
            kind: telling.kind.clone(),
            attempt: telling.attempt,
            at: telling.at,
            view: View { event: "failed", sequence: telling.number, cut: false, letter },
        }
    }

    /// The whole notice.
    pub(super) fn json(&self) -> String {
        text(&self.view)
    }

    /// At most `most` bytes of it, and nested no deeper than a payload may be: large parts are left out, and `cut` is set. `None` if
    /// even the rest does not fit.
    pub(super) fn json_within(&self, most: usize) -> Option<String> {
        let whole = self.json();
        if whole.len() <= most && !is_too_deep(&whole) {
            return Some(whole);
        }
        let mut view = View { cut: true, ..self.view.clone() };
        let detail = &mut view.letter.detail;
        (detail.payload, detail.output) = (Json::from_text("null"), None);
        detail.steps.clear();
        detail.attempts.clear();
        let brief = text(&view);
        if brief.len() <= most {
            return Some(brief);
        }
        view.letter.post_mortem.details = None;
        view.letter.detail.summary.error = None;
        Some(text(&view)).filter(|text| text.len() <= most)
    }
}

fn text(view: &View) -> String {
    serde_json::to_string(view).expect("a view is JSON")
}
