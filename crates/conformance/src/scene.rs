//! Test scene: a store with nodes and tasks, and the helpers that cases are written with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::{
    ErrorClass, Failure, Id, Outcome, Readiness, SessionId, State, StateName, Task, TaskId, Timestamp, Wait,
    WorkerId,
};
use ostler_store::events::Event;

use super::fixture::Fixture;
use super::picture::{Picture, read_all};
use ostler_store::Store;
use ostler_store::Wakeups;
use ostler_store::calls::{
    CancelAnswer, Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, Kinds, NewSession, NewTask,
    QueueChange, Ran, Replay, ReplayAnswer, Report, Start,
};
use ostler_store::views::{Counts, TaskDetail, TaskRef};
use ostler_store::{Error, ErrorKind};
use ostler_store::{Lease, LeaseRef};

/// The queue of cases that need only one.
pub(super) const QUEUE: &str = "mail";
/// The kind of cases that need only one.
pub(super) const KIND: &str = "send";
/// The TTL of leases in a scene.
pub(super) const TTL: Duration = Duration::from_secs(60);
/// Long enough for a busy machine; a hint arrives within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// A trace context.
pub(super) const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// The smallest step of time.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// One store under test, with helpers for cases.
pub(super) struct Scene {
    pub(super) fixture: Box<dyn Fixture>,
    pub(super) store: Arc<dyn Store>,
    minted: AtomicU64,
}

impl Scene {
    pub(super) fn new(fixture: Box<dyn Fixture>) -> Self {
        let store = fixture.store();
        Self { fixture, store, minted: AtomicU64::new(0) }
    }

    // ---- names and time ----

    fn mint(&self) -> Id {
        let count = self.minted.fetch_add(1, Ordering::SeqCst) + 1;
        Id::from_bits(u128::from(count) << 64 | 0x0517)
    }

    pub(super) fn task_id(&self) -> TaskId {
        TaskId(self.mint())
    }

    pub(super) fn session_id(&self) -> SessionId {
        SessionId(self.mint())
    }

    pub(super) fn worker(&self) -> WorkerId {
        WorkerId(self.mint())
    }

    pub(super) fn now(&self) -> Timestamp {
        self.fixture.now()
    }

    pub(super) fn in_ms(&self, ms: u64) -> Timestamp {
        self.now().after(Duration::from_millis(ms))
    }

    pub(super) fn pass(&self, by: Duration) {
        self.fixture.advance(by);
    }

    // ---- nodes ----

    pub(super) fn node(&self, id: SessionId) -> NewSession {
        NewSession {
            id,
            name: "stable".to_owned(),
            host: "stable-1".to_owned(),
            pid: 42,
            version: "0.1.0".to_owned(),
            ttl: TTL,
            settings: "{\"pools\":1}".to_owned(),
        }
    }

    /// Starts a node with a new session.
    pub(super) async fn join(&self) -> SessionId {
        let id = self.session_id();
        assert_eq!(self.store.join(self.node(id)).await, Ok(Fenced::Recorded), "a new session joins");
        id
    }

    // ---- tasks ----

    /// A task that is not enqueued yet.
    pub(super) fn draft(&self) -> NewTask {
        NewTask::new(self.task_id(), QUEUE, KIND, "{}")
    }

