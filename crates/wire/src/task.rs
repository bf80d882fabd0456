//! A task: as a list shows it, and with all that belongs to it.

use std::collections::BTreeMap;

use ostler_core::{
    Attempt, Backoff, CancelReason, Ending, FailReason, Failure, Overrides, SessionId, State, Step, Task,
    TaskId, millis,
};
use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::limits::ThrottleView;
use crate::time::TimeView;

/// The name of a task: what `submit` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Submitted {
    /// Its id; where a unique key was taken, that of the task that has it.
    pub id: String,
    /// `created`; or, where a unique key was taken, `existing`, `replaced` or `rejected`.
    pub result: &'static str,
}

/// A task in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its name, for ever.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// One of the six.
    pub state: &'static str,
    /// Why it waits, while it is queued.
    pub waits_for: Option<&'static str>,
    /// Its head start.
    pub priority: i64,
    /// Attempts that began.
    pub runs: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// Not before this moment, while it is queued.
    pub run_at: Option<TimeView>,
    /// When it was enqueued.
    pub created_at: TimeView,
    /// Its unique key.
    pub key: Option<String>,
    /// The last failure, or why it was ended. In a list its details are left out.
    pub error: Option<ErrorView>,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorView {
    /// What sort of failure.
    pub class: &'static str,
    /// One sentence.
    pub message: String,
    /// More, for whoever looks closer.
    pub details: Option<String>,
    /// The step that failed.
    pub step: Option<String>,
    /// What might help.
    pub hint: Option<String>,
    /// The exit code of a command that ended by itself with one.
    pub exit_code: Option<u8>,
}

/// A task with all that belongs to it, except its events.
#[derive(Clone, Debug, Serialize)]
pub struct Detail {
    /// What a list shows of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// What to work on.
    pub payload: Json,
    /// What came out.
    pub output: Option<Json>,
    /// Its steps by name.
    pub steps: BTreeMap<String, Json>,
    /// The tasks that it still waits for.
    pub after: Vec<String>,
    /// Too late to be useful after this.
    pub not_after: Option<TimeView>,
    /// No attempt begins after this.
    pub deadline: Option<TimeView>,
    /// What was said about its tries and its time. What was not is its kind's or its queue's.
    pub rules: PolicyView,
    /// Workers that died under it.
    pub crashes: u32,
    /// When somebody asked to cancel it, while a node had it.
    pub cancel_requested_at: Option<TimeView>,
    /// Who has the right to run it.
    pub lease: Option<LeaseView>,
    /// When it first failed.
    pub first_failure: Option<TimeView>,
    /// When it last failed.
    pub last_failure: Option<TimeView>,
    /// Its attempts, the first one first.
    pub attempts: Vec<AttemptView>,
    /// Shares limits, and takes turns, with other tasks of this key.
    pub limit_key: Option<String>,
    /// What it takes from the rates of its queue.
    pub cost: u32,
    /// What holds it back, while it is queued.
    pub held: Option<ThrottleView>,
}

/// A task with all that belongs to it, as `show` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct ShownTask {
    /// All that belongs to it.
    #[serde(flatten)]
    pub detail: Detail,
    /// Why it is not tried again, in one word; `null` unless it has failed for good. A dead letter has the same.
    pub reason: Option<&'static str>,
}

/// What was said about the tries and the time of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyView {
    /// How many tries may fail.
    pub attempts: Option<u32>,
    /// How long one attempt may take.
    pub timeout_ms: Option<i64>,
    /// How waits grow: `fixed`, `linear` or `exponential`.
    pub backoff: Option<&'static str>,
    /// The first wait.
    pub base_ms: Option<i64>,
    /// The longest wait.
    pub max_ms: Option<i64>,
}

impl From<&Overrides> for PolicyView {
    fn from(overrides: &Overrides) -> Self {
        Self {
            attempts: overrides.attempts,
            timeout_ms: overrides.timeout.map(millis),
            backoff: overrides.backoff.map(Backoff::name),
            base_ms: overrides.base.map(millis),
            max_ms: overrides.max.map(millis),
        }
    }
}

