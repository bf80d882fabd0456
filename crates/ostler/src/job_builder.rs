//! New jobs of a pool: their items, a pilot, and callbacks for items and for the job.

use std::future::Future;

use ostler_core::{Budget, Cost, EndKind, JobId};
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobRecord, queue_of};
use serde::Serialize;

use crate::callbacks::{AttemptEnded, Callbacks};
use crate::error::{OpenError, SubmitError};
use crate::jobs::{Job, JobRun, NewItems, OnJobDone};
use crate::pool::Pool;

/// A job that is not stored yet; see [`Pool::job`].
#[must_use = "a job runs only after `start`"]
pub struct JobBuilder<'p> {
    pool: &'p Pool,
    id: JobId,
    name: String,
    items: Result<NewItems, SubmitError>,
    pilot: Option<u64>,
    budget: Option<Budget>,
    workers: Option<usize>,
    callbacks: Callbacks,
    done: Option<OnJobDone>,
}

/// Why a job was not started.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Its tasks were not submitted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The pool cannot run it.
    #[error(transparent)]
    Run(#[from] OpenError),
}

impl Pool {
    /// Begins a job: tasks that are made together, and that the handlers or workers of this pool's first queue run.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = ostler::open("jobs.db")?
    ///     .handle("review", |file: String, _ctx| async move { Ok(file) })
    ///     .start()
    ///     .await?;
    /// let job = pool
    ///     .job("reviews")
    ///     .items("review", &["a.rs", "b.rs", "c.rs"])
    ///     .pilot(1)
    ///     .on_item(|ended| async move { println!("{:?}", ended.task.output) })
    ///     .start()
    ///     .await?;
    /// let pilot = job.wait_for_pilot().await?;
    /// println!("the others will cost {:?}", pilot.cost_of_rest());
    /// job.approve().await?;
    /// assert_eq!(job.wait().await?.counts.completed, 3);
    /// # Ok(()) }
    /// ```
    pub fn job(&self, name: impl Into<String>) -> JobBuilder<'_> {
        JobBuilder {
            pool: self,
            id: JobId((self.shared.ids)()),
            name: name.into(),
            items: Ok(NewItems::default()),
            pilot: None,
            budget: None,
            workers: None,
            callbacks: Callbacks::default(),
            done: None,
        }
    }
}

impl JobBuilder<'_> {
    /// Sets the id of the job. Repeated with the same id and items, [`start`](Self::start) goes on with the job of a program that was
    /// killed, and creates no task twice.
    pub const fn id(mut self, id: JobId) -> Self {
        self.id = id;
        self
    }

    /// Adds a task of this kind for each payload.
    pub fn items<P: Serialize>(mut self, kind: &str, payloads: &[P]) -> Self {
        self.items = self.items.and_then(|mut items| {
            items.add(self.pool, kind, payloads)?;
            Ok(items)
        });
        self
    }

    /// Lets the first `items` run, and the others only after [`Job::approve`]: [`Job::wait_for_pilot`] has what the first ones cost.
    pub const fn pilot(mut self, items: u64) -> Self {
        self.pilot = Some(items);
        self
    }

    /// Sets what all items together may spend on models. When that is reached, the job is paused; a larger amount goes on, by
    /// `ostler job resume --max-cost` or by starting the job again under its id.
    pub fn max_cost(mut self, total: Cost) -> Self {
        self.budget = Some(Budget { total: Some(total), ..Budget::default() });
        self
    }

    /// Sets how many items run at once in this process. Default: as many as workers of the pool's first queue.
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets a callback for items that have completed or failed for good. It takes the place of the pool's callbacks for these, and is
    /// called as they are: after the commit, and at least once.
    pub fn on_item<F, R>(mut self, callback: F) -> Self
    where
        F: Fn(AttemptEnded) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.set(EndKind::Completed, callback.clone());
        self.callbacks.set(EndKind::Failed, callback);
        self
    }

    /// Sets a callback for the end of the job, with its totals: when no item waits or runs. It is called once, if this process is
    /// still there.
    pub fn on_done<F, R>(mut self, callback: F) -> Self
    where
        F: FnOnce(JobRecord) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.done = Some(Box::new(move |record| Box::pin(callback(record))));
        self
    }

    /// Stores the job with its tasks, and runs it.
    ///
    /// # Errors
    /// As for [`create_job`](crate::Client::create_job) and [`run_job`](Pool::run_job), and when a budget is set for work whose cost is not
    /// known.
    pub async fn start(self) -> Result<Job, JobError> {
        let Self { pool, id, name, items, pilot, budget, workers, callbacks, done } = self;
        if budget.is_some() {
            pool.check_priced()?;
        }
        let job = pool.put_new_job(id, &name, items?, pilot).await?;
        if let Some(budget) = budget {
            let change = vec![QueueChange::Budget(Some(budget))];
            pool.store().configure(&queue_of(id), change).await.map_err(SubmitError::from)?;
        }
        let listeners = callbacks.into_listeners(&pool.shared.store);
        pool.run_job_as(&job, JobRun { workers, listeners, done }).await?;
        Ok(job)
    }
}
