//! The store, driven as a node drives it: through its contract, with a joined session, and every attempt recorded.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Failure, Id, Minter, Outcome, Priority, Seed, SessionId, TaskId, WorkerId};
use ostler_sqlite::{Durability, Options, Sqlite};
use ostler_store::calls::{
    Claim, ClaimAnswer, Enqueued, Fenced, Finished, Kinds, NewSession, NewTask, QueueChange, Ran, Report,
    Start,
};
use ostler_store::views::Filter;
use ostler_store::{Clock, Lease, MAX_BATCH, MAX_CLAIM, Store, SystemClock, Wakeups};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Error;
use crate::ceiling::{Rows, batches};
use crate::load::{KIND, Keys, OTHER_KIND, PAYLOAD, QUEUE, Shape, Tally};

/// Longer than any run: there are no heartbeats here.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Batches that a producer is ahead of its consumer.
const AHEAD: usize = 8;
/// Finished tasks per commit while a backlog is created.
const FINISH_BATCH: usize = 1_000;
/// The key with more tasks than it may run.
const SATURATED_KEY: &str = "saturated";
/// Keys that are rate limited until tomorrow.
const LIMITED_KEYS: usize = 1_000;
const HIGHEST: i64 = 100;
const LOWEST: i64 = -100;

/// An open store with a joined session.
pub(crate) struct Ours {
    store: Arc<dyn Store>,
    session: SessionId,
    worker: WorkerId,
    queue: &'static str,
    keys: Keys,
    ids: Mutex<Ids>,
}

struct Ids {
    minter: Minter,
    seed: Seed,
}

impl Ids {
    fn next(&mut self) -> Id {
        let chance = u128::from(self.seed.next());
        self.minter.mint(SystemClock.now(), chance)
    }
}

impl Ours {
    /// Opens the store, created if missing, and joins.
    pub(crate) async fn open(path: &Path, durability: Durability, keys: Keys) -> Result<Arc<Self>, Error> {
        Self::open_queue(path, durability, keys, QUEUE).await
    }

    /// The same, for another queue.
    pub(crate) async fn open_queue(
        path: &Path,
        durability: Durability,
        keys: Keys,
        queue: &'static str,
    ) -> Result<Arc<Self>, Error> {
        let store = Sqlite::open(path, Arc::new(SystemClock), Options { durability, ..Options::default() })?;
        Self::join(Arc::new(store), keys, queue).await
    }

