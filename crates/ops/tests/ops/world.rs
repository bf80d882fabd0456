//! A store in memory with a manual clock, and what nodes do to it.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{
    ErrorClass, EventBody, Failure, Outcome, SessionId, StateName, TaskId, Worker, WorkerState,
};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Kinds, NewSession, NewTask, Ran, Report,
};
use ostler_store::views::TaskRef;
use ostler_store::{Clock as _, Store};
use ostler_testkit::{Ids, ManualClock, Memory};

pub(crate) const QUEUE: &str = "mail";
pub(crate) const TTL: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) store: Memory,
    pub(crate) clock: ManualClock,
    pub(crate) ids: Ids,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        Self { store: Memory::new(Arc::new(clock.clone())), clock, ids: Ids::new(1) }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &self.store
    }

    pub(crate) async fn put(&self, task: NewTask) -> TaskId {
        let id = task.id;
        assert_eq!(self.store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]));
        id
    }

    pub(crate) async fn enqueue(&self, count: usize) -> Vec<TaskId> {
        let tasks = self.ids.new_tasks(count, QUEUE, "send");
        let ids = tasks.iter().map(|task| task.id).collect();
        for some in tasks.chunks(ostler_store::MAX_BATCH) {
            self.store.enqueue(some.to_vec()).await.expect("they are accepted");
        }
        ids
    }

    pub(crate) async fn node(&self, name: &str, settings: &str) -> SessionId {
        let node = NewSession { settings: settings.to_owned(), ..self.ids.new_session(name, TTL) };
        let session = node.id;
        assert_eq!(self.store.join(node).await, Ok(Fenced::Recorded));
        session
    }

    /// Reports one worker of a pool for each state.
    pub(crate) async fn workers(
        &self,
        session: SessionId,
        pool: &str,
        states: &[WorkerState],
    ) -> Vec<Worker> {
        let worker = |(pid, state): (u32, &WorkerState)| Worker {
            id: self.ids.worker(),
            name: format!("{pool}-{pid}"),
            pool: pool.to_owned(),
            pid: Some(pid),
            state: *state,
            memory_bytes: None,
            started_at: self.clock.now(),
            done: 0,
            failed: 0,
            task: None,
        };
        let workers: Vec<Worker> = (100..).zip(states).map(worker).collect();
        assert_eq!(self.store.report(session, workers.clone(), Vec::new()).await, Ok(Fenced::Recorded));
        workers
    }

    pub(crate) async fn claim(&self, session: SessionId, queue: &str, limit: usize) -> Vec<Claimed> {
        let claim = Claim { session, queue: queue.to_owned(), kinds: Kinds::Any, limit };
        match self.store.claim(claim).await.expect("a claim is answered") {
            ClaimAnswer::Tasks { tasks, .. } => tasks,
            other @ ClaimAnswer::SessionEnded => panic!("{other:?}"),
        }
    }

    /// Runs up to `limit` waiting tasks of a queue to this end, with these events.
    pub(crate) async fn run(&self, queue: &str, limit: usize, outcome: &Outcome, events: &[EventBody]) {
        let session = self.node("runner", "{}").await;
        for claimed in self.claim(session, queue, limit).await {
            let ran = Ran { worker: self.ids.worker(), took: Duration::from_millis(7) };
            if !events.is_empty() {
                self.store.append(claimed.lease.as_ref(), events.to_vec()).await.expect("they are appended");
            }
            let output = (*outcome == Outcome::Success).then(|| r#""done""#.to_owned());
            let report = Report {
                lease: claimed.lease,
                ran: Some(ran),
                outcome: outcome.clone(),
                output,
                reading: None,
            };
            self.store.finish(vec![report]).await.expect("it is reported");
        }
        self.store.leave(session).await.expect("it leaves");
    }

    /// Fails up to `limit` waiting tasks of the queue for good.
    pub(crate) async fn fail(&self, limit: usize) {
        let failure = Failure::new(ErrorClass::Permanent, "no such host");
        self.run(QUEUE, limit, &Outcome::Failed(failure), &[]).await;
    }

    pub(crate) async fn complete(&self, limit: usize) {
        self.run(QUEUE, limit, &Outcome::Success, &[]).await;
    }

    pub(crate) async fn state(&self, id: TaskId) -> Option<StateName> {
        let found = self.store.show(TaskRef::Id(id)).await.expect("it can be read");
        found.map(|found| found.task.state.name())
    }
}