/// A node's right to run a task.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseView {
    /// The node.
    pub node: String,
    /// The number that proves it.
    pub token: u64,
}

/// An attempt.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptView {
    /// Counted from one.
    pub number: u32,
    /// The lease it ran under.
    pub token: u64,
    /// The worker that ran it.
    pub worker: String,
    /// The node it ran in.
    pub node: String,
    /// `running`, `completed`, `failed`, `cancelled`, `handed_back` or `node_died`.
    pub state: &'static str,
    /// When it began.
    pub started_at: TimeView,
    /// When it ended.
    pub finished_at: Option<TimeView>,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// How it failed.
    pub error: Option<ErrorView>,
    /// Files that it left in the task's folder.
    pub files: Vec<FileView>,
    /// What a command wrote to its standard output, where it did not succeed; of much, the beginning and the end. The output of
    /// a success is the task's.
    pub stdout: Option<String>,
    /// What an agent was asked.
    pub prompt: Option<String>,
    /// What it cost.
    pub cost_usd: Option<f64>,
    /// The conversation of an agent.
    pub session_id: Option<String>,
}

/// A file that an attempt left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// Where, in the task's folder.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// The SHA-256 of them, in hexadecimal digits.
    pub sha256: String,
}

impl FileView {
    /// What the event of a file says, if it can be read.
    #[must_use]
    pub fn of_event(data: &str) -> Option<Self> {
        serde_json::from_str(data).ok()
    }
}

/// A task that was waited for.
#[derive(Clone, Debug, Serialize)]
pub struct Waited {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub state: &'static str,
    /// What came out.
    pub output: Option<Json>,
    /// Why it did not complete.
    pub error: Option<ErrorView>,
}

impl From<&Task> for Summary {
    fn from(task: &Task) -> Self {
        let (waits_for, run_at) = match task.state {
            State::Queued { why, run_at, .. } => (Some(why.name()), Some(run_at.into())),
            State::Claimed { .. }
            | State::Running { .. }
            | State::Completed { .. }
            | State::Failed { .. }
            | State::Cancelled { .. } => (None, None),
        };
        Self {
            id: task.id.to_string(),
            queue: task.queue.clone(),
            kind: task.kind.clone(),
            state: task.state.name().name(),
            waits_for,
            priority: task.priority.points(),
            runs: task.runs,
            failures: task.failures,
            run_at,
            created_at: task.created_at.into(),
            key: task.unique_key.clone(),
            error: ErrorView::of(task).map(|trouble| ErrorView { details: None, ..trouble }),
        }
    }
}

impl Detail {
    /// The task with these attempts and steps, those that it still waits for, and what holds it back.
    #[must_use]
    pub fn new(
        task: &Task,
        attempts: &[Attempt],
        steps: &[Step],
        after: &[TaskId],
        held: Option<ThrottleView>,
    ) -> Self {
        Self {
            summary: Summary { error: ErrorView::of(task), ..Summary::from(task) },
            payload: Json::from_text(&task.payload),
            output: task.output.as_deref().map(Json::from_text),
            steps: self::steps(steps),
            after: after.iter().map(TaskId::to_string).collect(),
            not_after: task.not_after.map(TimeView::from),
            deadline: task.deadline.map(TimeView::from),
            rules: PolicyView::from(&task.overrides),
            crashes: task.crashes,
            cancel_requested_at: task.cancel_requested_at.map(TimeView::from),
            lease: holder(&task.state).map(|node| LeaseView { node: node.to_string(), token: task.token }),
            first_failure: task.first_failure_at.map(TimeView::from),
            last_failure: task.last_failure_at.map(TimeView::from),
            attempts: attempts.iter().map(AttemptView::from).collect(),
            limit_key: task.limit_key.clone(),
            cost: task.cost,
            held,
        }
    }
}

