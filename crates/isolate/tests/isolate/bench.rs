//! Executors for tests: a folder of functions, a supervisor, which is this program, and hosts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_core::{EventBody, Failure, Id, Outcome, TaskId, WorkerId};
use ostler_exec::{
    AttemptResult, Control, EventReceiver, Executor, Work, WorkerFate, WorkerOpening, event_channel,
};
use ostler_isolate::host_process::HOST;
use ostler_isolate::{HostProgram, IsolateExecutor, IsolatePolicy, Isolation};
use ostler_process::supervisor::{Supervisor, SupervisorProgram};
use tempfile::TempDir;

use crate::engines::tested;

/// The variable with the role in which this program is started again.
const ROLE: &str = "OSTLER_TEST_ROLE";
/// Timeout of operations that should be quick, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// `OSTLER_ROUNDS`: makes short tests long.
pub(crate) fn rounds() -> Option<u32> {
    std::env::var("OSTLER_ROUNDS").ok().map(|text| text.parse().expect("OSTLER_ROUNDS is a number"))
}

/// Not a test: the supervisor process is this program, started again for a test.
#[test]
#[ignore = "it is the supervisor's process"]
fn serve_as_the_supervisor() {
    if std::env::var_os(ROLE).is_some_and(|role| role == "supervisor") {
        ostler_process::supervisor::serve().expect("the supervisor serves");
    }
}

fn args(test: &str) -> [String; 4] {
    ["--exact".to_owned(), format!("bench::{test}"), "--ignored".to_owned(), "--nocapture".to_owned()]
}

pub(crate) async fn supervisor() -> Supervisor {
    let mut program = SupervisorProgram::this(args("serve_as_the_supervisor"));
    program.env.push((ROLE.into(), "supervisor".into()));
    Supervisor::start(program, Vec::new()).await.expect("a supervisor starts")
}

/// The program of hosts is an example, which `cargo test` builds: a test runs beside the threads of its harness, and V8 must be first.
pub(crate) fn host() -> HostProgram {
    example("function_host", &[])
}

/// An example as the program of hosts, with these arguments.
pub(crate) fn example(name: &str, args: &[&str]) -> HostProgram {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.parent().and_then(Path::parent).expect("it is in target/debug/deps");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo build --examples -p ostler-isolate", program.display());
    let mut argv = vec![program.display().to_string(), HOST.to_owned()];
    argv.extend(args.iter().map(|arg| (*arg).to_owned()));
    HostProgram { argv, env: Vec::new() }
}

/// The executor of a policy.
pub(crate) fn executor(policy: &IsolatePolicy, supervisor: &Supervisor) -> Arc<dyn Executor> {
    let mut policy = policy.clone();
    if policy.program == HostProgram::default() {
        policy.program = host();
    }
    let built = match policy.isolation {
        Isolation::Process => IsolateExecutor::in_hosts(&policy, supervisor.clone()),
        Isolation::Thread => IsolateExecutor::on_threads(&policy),
    };
    built.unwrap_or_else(|fault| panic!("{fault}"))
}

/// A pool of functions.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) executor: Arc<dyn Executor>,
}

impl Bench {
    pub(crate) async fn new(isolation: Isolation, change: impl FnOnce(&mut IsolatePolicy)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("functions")).expect("a folder");
        let mut policy = IsolatePolicy {
            engine: tested().engine_name(),
            isolation,
            grace: Duration::from_secs(2),
            ..IsolatePolicy::new("functions", folder.path().join("functions"))
        };
        policy.folders.each = Some(folder.path().join("tasks"));
        change(&mut policy);
        let supervisor = supervisor().await;
        let executor = executor(&policy, &supervisor);
        Self { folder, executor }
    }

    /// Writes a function, as one who replaces a file.
    pub(crate) fn function(&self, kind: &str, module: &str) {
        write(&self.folder.path().join("functions"), kind, module);
    }

    /// A function with this body.
    pub(crate) fn body(&self, kind: &str, body: &str) {
        self.function(kind, &format!("export default async function (payload, ctx) {{ {body} }}"));
    }

    /// Opens a worker.
    pub(crate) async fn open(&self) -> WorkerId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let worker = WorkerId(Id::from_bits(NEXT.fetch_add(1, Ordering::Relaxed).into()));
        assert_eq!(self.executor.open(worker).await, WorkerOpening::Ready);
        worker
    }

    /// The worker for the next task: the same one, or another if this one has grown. None of them died.
    pub(crate) async fn next_worker(&self, worker: WorkerId, fate: WorkerFate) -> WorkerId {
        match fate {
            WorkerFate::Reusable => worker,
            WorkerFate::Spent => {
                self.executor.close(worker).await;
                self.open().await
            }
            WorkerFate::Dead | WorkerFate::Unresponsive => panic!("the worker is {fate:?}"),
        }
    }

    pub(crate) async fn run(&self, worker: WorkerId, work: Work) -> (AttemptResult, Vec<EventBody>) {
        let (sender, events) = event_channel();
        let ended = self.run_with(worker, work, Control::new(sender)).await;
        (ended, heard(&events))
    }

    pub(crate) async fn run_with(&self, worker: WorkerId, work: Work, control: Control) -> AttemptResult {
        let running = self.executor.run(Work { worker, ..work }, control);
        tokio::time::timeout(SOON * 2, running).await.expect("an answer comes")
    }

    /// Runs a task on a worker of its own.
    pub(crate) async fn once(&self, kind: &str, payload: &str) -> (AttemptResult, Vec<EventBody>) {
        let worker = self.open().await;
        let ended = self.run(worker, work(kind, payload)).await;
        self.executor.close(worker).await;
        ended
    }

    /// The output of a task.
    pub(crate) async fn output(&self, kind: &str, payload: &str) -> String {
        output(self.once(kind, payload).await.0)
    }
}

pub(crate) fn write(folder: &Path, kind: &str, module: &str) {
    let part = folder.join(format!(".{kind}.part"));
    std::fs::write(&part, module).expect("a file");
    std::fs::rename(part, folder.join(format!("{kind}.js"))).expect("it is renamed");
}

/// A task under a lease of its own.
pub(crate) fn work(kind: &str, payload: &str) -> Work {
    static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);
    Work {
        task: TaskId(Id::from_bits(1)),
        token: NEXT_TOKEN.fetch_add(1, Ordering::Relaxed),
        worker: WorkerId(Id::from_bits(2)),
        attempt: 1,
        queue: "functions".into(),
        kind: kind.into(),
        payload: payload.into(),
        timeout: SOON,
        grace: Duration::from_secs(2),
        folder: None,
        traceparent: None,
    }
}

pub(crate) fn output(ended: AttemptResult) -> String {
    assert_eq!(ended.outcome, Outcome::Success);
    ended.output.unwrap_or_else(|| "nothing".to_owned())
}

pub(crate) fn failure(ended: &AttemptResult) -> &Failure {
    ended.outcome.failure().unwrap_or_else(|| panic!("it ended as {ended:?}"))
}

fn heard(events: &EventReceiver) -> Vec<EventBody> {
    std::iter::from_fn(|| events.try_recv()).collect()
}

/// The log lines among events.
pub(crate) fn lines(events: &[EventBody]) -> Vec<&str> {
    let mut lines = Vec::new();
    for event in events {
        if let EventBody::Log { text, .. } = event {
            lines.push(text.as_str());
        }
    }
    lines
}
