//! The checks that keep a store safe, each with a switch to take it out.
//!
//! The switches exist only with the feature `conformance`, for one purpose: to show that the suite turns red
//! when any one check is missing.

use ostler_core::Outcome;

/// One check of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// A start names the token of the lease.
    StartToken,
    /// The report of an attempt's end names it.
    FinishToken,
    /// A hand-back names it.
    ReleaseToken,
    /// The acknowledgement of a cancel names it.
    CancelToken,
    /// Events name it.
    AppendToken,
    /// Steps name it.
    StepToken,
    /// A report is for a task that is leased, and not for one that has ended or waits.
    LeasedState,
    /// A claim is made by a session that has not ended.
    ClaimSession,
    /// An ended session is not renewed.
    RenewSession,
    /// Worker records come from a session that has not ended.
    ReportSession,
    /// Tellings are given to a session that has not ended.
    HearSession,
    /// A telling is removed by the session that has taken it.
    ToldTaken,
    /// Tasks are taken from dead sessions only.
    ExpireDead,
    /// A claim asks the gate of the queue.
    QueueGate,
    /// A claim asks the gates of limit keys.
    KeyGate,
    /// A claim keeps to the concurrency of the queue.
    QueuePlaces,
    /// While a probe is under way, the ends of other attempts do not move the breaker.
    ProbeEnd,
    /// A firing names the next moment of its schedule.
    FireExpected,
}

impl Check {
    /// Every check.
    pub const ALL: [Self; 18] = [
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

/// Which checks a store makes: all of them, unless a test took one out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checks {
    #[cfg(feature = "conformance")]
    without: Option<Check>,
}

impl Checks {
    /// All but this one.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub const fn without(check: Check) -> Self {
        Self { without: Some(check) }
    }

    /// Whether `fact` holds, or its check was taken out.
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