pub(crate) fn steps(saved: &[Step]) -> BTreeMap<String, Json> {
    saved.iter().map(|step| (step.name.clone(), Json::from_text(&step.value))).collect()
}

impl Detail {
    /// The same, with the files that attempts left. Each comes with the token of its attempt; of two with one path the later
    /// counts.
    #[must_use]
    pub fn with_files(mut self, files: Vec<(u64, FileView)>) -> Self {
        for (token, file) in files {
            let Some(run) = self.attempts.iter_mut().find(|run| run.token == token) else { continue };
            run.files.retain(|known| known.path != file.path);
            run.files.push(file);
        }
        self
    }
}

impl Detail {
    /// The same, with what attempts that did not succeed wrote to standard output. Each text comes with the token of its attempt.
    #[must_use]
    pub fn with_stdout(mut self, written: Vec<(u64, String)>) -> Self {
        for (token, text) in written {
            let Some(run) = self.attempts.iter_mut().find(|run| run.token == token) else { continue };
            run.stdout = Some(text);
        }
        self
    }
}

fn holder(state: &State) -> Option<SessionId> {
    match state {
        State::Claimed { session } | State::Running { session, .. } => Some(*session),
        State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => {
            None
        }
    }
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        let end = attempt.end.as_ref();
        Self {
            number: attempt.number,
            token: attempt.token,
            worker: attempt.worker.to_string(),
            node: attempt.session.to_string(),
            state: end.map_or("running", |end| ending(end.ending)),
            started_at: attempt.started_at.into(),
            finished_at: end.map(|end| end.finished_at.into()),
            duration_ms: attempt.took().map(millis),
            error: end.and_then(|end| end.failure.as_ref()).map(ErrorView::from),
            files: Vec::new(),
            stdout: None,
            prompt: None,
            cost_usd: None,
            session_id: None,
        }
    }
}

/// The class of a failure is in its error; here it is a failure.
const fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Success => "completed",
        Ending::Failed(_) => "failed",
        Ending::NodeDied => "node_died",
        Ending::HandedBack => "handed_back",
        Ending::Cancelled => "cancelled",
    }
}

impl From<&Failure> for ErrorView {
    fn from(failure: &Failure) -> Self {
        Self {
            class: failure.class.name(),
            message: failure.message.clone(),
            details: failure.details.clone(),
            step: failure.step.clone(),
            hint: failure.hint.clone(),
            exit_code: failure.exit_code,
        }
    }
}

impl ErrorView {
    /// What is wrong with a task: why it was ended, where no failure of its own says that; else its last failure. A task
    /// that completed in the end has no trouble.
    #[must_use]
    pub fn of(task: &Task) -> Option<Self> {
        let ended = |class, message: String| {
            Some(Self { class, message, details: None, step: None, hint: None, exit_code: None })
        };
        match task.state {
            State::Completed { .. } => None,
            State::Failed { reason: reason @ FailReason::NodeDeaths, .. } => {
                ended(reason.name(), format!("{} nodes died while they ran it", task.node_deaths))
            }
            State::Failed { reason: reason @ FailReason::Deadline, .. } => {
                ended(reason.name(), "the time for all its attempts together is over".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Expired, .. } => {
                ended(reason.name(), "it could not be completed before its not_after".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Dependency, .. } => {
                ended(reason.name(), "a task that it waited for did not complete".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Replaced, .. } => {
                ended(reason.name(), "the next run of its schedule took its place".to_owned())
            }
            State::Failed {
                reason: FailReason::Permanent | FailReason::Exhausted | FailReason::Crashes,
                ..
            }
            | State::Cancelled { reason: CancelReason::Requested, .. }
            | State::Queued { .. }
            | State::Claimed { .. }
            | State::Running { .. } => task.last_failure.as_ref().map(Self::from),
        }
    }
}

impl From<&Task> for Waited {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id.to_string(),
            state: task.state.name().name(),
            output: task.output.as_deref().map(Json::from_text),
            error: ErrorView::of(task),
        }
    }
}
