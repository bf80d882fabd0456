//! Task states and their reasons. The reason is separate from the state, and each state carries its own data.

use crate::id::SessionId;
use crate::time::Timestamp;

/// Why a queued task waits, or how it came to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    New,
    /// Not yet due.
    Scheduled,
    /// Failed, and backing off.
    Retry,
    /// An attempt reported "too many requests".
    RateLimited,
    /// The concurrency limit of its limit key is reached.
    Concurrency,
    /// The circuit breaker is open.
    BreakerOpen,
    /// Its queue is paused.
    Paused,
    /// Another task must complete first.
    Dependency,
    /// The budget is spent.
    Budget,
    /// A node handed it back.
    HandedBack,
    /// Its node died.
    LeaseExpired,
    /// A user replayed it.
    Replayed,
    /// The allowance of its account is used up.
    UsageLimit,
}

impl Wait {
    /// Every reason; a store persists the index in this list.
    pub const ALL: [Self; 13] = [
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
        Self::UsageLimit,
    ];

    /// The name shown to users.
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
            Self::UsageLimit => "usage_limit",
        }
    }
}

/// Whether a claim may take a queued task now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Readiness {
    /// A claim may take it.
    Ready,
    /// Waits for a time or for another task. Claims do not scan it.
    Waiting,
    /// Waits for its limit key: for a free slot, or for the key's gate. Claims do not scan it.
    Parked,
}

/// Why a task failed permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailReason {
    /// The error was permanent.
    Permanent,
    /// No attempts are left.
    Exhausted,
    /// It killed its worker too often: quarantined.
    Crashes,
    /// It was running on too many nodes that died: quarantined.
    NodeDeaths,
    /// The deadline for all attempts together has passed.
    Deadline,
}

impl FailReason {
    /// Every reason; a store persists the index in this list.
    pub const ALL: [Self; 5] =
        [Self::Permanent, Self::Exhausted, Self::Crashes, Self::NodeDeaths, Self::Deadline];

    /// The name shown to users.
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
    /// A user requested it.
    Requested,
    /// Its `not_after` has passed.
    Expired,
    /// A dependency did not complete.
    Dependency,
    /// The next run of its schedule replaced it.
    Replaced,
}

impl CancelReason {
    /// Every reason; a store persists the index in this list.
    pub const ALL: [Self; 4] = [Self::Requested, Self::Expired, Self::Dependency, Self::Replaced];

    /// The name shown to users.
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

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Will run.
    Queued {
        /// Whether a claim may take it now.
        readiness: Readiness,
        /// Why it waits.
        why: Wait,
        /// Not due before this time.
        run_at: Timestamp,
    },
    /// A node holds the lease, and no attempt has durably started.
    Claimed {
        /// The session that holds the lease.
        session: SessionId,
    },
    /// An attempt is running.
    Running {
        /// The session that holds the lease.
        session: SessionId,
        /// When the attempt started.
        started_at: Timestamp,
    },
    /// Completed successfully.
    Completed {
        /// When it completed.
        finished_at: Timestamp,
    },
    /// Failed permanently: a dead letter.
    Failed {
        /// When it failed.
        finished_at: Timestamp,
        /// Why it failed.
        reason: FailReason,
    },
    /// Cancelled; it will not run.
    Cancelled {
        /// When it was cancelled.
        finished_at: Timestamp,
        /// Why it was cancelled.
        reason: CancelReason,
    },
}

impl State {
    /// The name of the state, without its data.
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

    /// When the attempt started, if one is running.
    #[must_use]
    pub const fn started_at(&self) -> Option<Timestamp> {
        match self {
            Self::Running { started_at, .. } => Some(*started_at),
            Self::Queued { .. }
            | Self::Claimed { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. } => None,
        }
    }

    /// When the task ended.
    #[must_use]
    pub const fn finished_at(&self) -> Option<Timestamp> {
        match self {
            Self::Completed { finished_at }
            | Self::Failed { finished_at, .. }
            | Self::Cancelled { finished_at, .. } => Some(*finished_at),
            Self::Queued { .. } | Self::Claimed { .. } | Self::Running { .. } => None,
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

    /// The name shown to users.
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

    /// Whether the state is terminal; only a replay leaves it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Queued | Self::Claimed | Self::Running => false,
        }
    }

    /// Whether a node holds a lease on the task.
    #[must_use]
    pub const fn is_leased(self) -> bool {
        match self {
            Self::Claimed | Self::Running => true,
            Self::Queued | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }
}
