//! Jobs: many tasks made together, from one template and a list of items. Each has a queue of its own, so what there is for queues
//! holds for a job too: its totals are counted in the transaction that moves a task, it can be paused, limited and looked at.

use ostler_core::{JobId, Timestamp};

use crate::views::Counts;

/// Bytes of a job's spec.
pub const MAX_SPEC_BYTES: usize = 256 * 1024;
/// Jobs that one call of `prune` removes.
pub const MAX_JOBS_PRUNED: usize = 100;
/// The queue under which the counts of jobs go on that were removed.
pub const FORMER_JOBS: &str = "former jobs";

/// The queue of a job.
#[must_use]
pub fn queue_of(job: JobId) -> String {
    format!("job {job}")
}

/// A job, as it is made. Its tasks are enqueued by whoever made it, into [`queue_of`] it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Its id: whoever repeats a call says the same one.
    pub id: JobId,
    /// What people call it. Several may have the same.
    pub name: String,
    /// What it was made from, as a digest: who comes with the same finds it.
    pub fingerprint: String,
    /// What is done with each item, in words that a store does not read.
    pub spec: String,
    /// How many items it has.
    pub items: u64,
}

/// A job, as a store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// The job.
    pub job: NewJob,
    /// When it was made.
    pub made_at: Timestamp,
    /// Since when it is cancelled; `None`: it is not.
    pub cancelled_at: Option<Timestamp>,
    /// Why its queue is paused; `None`: it is not.
    pub paused: Option<String>,
    /// Its tasks, pruned ones included.
    pub counts: Counts,
    /// How many of those that have ended were pruned since.
    pub pruned: u64,
}

/// What became of a job that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPut {
    /// It is there now.
    Created,
    /// A job with this id is there already, and stays as it is.
    Existing,
}

/// A change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// No more of its items are to be enqueued. Its tasks are cancelled by whoever asks for this.
    Cancel,
    /// It goes on.
    Reopen,
    /// It is removed, with its queue, if none of its tasks is left; what was counted there stays counted under [`FORMER_JOBS`].
    Remove,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAnswer {
    /// It is so.
    Done,
    /// There is no such job.
    NotFound,
    /// It has tasks, so it was not removed.
    HasTasks,
}

/// Which jobs to list. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// This one.
    pub id: Option<JobId>,
    /// Those that were made from this.
    pub fingerprint: Option<String>,
    /// Those with an id below this: where the last page ended.
    pub before: Option<JobId>,
}
