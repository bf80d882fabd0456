//! Pacing: when words that an agent says piece by piece go into the transcript, so that it is live, and has few events.

use std::time::Duration;

use tokio::time::Instant;

use crate::dialect::Speech;

/// How long words wait for those that follow. So long, an agent adds no more than one event for them.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// An agent that was silent for so long has paused: what it has said is a whole.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of the words that are not in the transcript yet.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    due: Option<Instant>,
    heard: Option<Instant>,
}

impl Pacing {
    /// The agent was heard. `unsaid` are the bytes of what waits now.
    pub(super) fn heard(&mut self, unsaid: usize, now: Instant) {
        self.heard = Some(now);
        self.wait(unsaid, now);
    }

    /// Words went into the transcript because they were due. `unsaid` is what is left of them.
    pub(super) fn said(&mut self, unsaid: usize, now: Instant) {
        self.due = None;
        self.wait(unsaid, now);
    }

    fn wait(&mut self, unsaid: usize, now: Instant) {
        self.due = (unsaid > 0).then(|| self.due.unwrap_or(now + MAX_WAIT));
    }

    /// When the words have waited long enough; `None`: there are none.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the agent is in the middle of something.
    pub(super) fn speech(&self, now: Instant) -> Speech {
        match self.heard {
            Some(heard) if now < heard + PAUSE => Speech::GoesOn,
            Some(_) | None => Speech::Pauses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn words_are_due_half_a_second_after_the_first_and_never_more_often() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut pacing = Pacing::default();
        pacing.heard(0, at(0));
        assert_eq!(pacing.due(), None, "nothing waits");
        pacing.heard(5, at(100));
        pacing.heard(9, at(550));
        assert_eq!(pacing.due(), Some(at(600)), "the first word counts");
        assert_eq!(pacing.speech(at(600)), Speech::GoesOn);
        pacing.said(2, at(600));
        assert_eq!(pacing.due(), Some(at(1_100)));
        assert_eq!(pacing.speech(at(1_100)), Speech::Pauses);
        pacing.said(0, at(1_100));
        assert_eq!(pacing.due(), None);
    }
}
