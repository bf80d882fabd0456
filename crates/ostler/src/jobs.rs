//! Jobs: tasks of one kind that are made together, in a queue of their own, with their totals.

use std::time::Duration;

use ostler_core::JobId;
use ostler_ops::jobs::{existing, find, manage};
use ostler_store::jobs::{JobFilter, JobRecord, NewJob, queue_of};
use ostler_store::unique::Unique;
use ostler_store::{Bounds, MAX_BATCH, MAX_PAGE};
use serde::Serialize;

use crate::client::{Client, EndWatch};
use crate::error::{OpenError, SubmitError, WaitError};
use crate::pool::Pool;
use crate::submit::{Submission, taken_in};

/// How long the attempts of a job that is over may take to end, before its pool is removed.
const LAST_ATTEMPTS: Duration = Duration::from_secs(5);

/// A job: tasks that were made together. Clones are the same job.
#[derive(Clone)]
pub struct Job {
    id: JobId,
    client: Client,
}

impl Client {
    /// Creates a job: one task of this kind for each payload, in a queue of the job's own. [`Pool::run_job`] runs it.
    ///
    /// # Errors
    /// As for [`submit_many`](Self::submit_many). Then the job may exist with a part of its tasks.
    pub async fn create_job<P: Serialize + Sync>(
        &self,
        name: &str,
        kind: &str,
        payloads: &[P],
    ) -> Result<Job, SubmitError> {
        self.create_job_as(JobId((self.shared.ids)()), name, kind, payloads).await
    }

    /// Creates a job under an id of the caller's. Repeated with the same id, it adds the tasks that are not there yet, and
    /// creates none twice: so can a program that was killed meanwhile.
    ///
    /// # Errors
    /// As for [`create_job`](Self::create_job).
    pub async fn create_job_as<P: Serialize + Sync>(
        &self,
        id: JobId,
        name: &str,
        kind: &str,
        payloads: &[P],
    ) -> Result<Job, SubmitError> {
        let client = self.on(queue_of(id));
        let mut tasks = Vec::with_capacity(payloads.len());
        for (place, payload) in payloads.iter().enumerate() {
            let mut task = client.new_task(kind, payload, Submission::default())?;
            task.unique = Some(Unique::new(place.to_string()));
            tasks.push(task);
        }
        for batch in tasks.chunks(MAX_BATCH) {
            Bounds::default().check_tasks(batch)?;
        }
        let items = payloads.len() as u64;
        let (name, fingerprint, spec) = (name.to_owned(), id.to_string(), "{}".to_owned());
        self.store().put_job(NewJob { id, name, fingerprint, spec, items }).await?;
        for batch in tasks.chunks(MAX_BATCH) {
            for answer in client.enqueue(batch.to_vec()).await? {
                taken_in(answer)?;
            }
        }
        Ok(Job { id, client })
    }

    /// Finds the job with this id, or the newest with this name.
    ///
    /// # Errors
    /// When there is none, or the store cannot be read.
    pub async fn job(&self, wanted: &str) -> Result<Job, WaitError> {
        let id = find(self.store(), wanted).await?.job.id;
        Ok(Job { id, client: self.on(queue_of(id)) })
    }

    /// Returns the newest jobs of the store, with their totals: at most `limit`, and never more than a thousand.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn jobs(&self, limit: usize) -> Result<Vec<JobRecord>, WaitError> {
        Ok(self.store().jobs(JobFilter::default(), limit.min(MAX_PAGE)).await?)
    }
}

impl Job {
    /// The id of the job.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Returns a client of the job's queue, to list its tasks, to pause or limit it.
    #[must_use]
    pub const fn tasks(&self) -> &Client {
        &self.client
    }

    /// Returns the job with its totals.
    ///
    /// # Errors
    /// When it was removed, or the store cannot be read.
    pub async fn record(&self) -> Result<JobRecord, WaitError> {
        Ok(existing(self.client.store(), self.id).await?)
    }

    /// Waits until no task of the job waits or runs, in any process, and returns its totals.
    ///
    /// # Errors
    /// When it was removed, or the store cannot be read.
    pub async fn wait(&self) -> Result<JobRecord, WaitError> {
        let mut ends = EndWatch::new(&self.client);
        loop {
            ends.arm();
            let record = self.record().await?;
            if record.counts.open() == 0 {
                return Ok(record);
            }
            ends.next().await;
        }
    }

    /// Cancels the tasks of the job that have not finished. Returns their number.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn cancel(&self) -> Result<usize, WaitError> {
        Ok(manage::cancel_tasks(self.client.store(), self.id).await?)
    }

    /// Requeues the failed tasks of the job. Returns their number. [`Pool::run_job`] runs them.
    ///
    /// # Errors
    /// When there is no such job any more, or the store cannot be written.
    pub async fn retry_failed(&self) -> Result<u64, WaitError> {
        Ok(manage::retry_failed(self.client.store(), &self.id.to_string()).await?.tasks)
    }

    /// Removes the job with its tasks. A job that a process runs is refused.
    ///
    /// # Errors
    /// When a process runs it, or some of its tasks cannot be removed.
    pub async fn remove(&self) -> Result<(), WaitError> {
        manage::remove(self.client.store(), &self.id.to_string()).await?;
        Ok(())
    }
}

impl Pool {
    /// Runs a job: this pool serves the job's queue too, with the handlers, workers and retry settings of its first queue, until
    /// no task of the job waits or runs. Other programs may run the same job beside it. A program that was killed finds its job
    /// again with [`Client::job`].
    ///
    /// # Errors
    /// When the first queue has handlers of [`handle_local`](crate::Builder::handle_local), whose threads serve one queue only, this
    /// pool runs the job already, or is draining; or when the store returns an error.
    pub async fn run_job(&self, job: &Job) -> Result<(), OpenError> {
        self.serve_also(&queue_of(job.id)).await?;
        tokio::spawn(leave_when_done(self.clone(), job.clone()));
        Ok(())
    }
}

/// Removes the pool of a job that is over. While the store is unavailable, it is asked again.
async fn leave_when_done(pool: Pool, job: Job) {
    let mut ends = EndWatch::new(&pool);
    while pool.takes_work() {
        ends.arm();
        let is_over = match job.record().await {
            Ok(record) => record.counts.open() == 0,
            Err(WaitError::Store(error)) => !error.is_transient(),
            Err(WaitError::NotFound(_) | WaitError::TooMany(_)) => true,
        };
        if is_over {
            return pool.leave(&queue_of(job.id), LAST_ATTEMPTS).await;
        }
        ends.next().await;
    }
}
