//! Jobs: many tasks created together, from one template and a list of items. Each has its own queue, so everything about queues
//! applies to a job: its totals are counted in the transaction that moves a task, and it can be paused, limited and queried.

use ostler_core::{JobId, Timestamp};

use crate::views::Counts;

pub const MAX_SPEC_BYTES: usize = 256 * 1024;
/// Jobs that one call of `prune` removes.
pub const MAX_JOBS_PRUNED: usize = 100;
/// The queue that holds the counters of removed jobs.
pub const FORMER_JOBS: &str = "former jobs";

/// The queue of a job.
#[must_use]
pub fn queue_of(job: JobId) -> String {
    format!("job {job}")
}

/// The job that owns this queue, if any.
#[must_use]
pub fn job_of(queue: &str) -> Option<JobId> {
    let id = queue.split(' ').next_back()?.parse().ok()?;
    (queue_of(id) == queue).then_some(id)
}

/// A job to create. The caller enqueues its tasks into [`queue_of`] the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// A caller that repeats the call passes the same id.
    pub id: JobId,
    /// The display name; not unique.
    pub name: String,
    /// A digest of the input that the job was created from: a caller with the same input finds the job by it.
    pub fingerprint: String,
    /// What to do with each item, in a form opaque to the store.
    pub spec: String,
    /// The number of items.
    pub items: u64,
}

/// A job, as a store shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    pub job: NewJob,
    pub made_at: Timestamp,
    /// When it was cancelled; `None`: it is not.
    pub cancelled_at: Option<Timestamp>,
    /// Why its queue is paused; `None`: it is not.
    pub paused: Option<String>,
    /// Its tasks, including pruned ones.
    pub counts: Counts,
    /// How many of the finished tasks were pruned since.
    pub pruned: u64,
}

/// The answer to creating a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPut {
    Created,
    /// A job with this id exists, and is unchanged.
    Existing,
}

/// A change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// Enqueue no more of its items. The caller cancels its tasks.
    Cancel,
    /// Undo a cancel.
    Reopen,
    /// It has at least this many items: its creator has added some.
    Grow(u64),
    /// Remove the job with its queue, if it has no tasks; its counters are added to [`FORMER_JOBS`].
    Remove,
}

/// The answer to a change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobAnswer {
    Done,
    /// There is no such job.
    NotFound,
    /// It has tasks, so it was not removed.
    HasTasks,
}

/// Which jobs to list. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub id: Option<JobId>,
    /// Jobs created from this input.
    pub fingerprint: Option<String>,
    /// Jobs with an id below this: the last id of the previous page.
    pub before: Option<JobId>,
}
