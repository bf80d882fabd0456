//! Jobs: tasks of one kind that are made together, in a queue of their own, with their totals.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{JobId, OnFailed};
use ostler_ops::jobs::pilot::{self, PilotResult, PilotState};
use ostler_ops::jobs::{JobSpec, JobTotals, ServedBy, existing, find, manage};
use ostler_runtime::{EndListener, NodeState};
use ostler_store::calls::{NewTask, StepsOnReplay};
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
        let mut plan = NewItems::default();
        plan.add(self, kind, payloads)?;
        self.put_new_job(id, name, plan, None).await
    }

    /// Stores a job and its tasks, of which the first `pilot` may run before an approval.
    pub(crate) async fn put_new_job(
        &self,
        id: JobId,
        name: &str,
        items: NewItems,
        pilot: Option<u64>,
    ) -> Result<Job, SubmitError> {
        let (client, mut tasks) = (self.on(queue_of(id)), items.0);
        for (place, task) in tasks.iter_mut().enumerate() {
            task.queue = queue_of(id);
            task.unique = Some(Unique::new(place.to_string()));
        }
        for batch in tasks.chunks(MAX_BATCH) {
            Bounds::default().check_tasks(batch)?;
        }
        let items = tasks.len() as u64;
        let pilot = pilot.filter(|pilot| *pilot < items);
        let spec = JobSpec { served_by: ServedBy::Program, pilot, ..JobSpec::default() };
        let spec = serde_json::to_string(&spec).expect("a spec is JSON");
        let (name, fingerprint) = (name.to_owned(), id.to_string());
        self.store().put_job(NewJob { id, name, fingerprint, spec, items }).await?;
        let job = Job { id, client };
        let record = existing(self.store(), id).await.map_err(of_job)?;
        let runs_first = pilot::to_enqueue(self.store(), &record).await.map_err(of_job)?;
        if let Some(first) = runs_first.and_then(|first| usize::try_from(first).ok()) {
            for task in tasks.iter_mut().skip(first) {
                (task.after, task.on_failed) = (vec![pilot::approval_of(id)], OnFailed::Run);
            }
        }
        for batch in tasks.chunks(MAX_BATCH) {
            for answer in job.client.enqueue(batch.to_vec()).await? {
                taken_in(answer)?;
            }
        }
        Ok(job)
    }

    /// Finds the job with this id, or the newest with this name.
    ///
    /// # Errors
    /// When there is none, or the store cannot be read.
    pub async fn find_job(&self, wanted: &str) -> Result<Job, WaitError> {
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

    /// Waits until no task of the job waits or runs, in any process, and returns its totals. Tasks that wait for the approval of a pilot
    /// count as waiting.
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

    /// Waits until the pilot of the job has ended, and returns its result: what it cost and took, and what that means for the other
    /// items. At once if the job has no pilot, or it was approved.
    ///
    /// # Errors
    /// When the job was removed, or the store cannot be read.
    pub async fn wait_for_pilot(&self) -> Result<PilotResult, WaitError> {
        let mut ends = EndWatch::new(&self.client);
        loop {
            ends.arm();
            if pilot::state(self.client.store(), &self.record().await?).await? != PilotState::Running {
                return Ok(pilot::result(self.client.store(), self.id).await?);
            }
            ends.next().await;
        }
    }

    /// Lets the items run that wait for the approval of the pilot. Returns their number.
    ///
    /// # Errors
    /// When the job has no pilot or was cancelled, or the store cannot be written.
    pub async fn approve(&self) -> Result<u64, WaitError> {
        Ok(pilot::approve(self.client.store(), &self.id.to_string()).await?.tasks)
    }

    /// Cancels the items that wait for the approval of the pilot. Returns their number.
    ///
    /// # Errors
    /// When no items wait for an approval, or the store cannot be written.
    pub async fn reject(&self) -> Result<u64, WaitError> {
        Ok(pilot::reject(self.client.store(), &self.id.to_string()).await?.tasks)
    }

    /// Sums up the attempts of the job: what they cost, and how long they took.
    ///
    /// # Errors
    /// When the job was removed, or the store cannot be read.
    pub async fn totals(&self) -> Result<JobTotals, WaitError> {
        Ok(JobTotals::of(self.client.store(), &self.record().await?).await?)
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
        let (store, name) = (self.client.store(), self.id.to_string());
        Ok(manage::retry_failed(store, &name, StepsOnReplay::Keep).await?.tasks)
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
    /// again with [`Client::find_job`].
    ///
    /// # Errors
    /// When the first queue has handlers of [`handle_local`](crate::Builder::handle_local), whose threads serve one queue only, this
    /// pool runs the job already, or is draining; or when the store returns an error.
    pub async fn run_job(&self, job: &Job) -> Result<(), OpenError> {
        self.run_job_as(job, JobRun::default()).await
    }

    pub(crate) async fn run_job_as(&self, job: &Job, run: JobRun) -> Result<(), OpenError> {
        let JobRun { workers, listeners, done } = run;
        self.serve_also(&queue_of(job.id), workers, listeners).await?;
        tokio::spawn(leave_when_done(self.clone(), job.clone(), done));
        Ok(())
    }
}

/// How a pool runs a job, if not as its first queue.
#[derive(Default)]
pub(crate) struct JobRun {
    pub(crate) workers: Option<usize>,
    pub(crate) listeners: Vec<Arc<dyn EndListener>>,
    pub(crate) done: Option<OnJobDone>,
}

/// Called when a job is over.
pub(crate) type OnJobDone = Box<dyn FnOnce(JobRecord) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// The tasks of a job that is not stored yet.
#[derive(Default)]
pub(crate) struct NewItems(Vec<NewTask>);

impl NewItems {
    pub(crate) fn add<P: Serialize>(
        &mut self,
        client: &Client,
        kind: &str,
        payloads: &[P],
    ) -> Result<(), SubmitError> {
        for payload in payloads {
            self.0.push(client.new_task(kind, payload, Submission::default())?);
        }
        Ok(())
    }
}

/// An error of a use case about a job that exists.
fn of_job(error: ostler_ops::OpsError) -> SubmitError {
    match WaitError::from(error) {
        WaitError::Store(error) => SubmitError::Store(error),
        WaitError::NotFound(task) => SubmitError::NoSuchTask(task),
        WaitError::TooMany(limit) => SubmitError::QueueFull { limit: limit as u64 },
    }
}

/// Removes the pool of a job that is over. While the store is unavailable, it is asked again.
async fn leave_when_done(pool: Pool, job: Job, done: Option<OnJobDone>) {
    let mut ends = EndWatch::new(&pool);
    loop {
        ends.arm();
        match pool.state() {
            NodeState::Running | NodeState::Fenced => {}
            // The drain may be taken back.
            NodeState::Draining => {
                pool.drain_over().await;
                continue;
            }
            NodeState::Ended => return,
        }
        let (is_over, record) = match job.record().await {
            Ok(record) => (record.counts.open() == 0, Some(record)),
            Err(WaitError::Store(error)) => (!error.is_transient(), None),
            Err(WaitError::NotFound(_) | WaitError::TooMany(_)) => (true, None),
        };
        if is_over {
            pool.leave(&queue_of(job.id), LAST_ATTEMPTS).await;
            if let Some((done, record)) = done.zip(record) {
                done(record).await;
            }
            return;
        }
        ends.next().await;
    }
}
