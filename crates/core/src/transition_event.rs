//! Transition events: what a task's log says about changes of its state, other than by a plain start or success.

use crate::event::EventBody;
use crate::outcome::Outcome;
use crate::state::{State, StateName};
use crate::text::beginning;
use crate::time::Timestamp;

/// The event for a task that has reached this state, if it ended there without success.
#[must_use]
pub fn end_event(state: &State) -> Option<EventBody> {
    let why = match state {
        State::Failed { reason, .. } => reason.name(),
        State::Cancelled { reason, .. } => reason.name(),
        State::Queued { .. } | State::Claimed { .. } | State::Running { .. } | State::Completed { .. } => {
            return None;
        }
    };
    Some(EventBody::Transition { state: state.name(), why: why.to_owned(), run_at: None })
}

/// The event for a task that is queued again after an attempt with this outcome.
#[must_use]
pub fn requeue_event(outcome: &Outcome, run_at: Timestamp) -> Option<EventBody> {
    let why = match outcome {
        Outcome::Failed(failure) => failure.class.name(),
        Outcome::NodeDied => "node_died",
        Outcome::HandedBack => "handed_back",
        Outcome::Success | Outcome::Cancelled => return None,
    };
    Some(EventBody::Transition { state: StateName::Queued, why: why.to_owned(), run_at: Some(run_at) })
}

/// The event for a task that a user queued again, or made due.
#[must_use]
pub fn replay_event() -> EventBody {
    EventBody::Transition { state: StateName::Queued, why: "replayed".to_owned(), run_at: None }
}

/// The event for a replay that replaces a payload by another one: the former one, or its beginning if it has more than this
/// many bytes.
#[must_use]
pub fn former_payload_event(former: &str, payload: &str, most_bytes: usize) -> Option<EventBody> {
    if former == payload {
        return None;
    }
    let text = match beginning(former, most_bytes) {
        whole if whole.len() == former.len() => former.to_owned(),
        cut => format!("{cut}… (the beginning of {} bytes)", former.len()),
    };
    Some(EventBody::FormerPayload { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ErrorClass, Failure};
    use crate::state::{CancelReason, FailReason};

    #[test]
    fn a_former_payload_is_kept_whole_up_to_the_bound_and_the_same_one_is_no_event() {
        let text = |event: Option<EventBody>| event.and_then(|event| event.text().map(str::to_owned));
        let former = r#"{"n":9007199254740993,"x":1.10}"#;
        assert_eq!(text(former_payload_event(former, "1", former.len())).as_deref(), Some(former));
        assert_eq!(former_payload_event(former, former, 9), None);
        let cut = text(former_payload_event("\"\u{e4}\u{e4}\"", "1", 4));
        assert_eq!(cut.as_deref(), Some("\"\u{e4}… (the beginning of 6 bytes)"));
    }

    #[test]
    fn an_end_without_success_has_its_reason_and_a_success_has_no_event() {
        let finished_at = Timestamp::ZERO;
        let failed = State::Failed { finished_at, reason: FailReason::Exhausted };
        let why = |event: Option<EventBody>| match event {
            Some(EventBody::Transition { state, why, run_at }) => Some((state, why, run_at)),
            other => {
                assert_eq!(other, None);
                None
            }
        };
        assert_eq!(why(end_event(&failed)), Some((StateName::Failed, "exhausted".to_owned(), None)));
        let cancelled = State::Cancelled { finished_at, reason: CancelReason::Dependency };
        assert_eq!(why(end_event(&cancelled)), Some((StateName::Cancelled, "dependency".to_owned(), None)));
        assert_eq!(end_event(&State::Completed { finished_at }), None);
        let timeout = Outcome::Failed(Failure::new(ErrorClass::Timeout, "slow"));
        let at = Timestamp::from_millis(7);
        let expected = Some((StateName::Queued, "timeout".to_owned(), Some(at)));
        assert_eq!(why(requeue_event(&timeout, at)), expected);
        assert_eq!(requeue_event(&Outcome::Success, at), None);
    }
}
