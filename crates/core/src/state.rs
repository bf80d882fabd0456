//! Where a task stands, and why. The reason is kept apart from the state, and each state carries what
//! belongs to it.

use crate::id::SessionId;
use crate::time::Timestamp;

/// Why a queued task waits, or how it came to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Just enqueued.
    New,
    /// Its time has not come.
    Scheduled,
    /// It failed and backs off.
    Retry,
    /// Somebody said: too many requests.
    RateLimited,
    /// Its limit key has all the tasks it may have.
    Concurrency,
    /// Its breaker is open.
    BreakerOpen,
    /// Its lane was stopped.
    Paused,
    /// Another task must complete first.
    Dependency,
    /// The money is spent.
    Budget,
    /// A node gave it back.
    HandedBack,
    /// Its node died.
    LeaseExpired,
    /// Somebody asked for another go.
    Replayed,
}

impl Wait {
    /// Every reason; a store keeps the place in this list.
    pub const ALL: [Self; 12] = [
        Self::New,
        Self::Scheduled,
        Self::Retry,
        Self::RateLimited,
        Self::Concurrency,
        Self::BreakerOpen,
        Self::Paused,
        Self::Dependency,
        Self::Budget,
        Self::HandedBack,
        Self::LeaseExpired,
        Self::Replayed,
    ];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Scheduled => "scheduled",
            Self::Retry => "retry",
            Self::RateLimited => "rate_limited",
            Self::Concurrency => "concurrency",
            Self::BreakerOpen => "breaker_open",
            Self::Paused => "paused",
            Self::Dependency => "dependency",
            Self::Budget => "budget",
            Self::HandedBack => "handed_back",
            Self::LeaseExpired => "lease_expired",
            Self::Replayed => "replayed",
        }
    }
}

/// Whether a claim may take a queued task now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// A claim may take it.
    Ready,
    /// It waits for a moment, or for another task. A claim does not even look at it.
    Waiting,
    /// It waits for its limit key: for a place, or for the key's gate. A claim does not even look at it.
    Parked,
}

/// Why a task failed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailReason {
    /// The error was permanent.
    Permanent,
    /// No try is left.
    Exhausted,
    /// It killed its worker too often: quarantined.
    Crashes,
    /// It was running in too many nodes that died: quarantined.
    NodeDeaths,
    /// The time for all its attempts together is over.
    Deadline,
}

impl FailReason {
    /// Every reason; a store keeps the place in this list.
    pub const ALL: [Self; 5] =
        [Self::Permanent, Self::Exhausted, Self::Crashes, Self::NodeDeaths, Self::Deadline];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Exhausted => "exhausted",
            Self::Crashes => "quarantined_crashes",
            Self::NodeDeaths => "quarantined_node_deaths",
            Self::Deadline => "deadline",
        }
    }
}

/// Why a task was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// Somebody asked for it.
    Requested,
    /// It was too late to be useful.
    Expired,
    /// A task that it waited for did not complete.
    Dependency,
    /// The next run of its schedule took its place.
    Replaced,
}

impl CancelReason {
    /// Every reason; a store keeps the place in this list.
    pub const ALL: [Self; 4] = [Self::Requested, Self::Expired, Self::Dependency, Self::Replaced];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Expired => "expired",
            Self::Dependency => "dependency",
            Self::Replaced => "replaced",
        }
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It will run.
    Queued {
        /// Whether a claim may take it now.
        readiness: Readiness,
        /// Why it waits.
        why: Wait,
        /// Not before this moment.
        run_at: Timestamp,
    },
    /// A node has the right to run it, and has not durably begun.
    Claimed {
        /// Whose right it is.
        session: SessionId,
    },
    /// It runs.
    Running {
        /// Whose right it is.
        session: SessionId,
        /// Since when.
        started_at: Timestamp,
    },
    /// Done.
    Completed {
        /// When.
        finished_at: Timestamp,
    },
    /// Failed for good: a dead letter.
    Failed {
        /// When.
        finished_at: Timestamp,
        /// Why.
        reason: FailReason,
    },
    /// Not to be run.
    Cancelled {
        /// When.
        finished_at: Timestamp,
        /// Why.
        reason: CancelReason,
    },
}

impl State {
    /// The state's name, without its data.
    #[must_use]
    pub const fn name(&self) -> StateName {
        match self {
            Self::Queued { .. } => StateName::Queued,
            Self::Claimed { .. } => StateName::Claimed,
            Self::Running { .. } => StateName::Running,
            Self::Completed { .. } => StateName::Completed,
            Self::Failed { .. } => StateName::Failed,
            Self::Cancelled { .. } => StateName::Cancelled,
        }
    }
}

/// The six states, for filters and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateName {
    /// See [`State::Queued`].
    Queued,
    /// See [`State::Claimed`].
    Claimed,
    /// See [`State::Running`].
    Running,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Cancelled`].
    Cancelled,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Claimed, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// The word that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the state is an end, which only a replay changes.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Queued | Self::Claimed | Self::Running => false,
        }
    }

    /// Whether a node holds the task.
    #[must_use]
    pub const fn is_leased(self) -> bool {
        match self {
            Self::Claimed | Self::Running => true,
            Self::Queued | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}