    /// Joins an open store.
    pub(crate) async fn join(
        store: Arc<dyn Store>,
        keys: Keys,
        queue: &'static str,
    ) -> Result<Arc<Self>, Error> {
        let chance = SystemClock.uptime().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32);
        let mut ids = Ids { minter: Minter::new(), seed: Seed::new(chance) };
        let (session, worker) = (SessionId(ids.next()), WorkerId(ids.next()));
        let node = NewSession {
            id: session,
            name: "bench".into(),
            host: "stable-1".to_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            ttl: TTL,
            settings: String::new(),
        };
        match store.join(node).await? {
            Fenced::Recorded => {}
            Fenced::Lost => return Err("the session was not taken".into()),
        }
        if keys == Keys::Distinct {
            store.configure(queue, vec![QueueChange::KeyConcurrency(Some(1))]).await?;
        }
        Ok(Arc::new(Self { store, session, worker, queue, keys, ids: Mutex::new(ids) }))
    }

    /// Hints that tasks became ready.
    pub(crate) fn wakeups(&self) -> Wakeups {
        self.store.wakeups()
    }

    /// The store's count of completed tasks.
    pub(crate) async fn completed(&self) -> Result<u64, Error> {
        Ok(self.store.survey().await?.lanes.iter().map(|lane| lane.counts.completed).sum())
    }

    /// The store's count of queued tasks.
    pub(crate) async fn queued(&self) -> Result<u64, Error> {
        Ok(self.store.survey().await?.lanes.iter().map(|lane| lane.counts.queued).sum())
    }

    // ---- measured work ----

    /// Works for about this long, and checks that the store has completed the counted tasks.
    pub(crate) async fn run(self: &Arc<Self>, shape: Shape, about: Duration) -> Result<Tally, Error> {
        let before = self.completed().await?;
        let begun = Instant::now();
        let until = begun + about;
        let done = match shape {
            Shape::Batch(size) => self.batches(size, until).await?,
            Shape::Callers(count) => self.callers(count, until).await?,
            Shape::Pipelined(size) => self.pipelined(size, until).await?,
        };
        let took = begun.elapsed();
        let completed = self.completed().await? - before;
        if completed != done as u64 {
            return Err(format!("the store completed {completed} tasks, not {done}").into());
        }
        Ok(Tally { done, took })
    }

    async fn batches(&self, size: usize, until: Instant) -> Result<usize, Error> {
        let mut done = 0;
        while done == 0 || Instant::now() < until {
            done += self.cycle(size).await?;
        }
        Ok(done)
    }

    async fn callers(self: &Arc<Self>, count: usize, until: Instant) -> Result<usize, Error> {
        let mut callers = JoinSet::new();
        for _ in 0..count {
            let ours = Arc::clone(self);
            callers.spawn(async move { ours.batches(1, until).await });
        }
        let mut done = 0;
        while let Some(caller) = callers.join_next().await {
            done += caller??;
        }
        Ok(done)
    }

    async fn pipelined(self: &Arc<Self>, size: usize, until: Instant) -> Result<usize, Error> {
        let (enqueued, mut batches) = mpsc::channel(AHEAD);
        let ours = Arc::clone(self);
        let producer = tokio::spawn(async move {
            loop {
                ours.enqueue(ours.tasks(size)).await?;
                if enqueued.send(()).await.is_err() || Instant::now() >= until {
                    return Ok::<_, Error>(());
                }
            }
        });
        let (mut done, mut held) = (0, Vec::new());
        while batches.recv().await.is_some() {
            let (finished, claimed) = tokio::join!(self.finish(held), self.claim_all(size));
            done += finished?;
            held = claimed?;
        }
        done += self.finish(held).await?;
        producer.await??;
        Ok(done)
    }

    /// Enqueue, claim, finish.
    pub(crate) async fn cycle(&self, size: usize) -> Result<usize, Error> {
        self.enqueue(self.tasks(size)).await?;
        let held = self.claim_all(size).await?;
        self.finish(held).await
    }

    /// Enqueues one durable task.
    pub(crate) async fn enqueue_one(&self) -> Result<(), Error> {
        self.enqueue(self.tasks(1)).await
    }

    /// Enqueues one durable batch.
    pub(crate) async fn enqueue_batch(&self, size: usize) -> Result<(), Error> {
        self.enqueue(self.tasks(size)).await
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<(), Error> {
        for answer in self.store.enqueue(tasks).await? {
            match answer {
                Enqueued::Created(_) => {}
                Enqueued::Existing(_)
                | Enqueued::Replaced(_)
                | Enqueued::Rejected { .. }
                | Enqueued::NoSuchTask(_)
                | Enqueued::QueueFull { .. } => {
                    return Err(format!("a task was not taken in: {answer:?}").into());
                }
            }
        }
        Ok(())
    }

    async fn claim_all(&self, size: usize) -> Result<Vec<Lease>, Error> {
        let held = self.claim(size).await?;
        if held.len() == size { Ok(held) } else { Err(format!("claimed {} of {size}", held.len()).into()) }
    }

    /// Claims at most `limit` tasks.
    pub(crate) async fn claim(&self, limit: usize) -> Result<Vec<Lease>, Error> {
        let kinds = Kinds::Only(vec![KIND.into()]);
        let claim = Claim { session: self.session, queue: self.queue.into(), kinds, limit };
        match self.store.claim(claim).await? {
            ClaimAnswer::Tasks { tasks, .. } => Ok(tasks.into_iter().map(|task| task.lease).collect()),
            ClaimAnswer::SessionEnded => Err("the session has ended".into()),
        }
    }

    /// Enqueues tasks that fail for good.
    pub(crate) async fn fail(&self, count: usize) -> Result<(), Error> {
        self.put(count, |_| {}).await?;
        let ran = Some(Ran { worker: self.worker, took: Duration::from_millis(1) });
        let outcome = Outcome::Failed(Failure::new(ErrorClass::Permanent, "no such thing"));
        let report = |lease| Report { lease, ran, outcome: outcome.clone(), output: None, reading: None };
        self.store.finish(self.claim_all(count).await?.into_iter().map(report).collect()).await?;
        Ok(())
    }

    /// Enqueues tasks that run, and never finish.
    pub(crate) async fn start(&self, count: usize) -> Result<(), Error> {
        self.put(count, |_| {}).await?;
        let start = |lease: &Lease| Start { lease: lease.as_ref(), worker: self.worker };
        self.store.start(self.claim_all(count).await?.iter().map(start).collect()).await?;
        Ok(())
    }

    /// The number of tasks on the first page of a list.
    pub(crate) async fn list(&self, filter: Filter, page: usize) -> Result<usize, Error> {
        Ok(self.store.list(filter, None, page).await?.tasks.len())
    }

    /// Finishes all with success; returns their number.
    pub(crate) async fn finish(&self, leases: Vec<Lease>) -> Result<usize, Error> {
        let ran = Some(Ran { worker: self.worker, took: Duration::from_millis(1) });
        let report = |lease| Report {
            lease,
            ran,
            outcome: Outcome::Success,
            output: Some("null".into()),
            reading: None,
        };
        let finished = self.store.finish(leases.into_iter().map(report).collect()).await?;
        match finished.iter().find(|answer| matches!(answer, Finished::LeaseLost)) {
            None => Ok(finished.len()),
            Some(_) => Err("a lease was lost".into()),
        }
    }

    fn tasks(&self, count: usize) -> Vec<NewTask> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let task = |place| {
            let mut task = NewTask::new(TaskId(ids.next()), self.queue, KIND, PAYLOAD);
            task.limit_key = match self.keys {
                Keys::Without => None,
                Keys::Distinct => Some(format!("tenant-{place}")),
            };
            task
        };
        (0..count).map(task).collect()
    }

    // ---- backlogs ----

    /// Runs tasks outside the measurement.
    pub(crate) async fn warm_up(&self, tasks: usize) -> Result<(), Error> {
        self.fill(Rows::Finished, tasks).await
    }

    /// The same, with this payload.
    pub(crate) async fn warm_up_with(&self, tasks: usize, payload: &str) -> Result<(), Error> {
        for size in batches(tasks, FINISH_BATCH) {
            self.put(size, |task| task.payload = payload.to_owned()).await?;
            self.finish(self.claim_all(size).await?).await?;
        }
        Ok(())
    }

    /// Creates backlog rows. Waiting ones are due tomorrow, with the best rank.
    pub(crate) async fn fill(&self, rows: Rows, count: usize) -> Result<(), Error> {
        let tomorrow = SystemClock.now().after(Duration::from_secs(24 * 60 * 60));
        let change = |task: &mut NewTask| match rows {
            Rows::Finished => {}
            Rows::Elsewhere => task.kind = OTHER_KIND.into(),
            Rows::Behind => task.priority = Priority::new(LOWEST).unwrap_or_default(),
            Rows::Waiting => {
                task.priority = Priority::new(HIGHEST).unwrap_or_default();
                task.run_at = Some(tomorrow);
            }
        };
        match rows {
            Rows::Finished => {
                for size in batches(count, FINISH_BATCH) {
                    self.cycle(size).await?;
                }
                Ok(())
            }
            Rows::Elsewhere | Rows::Behind | Rows::Waiting => self.put(count, change).await,
        }
    }

    /// Saturates a key: it may run one task at once, has one running, and `count` behind it.
    pub(crate) async fn saturate(&self, count: usize) -> Result<(), Error> {
        self.store.configure(self.queue, vec![QueueChange::KeyConcurrency(Some(1))]).await?;
        let change = |task: &mut NewTask| task.limit_key = Some(SATURATED_KEY.into());
        self.put(1, change).await?;
        // Held forever: sessions do not expire here.
        self.claim_all(1).await?;
        self.put(count, change).await?;
        match self.claim(MAX_CLAIM).await?.len() {
            0 => Ok(()),
            more => Err(format!("{more} tasks of a saturated key were claimed").into()),
        }
    }

    /// Rate limits a thousand keys until tomorrow, with `count` tasks in all. Half of those are ready at that time, and are
    /// parked by the claims that meet them; the others arrive later.
    pub(crate) async fn limit(&self, count: usize) -> Result<(), Error> {
        let number = AtomicUsize::new(0);
        let change = |task: &mut NewTask| {
            let key = number.fetch_add(1, Ordering::Relaxed) % LIMITED_KEYS;
            task.limit_key = Some(format!("limited-{key}"));
        };
        self.put(LIMITED_KEYS.max(count / 2), change).await?;
        let leases = self.claim_all(LIMITED_KEYS).await?;
        let tomorrow = Some(Duration::from_secs(24 * 60 * 60));
        let failure = Failure::new(ErrorClass::RateLimited, "too many requests");
        let outcome = Outcome::Failed(Failure { retry_after: tomorrow, ..failure });
        let report =
            |lease| Report { lease, ran: None, outcome: outcome.clone(), output: None, reading: None };
        self.store.finish(leases.into_iter().map(report).collect()).await?;
        self.put(count / 2, change).await?;
        // Each claim parks some of the ready tasks, until there are none.
        for _ in 0..=count.div_ceil(MAX_CLAIM) {
            match self.claim(MAX_CLAIM).await?.len() {
                0 => {}
                more => return Err(format!("{more} tasks of keys that wait were claimed").into()),
            }
        }
        Ok(())
    }

    async fn put(&self, count: usize, change: impl Fn(&mut NewTask)) -> Result<(), Error> {
        for size in batches(count, MAX_BATCH) {
            let mut tasks = self.tasks(size);
            tasks.iter_mut().for_each(&change);
            self.enqueue(tasks).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ostler_store::views::{Counts, Filter};

    use super::*;

    async fn counts(ours: &Ours, kind: &str) -> Counts {
        let survey = ours.store.survey().await.unwrap();
        survey.lanes.into_iter().find(|lane| lane.kind == kind).unwrap().counts
    }

    #[tokio::test]
    async fn all_that_is_counted_is_completed_in_every_shape_and_has_its_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Ours::open(&dir.path().join("a.db"), Durability::Full, Keys::Without).await.unwrap();
        let mut done = 0;
        for shape in [Shape::Batch(1), Shape::Batch(3), Shape::Callers(4), Shape::Pipelined(5)] {
            done += ours.run(shape, Duration::from_millis(5)).await.unwrap().done;
        }
        assert!(done > 0);
        assert_eq!(counts(&ours, KIND).await, Counts { completed: done as u64, ..Counts::default() });
        let page = ours.store.list(Filter::default(), None, 1).await.unwrap();
        assert_eq!(page.tasks[0].runs, 1);
    }

    #[tokio::test]
    async fn what_is_in_the_way_is_not_claimed_before_what_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Ours::open(&dir.path().join("a.db"), Durability::Relaxed, Keys::Without).await.unwrap();
        for rows in [Rows::Finished, Rows::Elsewhere, Rows::Behind, Rows::Waiting] {
            ours.fill(rows, 10).await.unwrap();
        }
        assert_eq!(ours.cycle(7).await.unwrap(), 7);
        assert_eq!(counts(&ours, KIND).await, Counts { queued: 20, completed: 17, ..Counts::default() });
        assert_eq!(counts(&ours, OTHER_KIND).await, Counts { queued: 10, ..Counts::default() });
    }

    #[tokio::test]
    async fn keys_that_wait_do_not_hold_up_others() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Ours::open(&dir.path().join("a.db"), Durability::Relaxed, Keys::Without).await.unwrap();
        ours.limit(3 * LIMITED_KEYS).await.unwrap();
        assert_eq!(ours.cycle(7).await.unwrap(), 7);
        let queued = 3 * LIMITED_KEYS as u64;
        assert_eq!(counts(&ours, KIND).await, Counts { queued, completed: 7, ..Counts::default() });
    }

    #[tokio::test]
    async fn a_saturated_key_does_not_hold_up_others() {
        let dir = tempfile::tempdir().unwrap();
        let ours = Ours::open(&dir.path().join("a.db"), Durability::Relaxed, Keys::Without).await.unwrap();
        ours.saturate(10).await.unwrap();
        assert_eq!(ours.cycle(7).await.unwrap(), 7);
        assert_eq!(
            counts(&ours, KIND).await,
            Counts { queued: 10, claimed: 1, completed: 7, ..Counts::default() }
        );
    }
}
