//! What can be wrong.

use ostler_core::{SessionId, StateName, TaskId};

/// What came out of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that were made.
    pub asked: usize,
    /// Calls that were answered.
    pub acked: usize,
    /// Tasks that are stored.
    pub stored: usize,
    /// Acknowledged things that are not there.
    pub lost: usize,
    /// Things that nobody asked for.
    pub phantom: usize,
    /// Tasks that ended, or were given out, twice.
    pub double: usize,
    /// All that is wrong.
    pub violations: Vec<Violation>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged node is not there.
    LostNode(SessionId),
    /// A node that is gone is there, or one that never came.
    PhantomNode(SessionId),
    /// The acknowledged workers of a node are not there.
    LostWorkers(SessionId),
    /// The acknowledged setting of a queue does not hold.
    LostSetting(String),
    /// An acknowledged task is not there.
    LostTask(TaskId),
    /// An acknowledged claim is not there: the task's token is lower.
    LostClaim(TaskId, u64),
    /// An acknowledged start has no attempt.
    LostStart(TaskId, u64),
    /// The attempt of an acknowledged end has none.
    LostEnd(TaskId, u64),
    /// The acknowledged state of an ended task is another one now.
    LostState(TaskId, StateName),
    /// An acknowledged cancel request is not there.
    LostCancel(TaskId),
    /// An acknowledged replay is not there.
    LostReplay(TaskId),
    /// An acknowledged step is not there.
    LostStep(TaskId, String),
    /// Acknowledged events are not there.
    LostEvents(TaskId, u64),
    /// A removed task is there.
    Resurrected(TaskId),
    /// A task that nobody enqueued.
    PhantomTask(TaskId),
    /// A task that nobody finished or cancelled has ended.
    PhantomEnd(TaskId),
    /// A step that nobody saved.
    PhantomStep(TaskId, String),
    /// Events that nobody appended.
    PhantomEvents(TaskId),
    /// The same lease was given out twice.
    DoubleClaim(TaskId, u64),
    /// A task completed more than once.
    DoubleCompletion(TaskId),
    /// A task is stored twice.
    DoubleTask(TaskId),
    /// The tokens of attempts or events do not rise.
    TokenWentBack(TaskId),
    /// The numbers of attempts or events have a gap.
    Gap(TaskId),
    /// An attempt has no end although the task does not run, or the other way round.
    OpenAttempt(TaskId),
    /// The counts of a lane differ from its tasks.
    Counts {
        /// Queue and kind.
        lane: (String, String),
        /// Of which state; `None`: of all that were submitted.
        state: Option<StateName>,
        /// What the lane says.
        counted: u64,
        /// What there is, at least and at most.
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

/// What sort of thing is wrong.
#[derive(PartialEq)]
pub(super) enum Sort {
    Lost,
    Phantom,
    Double,
    Other,
}
