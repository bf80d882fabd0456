//! Does to the store what a node would do, one call at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Failure, Outcome, SessionId, TaskId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, NewSession, NewStep, NewTask, Report, Start};
use ostler_store::{LeaseRef, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT};

use crate::ostler::Place;

/// The polling interval, in case no bell rings.
const LOOK: Duration = Duration::from_millis(50);

/// A node of one test.
pub(crate) struct Hands {
    pub(crate) store: Arc<Sqlite>,
    pub(crate) session: SessionId,
    ids: Ids,
    runtime: tokio::runtime::Runtime,
}

impl Hands {
    /// Joins the store of a place, creating it if necessary.
    pub(crate) fn join(place: &Place) -> Self {
        let store = Sqlite::open(place.store(), Arc::new(SystemClock), Options::default());
        let store = Arc::new(store.unwrap_or_else(|error| panic!("the store opens: {error}")));
        // From the folder's name, so that no two tests, and no two nodes of one test, have the same ids.
        let seed = place
            .folder()
            .to_string_lossy()
            .bytes()
            .fold(7_u64, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
        let ids = Ids::new(seed);
        let session = ids.session();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let hands = Self { store, session, ids, runtime };
        let node = NewSession {
            id: session,
            name: "hands".into(),
            host: "stable-1".to_owned(),
            pid: std::process::id(),
            version: "0".into(),
            ttl: Duration::from_secs(600),
            settings: String::new(),
        };
        hands.wait(hands.store.join(node)).expect("the node joins");
        hands
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn enqueue(&self, queue: &str, kind: &str, payload: &str) -> TaskId {
        let task = NewTask::new(self.ids.task(), queue, kind, payload);
        let id = task.id;
        self.wait(self.store.enqueue(vec![task])).expect("it is enqueued");
        id
    }

    /// Enqueues many tasks in one call.
    pub(crate) fn enqueue_many(&self, count: usize, queue: &str, kind: &str, payload: &str) {
        let task = |_| NewTask::new(self.ids.task(), queue, kind, payload);
        self.wait(self.store.enqueue((0..count).map(task).collect())).expect("they are enqueued");
    }

    /// Waits for the next task of a queue, and starts it.
    pub(crate) fn begin(&self, queue: &str) -> Claimed {
        let until = std::time::Instant::now() + MAX_WAIT;
        let mut wakeups = self.store.wakeups();
        loop {
            wakeups.arm();
            let claim = Claim { session: self.session, queue: queue.into(), kinds: Kinds::Any, limit: 1 };
            let answer = self.wait(self.store.claim(claim)).expect("the store answers");
            let ClaimAnswer::Tasks { tasks, .. } = answer else { panic!("the session is over") };
            if let Some(task) = tasks.into_iter().next() {
                let start = Start { lease: task.lease.as_ref(), worker: self.ids.worker() };
                self.wait(self.store.start(vec![start])).expect("it begins");
                return task;
            }
            assert!(std::time::Instant::now() < until, "nothing comes into {queue}");
            // A timeout and a bell are handled alike.
            let _ = self.wait(async { tokio::time::timeout(LOOK, wakeups.wait()).await });
        }
    }

    pub(crate) fn end(&self, task: Claimed, outcome: Outcome, output: Option<&str>) {
        let report = Report {
            lease: task.lease,
            ran: None,
            outcome,
            output: output.map(str::to_owned),
            reading: None,
        };
        self.wait(self.store.finish(vec![report])).expect("it is finished");
    }

    pub(crate) fn complete(&self, queue: &str, output: &str) -> TaskId {
        let task = self.begin(queue);
        let id = task.lease.task();
        self.end(task, Outcome::Success, Some(output));
        id
    }

    /// Fails the next task of a queue for good.
    pub(crate) fn fail(&self, queue: &str, message: &str) -> TaskId {
        let task = self.begin(queue);
        let id = task.lease.task();
        self.end(task, Outcome::Failed(Failure::new(ErrorClass::Permanent, message)), None);
        id
    }

    pub(crate) fn log(&self, lease: LeaseRef, line: &str) {
        let event = EventBody::line(line);
        self.wait(self.store.append(lease, vec![event])).expect("it is appended");
    }

    pub(crate) fn step(&self, lease: LeaseRef, name: &str, value: &str) {
        let step = NewStep { name: name.into(), value: value.into() };
        self.wait(self.store.save_step(lease, step)).expect("it is saved");
    }
}
