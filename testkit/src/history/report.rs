//! The violations that the history checker reports.

use ostler_core::{SessionId, StateName, TaskId};

/// The result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls made.
    pub asked: usize,
    /// Calls answered.
    pub acked: usize,
    /// Tasks stored.
    pub stored: usize,
    /// Acknowledged changes that are missing.
    pub lost: usize,
    /// Stored changes that were not requested.
    pub phantom: usize,
    /// Tasks that were stored, claimed or completed twice.
    pub double: usize,
    pub violations: Vec<Violation>,
}

/// A violation of what the log promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged node is missing.
    LostNode(SessionId),
    /// A node is present that has left or never joined.
    PhantomNode(SessionId),
    /// The acknowledged workers of a node are missing.
    LostWorkers(SessionId),
    /// The acknowledged setting of a queue is missing.
    LostSetting(String),
    /// An acknowledged task is missing.
    LostTask(TaskId),
    /// An acknowledged claim is missing: the task's token is lower.
    LostClaim(TaskId, u64),
    /// An acknowledged start has no attempt.
    LostStart(TaskId, u64),
    /// The attempt of an acknowledged finish has no outcome.
    LostEnd(TaskId, u64),
    /// The acknowledged terminal state of a task has changed.
    LostState(TaskId, StateName),
    /// An acknowledged cancel request is missing.
    LostCancel(TaskId),
    /// An acknowledged replay is missing.
    LostReplay(TaskId),
    /// An acknowledged step is missing.
    LostStep(TaskId, String),
    /// Acknowledged events are missing.
    LostEvents(TaskId, u64),
    /// A removed task is present.
    Resurrected(TaskId),
    /// A task that was never enqueued.
    PhantomTask(TaskId),
    /// A task has finished without a finish or a cancel.
    PhantomEnd(TaskId),
    /// A step that was never saved.
    PhantomStep(TaskId, String),
    /// Events that were never appended.
    PhantomEvents(TaskId),
    /// The same lease was granted twice.
    DoubleClaim(TaskId, u64),
    /// A task completed more than once.
    DoubleCompletion(TaskId),
    /// A task is stored twice.
    DoubleTask(TaskId),
    /// The tokens of attempts or events do not rise.
    TokenWentBack(TaskId),
    /// The numbers of attempts or events have a gap.
    Gap(TaskId),
    /// An attempt has no outcome although the task is not running, or the reverse.
    OpenAttempt(TaskId),
    /// The counts of a lane differ from its tasks.
    Counts {
        /// Queue and kind.
        lane: (String, String),
        /// `None`: the submitted count.
        state: Option<StateName>,
        /// The lane's count.
        counted: u64,
        /// The minimum and maximum that match the tasks.
        found: (u64, u64),
    },
}

impl Violation {
    pub(super) const fn sort(&self) -> Sort {
        match self {
            Self::LostNode(_)
            | Self::LostWorkers(_)
            | Self::LostSetting(_)
            | Self::LostTask(_)
            | Self::LostClaim(..)
            | Self::LostStart(..)
            | Self::LostEnd(..)
            | Self::LostState(..)
            | Self::LostCancel(_)
            | Self::LostReplay(_)
            | Self::LostStep(..)
            | Self::LostEvents(..) => Sort::Lost,
            Self::PhantomNode(_)
            | Self::Resurrected(_)
            | Self::PhantomTask(_)
            | Self::PhantomEnd(_)
            | Self::PhantomStep(..)
            | Self::PhantomEvents(_) => Sort::Phantom,
            Self::DoubleClaim(..) | Self::DoubleCompletion(_) | Self::DoubleTask(_) => Sort::Double,
            Self::TokenWentBack(_) | Self::Gap(_) | Self::OpenAttempt(_) | Self::Counts { .. } => Sort::Other,
        }
    }
}

#[derive(PartialEq)]
pub(super) enum Sort {
    Lost,
    Phantom,
    Double,
    Other,
}
