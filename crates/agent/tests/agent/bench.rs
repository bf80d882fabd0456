//! Test helpers: an executor with a stand-in for an agent, a collector of its transcript, and a view of its requests and processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ostler_agent::Dialect;
use ostler_agent::executor::{AgentExecutor, AgentPolicy};
use ostler_core::{
    Charging, Conversation, ErrorClass, EventBody, Failure, Id, Outcome, TaskId, Timestamp, WorkerId,
};
use ostler_exec::{
    AttemptResult, Control, EventReceiver, StepError, StepLookup, StepStore, Steps, Work, event_channel,
};
use ostler_process::supervisor::{Supervisor, SupervisorProgram};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The variable with the role in which this program is started again.
pub(crate) const ROLE: &str = "OSTLER_TEST_ROLE";
/// Timeout of operations that should be quick, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// The wall clock of all tests, in milliseconds.
pub(crate) const NOW: i64 = 1_700_000_000_000;
const CLAUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/stand_in_claude.py");
const ACP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/stand_in_acp.py");
const CODEX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/stand_in_codex.py");

/// A pool of one stand-in.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) policy: AgentPolicy,
    /// Whether a budget of the queue is charged for attempts.
    pub(crate) charging: Charging,
    supervisor: Supervisor,
    token: Mutex<u64>,
}

/// An attempt that has ended.
pub(crate) struct Ran {
    pub(crate) ended: AttemptResult,
    pub(crate) events: Vec<EventBody>,
}

/// An attempt that runs.
pub(crate) struct Running {
    pub(crate) control: Control,
    pub(crate) ended: tokio::task::JoinHandle<AttemptResult>,
    pub(crate) events: Arc<Mutex<Vec<EventBody>>>,
    pub(crate) collected: tokio::task::JoinHandle<()>,
}

/// What earlier attempts left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Earlier(pub(crate) Vec<Conversation>);

#[async_trait]
impl StepStore for Earlier {
    async fn begin(&self, _name: &str) -> Result<StepLookup, StepError> {
        Ok(StepLookup::New)
    }

    async fn done(&self) -> Result<Vec<(String, String)>, StepError> {
        Ok(Vec::new())
    }

    async fn previous_session(&self) -> Result<Option<String>, StepError> {
        Ok(self.0.iter().rev().find_map(|talk| talk.session.clone()))
    }

    async fn earlier_conversations(&self) -> Result<Vec<Conversation>, StepError> {
        Ok(self.0.clone())
    }

    async fn save(&self, _name: &str, _value: &str) -> Result<(), StepError> {
        Ok(())
    }
}

impl Bench {
    pub(crate) async fn claude() -> Self {
        Self::of(Dialect::Claude, CLAUDE).await
    }

    pub(crate) async fn codex() -> Self {
        Self::of(Dialect::Codex, CODEX).await
    }

    pub(crate) async fn acp() -> Self {
        Self::of(Dialect::Acp, ACP).await
    }

    async fn of(dialect: Dialect, stand_in: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut policy = AgentPolicy::new("reviews", dialect);
        policy.command = vec!["python3".into(), stand_in.into()];
        policy.config_folders = Some(folder.path().join("agents"));
        policy.stagger = Duration::from_millis(1);
        policy.environment.set.push(("STAND_IN_LOG".into(), folder.path().join("log").display().to_string()));
        let charging = Charging::Free;
        Self { folder, policy, charging, supervisor: supervisor().await, token: Mutex::new(0) }
    }

    pub(crate) fn executor(&self) -> AgentExecutor {
        let policy = self.policy.clone();
        AgentExecutor::new(self.supervisor.clone(), policy, || Timestamp::from_millis(NOW))
            .expect("the policy is right")
    }

    pub(crate) fn work(&self, payload: &Value) -> Work {
        let mut token = self.token.lock().expect("no test panicked");
        *token += 1;
        work(payload.to_string(), *token)
    }

    /// Runs an attempt to its end.
    pub(crate) async fn run(&self, payload: &Value) -> Ran {
        self.start(payload, Earlier::default()).end().await
    }

    pub(crate) async fn run_after(&self, payload: &Value, earlier: Earlier) -> Ran {
        self.start(payload, earlier).end().await
    }

    pub(crate) fn start(&self, payload: &Value, earlier: Earlier) -> Running {
        self.start_work(self.work(payload), earlier)
    }

    pub(crate) fn start_work(&self, work: Work, earlier: Earlier) -> Running {
        self.start_by(Arc::new(self.executor()), work, earlier)
    }

    /// Starts an attempt by an executor that others may use too.
    pub(crate) fn start_by(&self, executor: Arc<AgentExecutor>, work: Work, earlier: Earlier) -> Running {
        let (sender, receiver) = event_channel();
        let (steps, charging) = (Steps::kept(Arc::new(earlier)), self.charging);
        let control = Control { steps, charging, ..Control::new(sender) };
        let executor = self.policy.secrets.clone().guard(executor);
        let (events, given) = (Arc::<Mutex<Vec<EventBody>>>::default(), control.clone());
        let collected = tokio::spawn(collect(receiver, Arc::clone(&events)));
        let ended = tokio::spawn(async move { executor.run(work, given).await });
        Running { control, ended, events, collected }
    }

