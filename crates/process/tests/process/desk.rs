//! Long-lived workers for tests: the real python3, with a script that misbehaves on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::{EventBody, Failure, Id, Outcome, WorkerId};
use ostler_exec::{AttemptResult, Control, EventReceiver, Executor, Work, WorkerOpening, event_channel};
use ostler_process::supervisor::Supervisor;
use ostler_process::{Process, ProcessPolicy};

use crate::bench::{SOON, supervisor, work};

/// The grace period of attempts in these tests.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The policy of workers that start in this mode.
pub(crate) fn policy(start: &str) -> ProcessPolicy {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/process/worker.py");
    ProcessPolicy {
        grace: GRACE,
        ready_timeout: SOON,
        ..ProcessPolicy::new("docs", ["python3", program, start])
    }
}

/// A task with this behaviour, under a lease of its own.
pub(crate) fn task(what: &str, how: &str) -> Work {
    static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);
    let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
    Work { token, grace: GRACE, ..work(format!("{{\"do\":\"{what}\",\"how\":{how}}}")) }
}

/// An executor, and a counter for worker ids.
pub(crate) struct Desk {
    pub(crate) supervisor: Supervisor,
    pub(crate) process: Arc<Process>,
    next: AtomicU64,
}

impl Desk {
    pub(crate) async fn of(policy: ProcessPolicy) -> Self {
        let supervisor = supervisor().await;
        let process = Arc::new(Process::new(supervisor.clone(), policy).expect("the policy is right"));
        Self { supervisor, process, next: AtomicU64::new(1) }
    }

    pub(crate) async fn well() -> Self {
        Self::of(policy("well")).await
    }

    pub(crate) fn name(&self) -> WorkerId {
        WorkerId(Id::from_bits(self.next.fetch_add(1, Ordering::Relaxed).into()))
    }

    /// Opens a worker that becomes ready.
    pub(crate) async fn open(&self) -> WorkerId {
        let worker = self.name();
        assert_eq!(self.process.open(worker).await, WorkerOpening::Ready);
        worker
    }

    /// The failure of a worker that does not start.
    pub(crate) async fn refused(&self) -> Failure {
        match tokio::time::timeout(SOON, self.process.open(self.name())).await.expect("in time") {
            WorkerOpening::Failed(failure) => failure,
            WorkerOpening::Ready => panic!("it came up"),
            WorkerOpening::Short(what) => panic!("{what}"),
        }
    }

    /// Runs an attempt on a worker; returns the result and the notes.
    pub(crate) async fn run(&self, worker: WorkerId, work: Work) -> (AttemptResult, EventReceiver) {
        let (sender, heard) = event_channel();
        (self.run_with(worker, work, Control::new(sender)).await, heard)
    }

    pub(crate) async fn run_with(&self, worker: WorkerId, work: Work, control: Control) -> AttemptResult {
        let running = self.process.run(Work { worker, ..work }, control);
        tokio::time::timeout(SOON * 3, running).await.expect("an answer comes")
    }

    /// Runs an attempt on a new worker.
    pub(crate) async fn once(&self, what: &str, how: &str) -> AttemptResult {
        let worker = self.open().await;
        let ended = self.run(worker, task(what, how)).await.0;
        self.process.close(worker).await;
        ended
    }

    /// Asserts that another worker, started earlier, still works.
    pub(crate) async fn still_works(&self, neighbour: WorkerId) {
        assert_eq!(output(self.run(neighbour, task("echo", "\"on\"")).await.0), "\"on\"");
    }
}

pub(crate) fn output(ended: AttemptResult) -> String {
    assert_eq!(ended.outcome, Outcome::Success);
    ended.output.expect("there is output")
}

/// All notes, in order.
pub(crate) fn heard(heard: &EventReceiver) -> Vec<EventBody> {
    std::iter::from_fn(|| heard.try_recv()).collect()
}

/// The log lines among the notes.
pub(crate) fn lines(notes: &EventReceiver) -> Vec<String> {
    let line = |note| if let EventBody::Log { text, .. } = note { Some(text) } else { None };
    heard(notes).into_iter().filter_map(line).collect()
}