    pub(super) async fn enqueue(&self, task: NewTask) -> TaskId {
        let id = task.id;
        assert_eq!(self.store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]));
        id
    }

    /// Enqueues a task with default settings.
    pub(super) async fn add(&self) -> TaskId {
        self.enqueue(self.draft()).await
    }

    /// Like [`add`](Self::add), with changes to the task.
    pub(super) async fn add_with(&self, special: impl FnOnce(&mut NewTask)) -> TaskId {
        let mut task = self.draft();
        special(&mut task);
        self.enqueue(task).await
    }

    /// Enqueues a task with this limit key.
    pub(super) async fn add_keyed(&self, key: &str) -> TaskId {
        self.add_with(|task| task.limit_key = Some(key.to_owned())).await
    }

    pub(super) fn asks(&self, session: SessionId, limit: usize) -> Claim {
        Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit }
    }

    pub(super) async fn claim(&self, session: SessionId, limit: usize) -> Vec<Claimed> {
        match self.store.claim(self.asks(session, limit)).await.expect("a claim is answered") {
            ClaimAnswer::Tasks { tasks, .. } => tasks,
            ClaimAnswer::SessionEnded => panic!("the session of {session} is over, and should not be"),
        }
    }

    /// The ids that a claim takes, in claim order.
    pub(super) async fn claim_ids(&self, session: SessionId, limit: usize) -> Vec<TaskId> {
        self.claim(session, limit).await.iter().map(|claimed| claimed.lease.task()).collect()
    }

    /// Claims the one ready task.
    pub(super) async fn lease(&self, session: SessionId) -> Lease {
        let mut claimed = self.claim(session, 10).await;
        assert_eq!(claimed.len(), 1, "one task is ready");
        claimed.remove(0).lease
    }

    /// Claims, expects exactly these tasks, and returns the lease of the first.
    pub(super) async fn lease_first(&self, session: SessionId, expected: &[TaskId]) -> Lease {
        let mut claimed = self.claim(session, 10).await;
        let ids: Vec<TaskId> = claimed.iter().map(|claimed| claimed.lease.task()).collect();
        assert_eq!(ids, expected, "these may go");
        claimed.remove(0).lease
    }

    /// Claims the one ready task and starts it.
    pub(super) async fn run(&self, session: SessionId) -> Lease {
        let lease = self.lease(session).await;
        self.start(&lease).await;
        lease
    }

    /// Enqueues a task and claims it.
    pub(super) async fn leased(&self, session: SessionId) -> Lease {
        self.add().await;
        self.lease(session).await
    }

    /// Enqueues a task, claims it and starts it.
    pub(super) async fn running(&self, session: SessionId) -> Lease {
        self.add().await;
        self.run(session).await
    }

    pub(super) async fn start(&self, lease: &Lease) {
        let start = Start { lease: lease.as_ref(), worker: self.worker() };
        assert_eq!(self.store.start(vec![start]).await, Ok(vec![Fenced::Recorded]));
    }

    /// Reports the outcome of an attempt.
    pub(super) async fn finish(&self, lease: Lease, outcome: Outcome) -> Finished {
        one(self.store.finish(vec![report(lease, outcome)]).await.expect("a report is answered"))
    }

    /// Reports the outcome of an attempt whose start was not recorded.
    pub(super) async fn finish_run(&self, lease: Lease, outcome: Outcome, took: Duration) -> Finished {
        let ran = Some(Ran { worker: self.worker(), took });
        let reports = vec![Report { ran, ..report(lease, outcome) }];
        one(self.store.finish(reports).await.expect("a report is answered"))
    }

    /// Makes a task that has failed permanently.
    pub(super) async fn dead_letter(&self, session: SessionId) -> TaskId {
        let lease = self.running(session).await;
        let id = lease.task();
        let finished = self.finish(lease, failure(ErrorClass::Permanent)).await;
        assert_eq!(finished, Finished::Recorded(StateName::Failed));
        id
    }

    /// Makes a completed task.
    pub(super) async fn completed(&self, session: SessionId) -> TaskId {
        let lease = self.running(session).await;
        let id = lease.task();
        assert_eq!(self.finish(lease, Outcome::Success).await, Finished::Recorded(StateName::Completed));
        id
    }

    pub(super) async fn cancel(&self, id: TaskId) -> CancelAnswer {
        one(self.store.cancel(vec![id]).await.expect("a cancel is answered"))
    }

    pub(super) async fn replay(&self, id: TaskId) -> ReplayAnswer {
        one(self.store.replay(vec![id], Replay::default()).await.expect("a replay is answered"))
    }

    pub(super) async fn configure(&self, change: QueueChange) {
        self.store.configure(QUEUE, vec![change]).await.expect("the change is taken");
    }

    // ---- queries ----

    pub(super) async fn find(&self, id: TaskId) -> Option<TaskDetail> {
        self.store.show(TaskRef::Id(id)).await.expect("show answers")
    }

    pub(super) async fn show(&self, id: TaskId) -> TaskDetail {
        self.find(id).await.unwrap_or_else(|| panic!("{id} is gone"))
    }

    pub(super) async fn task(&self, id: TaskId) -> Task {
        self.show(id).await.task
    }

    pub(super) async fn state(&self, id: TaskId) -> StateName {
        self.task(id).await.state.name()
    }

    /// Whether a queued task is ready, and why it waits.
    pub(super) async fn waits(&self, id: TaskId) -> (Readiness, Wait) {
        match self.task(id).await.state {
            State::Queued { readiness, why, .. } => (readiness, why),
            state @ (State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. }) => panic!("{id} should be queued, and is {state:?}"),
        }
    }

    pub(super) async fn events(&self, id: TaskId) -> Vec<Event> {
        read_all(self.store.as_ref(), id).await
    }

    pub(super) async fn picture(&self) -> Picture {
        Picture::take(self.store.as_ref()).await
    }

    /// The counts of all lanes, summed.
    pub(super) async fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for lane in self.store.survey().await.expect("survey answers").lanes {
            let mut counts = lane.counts;
            for state in StateName::ALL {
                *sum.of(state) += *counts.of(state);
            }
        }
        sum
    }
}

/// The answer from a list of exactly one.
pub(super) fn one<T>(answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one item has one answer");
    answers.into_iter().next().expect("one answer")
}

pub(super) const fn report(lease: Lease, outcome: Outcome) -> Report {
    Report { lease, ran: None, outcome, output: None, reading: None }
}

/// Waits for a wakeup, and arms it again.
pub(super) async fn heard(what: &str, wakeups: &mut Wakeups) {
    let ring = tokio::time::timeout(PATIENCE, wakeups.wait()).await;
    assert!(ring.is_ok(), "{what} rang no bell");
    wakeups.arm();
}

/// Asserts that no wakeup has arrived since `wakeups` was armed.
pub(super) async fn quiet(what: &str, wakeups: &mut Wakeups) {
    let ring = tokio::time::timeout(Duration::ZERO, wakeups.wait()).await;
    assert!(ring.is_err(), "{what} rang a bell that is not for it");
}

/// A failure of this class, with default fields.
pub(super) fn failure(class: ErrorClass) -> Outcome {
    Outcome::Failed(Failure::new(class, "the post office is closed"))
}

/// The same lease with another token.
pub(super) fn with_token(lease: LeaseRef, token: u64) -> LeaseRef {
    LeaseRef { token, ..lease }
}

/// Asserts that a call was refused as invalid, with a message.
pub(super) fn invalid<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>) {
    match answer {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
            assert!(!error.to_string().is_empty(), "{what}: refused without a word");
        }
        Ok(answer) => panic!("{what}: should be refused, and was answered with {answer:?}"),
    }
}
