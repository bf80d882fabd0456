//! A node's right to run one attempt of one task.
//!
//! A [`Lease`] is owned and cannot be copied: whoever reports the end of an attempt gives it away. What it
//! proves is its token, a number that rises with every claim of the task. Every write that speaks for an
//! attempt names the token, and a store refuses it when the task has moved on.

use ostler_core::TaskId;

/// The right to run one attempt. Finishing or releasing the task consumes it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Lease(LeaseRef);

/// What a lease says, for writes in the middle of an attempt. Copying it copies no right: the store decides
/// by the token whether the right still stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    /// The task.
    pub task: TaskId,
    /// How often the task had been claimed, this claim included.
    pub token: u64,
    /// Where the store finds the task without looking its id up. Means nothing to anybody else.
    pub row: i64,
}

impl Lease {
    /// For stores, when a claim is granted, and for whoever offers a kept result again.
    #[must_use]
    pub const fn granted(lease: LeaseRef) -> Self {
        Self(lease)
    }

    /// What it says.
    #[must_use]
    pub const fn as_ref(&self) -> LeaseRef {
        self.0
    }

    /// The task.
    #[must_use]
    pub const fn task(&self) -> TaskId {
        self.0.task
    }
}