    /// Runs an agent that goes on after `request`, the interruption, and after SIGTERM: it ends as one over its turn limit, long before
    /// its time is up.
    pub(crate) async fn has_killed_at_the_turn_limit(&self, request: &str) {
        let work = Work { timeout: 2 * SOON, ..self.work(&json!("[[tireless]]")) };
        let ran = self.start_work(work, Earlier::default()).end().await;
        let failure = ran.failure();
        assert_eq!(failure.class, ErrorClass::Permanent, "{failure:?}");
        let made =
            failure.message.strip_prefix("it made ").and_then(|rest| rest.split_once(" model requests"));
        let made = made.and_then(|(count, _)| count.parse::<u32>().ok());
        assert!(made.is_some_and(|count| count >= 3), "{failure:?}");
        assert_eq!(self.logged("ignored").await, json!(request), "it was asked first");
        let pid = self.logged("pid").await;
        assert!(!runs(&pid));
    }

    /// Runs an agent that opens no session: a transient failure, which names the time that it had, and nothing is asked.
    pub(crate) async fn has_no_session_in_time(&mut self) {
        self.policy.environment.set.push(("STAND_IN_OPENS".into(), "never".into()));
        (self.policy.opening_timeout, self.policy.idle_watchdog) =
            (Duration::from_secs(1), Duration::from_millis(100));
        let work = Work { timeout: 2 * SOON, ..self.work(&json!("[[text]]")) };
        let ran = self.start_work(work, Earlier::default()).end().await;
        let failure = ran.failure();
        assert_eq!(failure.class, ErrorClass::Transient, "{failure:?}");
        assert_eq!(failure.message, "it did not open a session within 1s");
        assert_eq!(self.requests().len(), 0);
    }

    /// The lines of the stand-in's log.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The requests that were made of a model.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.log().into_iter().filter(|line| line.get("prompt").is_some()).collect()
    }

    /// Waits for a line of the log that has this field.
    pub(crate) async fn logged(&self, field: &str) -> Value {
        let found = || self.log().into_iter().find_map(|line| line.get(field).cloned());
        until(field, || found().is_some()).await;
        found().unwrap_or_default()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("agents/reviews").join(TaskId(Id::from_bits(1)).to_string()).join("config")
    }
}

impl Running {
    pub(crate) async fn end(self) -> Ran {
        let ended =
            tokio::time::timeout(SOON, self.ended).await.expect("an answer comes").expect("it never panics");
        // The last sender closes the channel.
        drop(self.control);
        self.collected.await.expect("it collects");
        let events = self.events.lock().expect("no test panicked").clone();
        Ran { ended, events }
    }
}

impl Ran {
    pub(crate) fn output(&self) -> Value {
        assert_eq!(self.ended.outcome, Outcome::Success, "{:?}", self.events);
        serde_json::from_str(self.ended.output.as_deref().expect("it has an output"))
            .expect("an output is JSON")
    }

    pub(crate) fn failure(&self) -> &Failure {
        self.ended.outcome.failure().unwrap_or_else(|| panic!("it ended as {:?}", self.ended.outcome))
    }

    pub(crate) fn sessions(&self) -> Vec<String> {
        let of = |event: &'_ EventBody| {
            if let EventBody::Session { id } = event { Some(id.clone()) } else { None }
        };
        self.events.iter().filter_map(of).collect()
    }

    /// What it said, in the order of the transcript.
    pub(crate) fn messages(&self) -> Vec<String> {
        let of = |event: &'_ EventBody| {
            if let EventBody::Message { text, .. } = event { Some(text.clone()) } else { None }
        };
        self.events.iter().filter_map(of).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let of = |event: &'_ EventBody| {
            if let EventBody::Warning { text } = event { Some(text.clone()) } else { None }
        };
        self.events.iter().filter_map(of).collect()
    }

    pub(crate) fn statuses(&self) -> Vec<String> {
        let of = |event: &'_ EventBody| {
            if let EventBody::Status { text } = event { Some(text.clone()) } else { None }
        };
        self.events.iter().filter_map(of).collect()
    }
}

pub(crate) async fn collect(receiver: EventReceiver, events: Arc<Mutex<Vec<EventBody>>>) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, 100).await > 0 {
        for queued in batch.drain(..) {
            events.lock().expect("no test panicked").push(queued.body);
            queued.receipt.stored();
        }
    }
}

pub(crate) async fn supervisor() -> Supervisor {
    let mut program =
        SupervisorProgram::this(["--exact", "serve_as_the_supervisor", "--ignored", "--nocapture"]);
    program.env.push((ROLE.into(), "supervisor".into()));
    Supervisor::start(program, Vec::new()).await.expect("a supervisor starts")
}

pub(crate) fn work(payload: String, token: u64) -> Work {
    Work {
        task: TaskId(Id::from_bits(1)),
        token,
        worker: WorkerId(Id::from_bits(2)),
        attempt: 1,
        queue: "reviews".into(),
        kind: "k".into(),
        payload,
        timeout: SOON,
        grace: Duration::from_secs(2),
        folder: None,
        traceparent: None,
    }
}

/// Polls until a condition holds, up to a timeout.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
