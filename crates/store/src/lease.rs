//! Leases: a node's right to run one attempt of one task.
//!
//! A [`Lease`] is owned and cannot be copied: reporting the outcome of an attempt consumes it. It is proven
//! by its fencing token, a number that rises with every claim of the task. Every write on behalf of an
//! attempt carries the token, and a store refuses it when the task has moved on.

use ostler_core::TaskId;

/// The right to run one attempt. Finishing or releasing the task consumes it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Lease(LeaseRef);

/// The identity of a lease, for writes during an attempt. Copying it copies no right: the store checks
/// the token to decide whether the lease still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRef {
    pub task: TaskId,
    /// The fencing token: how often the task has been claimed, including this claim.
    pub token: u64,
    /// The task's row, so that the store need not look up its id. Opaque to all others.
    pub row: i64,
}

impl Lease {
    /// For stores that grant a claim, and for callers that retry a stored report.
    #[must_use]
    pub const fn granted(lease: LeaseRef) -> Self {
        Self(lease)
    }

    /// The identity of the lease.
    #[must_use]
    pub const fn as_ref(&self) -> LeaseRef {
        self.0
    }

    #[must_use]
    pub const fn task(&self) -> TaskId {
        self.0.task
    }
}
