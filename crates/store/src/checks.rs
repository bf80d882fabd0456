//! Safety checks of a store, each with a switch to disable it.
//!
//! The switches exist only with the feature `conformance`, for one purpose: to show that the suite fails
//! when any one check is missing.

use ostler_core::Outcome;

/// One safety check of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// A start has the token of the lease.
    StartToken,
    /// The report of an outcome has the token.
    FinishToken,
    /// A hand-back has the token.
    ReleaseToken,
    /// The acknowledgement of a cancel has the token.
    CancelToken,
    /// Events have the token.
    AppendToken,
    /// Steps have the token.
    StepToken,
    /// A report is for a leased task, not for one that is queued or in a terminal state.
    LeasedState,
    /// A claim is made by a session that has not ended.
    ClaimSession,
    /// An ended session is not renewed.
    RenewSession,
    /// Worker records come from a session that has not ended.
    ReportSession,
    /// Outbox entries are given to a session that has not ended.
    HearSession,
    /// An outbox entry is removed only by the session that has taken it.
    ToldTaken,
    /// Tasks are taken from dead sessions only.
    ExpireDead,
    /// A claim asks the gate of the queue.
    QueueGate,
    /// A claim asks the gates of limit keys.
    KeyGate,
    /// A claim respects the concurrency limit of the queue.
    QueuePlaces,
    /// A claim asks the account of the queue.
    AccountPlaces,
    /// A claim asks the budgets of its queue.
    Budget,
    /// While a probe is running, the outcomes of other attempts do not affect the breaker.
    ProbeEnd,
    /// A firing names the next time of its schedule.
    FireExpected,
}

impl Check {
    pub const ALL: [Self; 20] = [
        Self::StartToken,
        Self::FinishToken,
        Self::ReleaseToken,
        Self::CancelToken,
        Self::AppendToken,
        Self::StepToken,
        Self::LeasedState,
        Self::ClaimSession,
        Self::RenewSession,
        Self::ReportSession,
        Self::HearSession,
        Self::ToldTaken,
        Self::ExpireDead,
        Self::QueueGate,
        Self::KeyGate,
        Self::QueuePlaces,
        Self::AccountPlaces,
        Self::Budget,
        Self::ProbeEnd,
        Self::FireExpected,
    ];
}

impl Check {
    /// The check that guards the report of this outcome.
    #[must_use]
    pub const fn of_report(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::HandedBack => Self::ReleaseToken,
            Outcome::Cancelled => Self::CancelToken,
            Outcome::Success | Outcome::Failed(_) | Outcome::NodeDied => Self::FinishToken,
        }
    }
}

/// The enabled checks of a store: all of them, unless a test disabled one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks {
    #[cfg(feature = "conformance")]
    without: Option<Check>,
}

impl Checks {
    /// All checks but this one.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub const fn without(check: Check) -> Self {
        Self { without: Some(check) }
    }

    /// Whether `fact` holds, or its check is disabled.
    #[must_use]
    #[cfg_attr(not(feature = "conformance"), allow(clippy::unused_self, unused_variables))]
    pub fn pass(self, check: Check, fact: bool) -> bool {
        #[cfg(feature = "conformance")]
        if self.without == Some(check) {
            return true;
        }
        fact
    }
}
