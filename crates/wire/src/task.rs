//! Tasks: in a list, and in detail with attempts, steps and files.

use std::collections::BTreeMap;

use ostler_core::{
    Attempt, Backoff, CancelReason, Ending, FailReason, Failure, Overrides, SessionId, State, Step, Task,
    TaskId, Traceparent, millis,
};
use ostler_store::views::TaskDetail;
use serde::{Deserialize, Deserializer, Serialize};

use crate::about::about;
use crate::dead::PostMortem;
use crate::event::{ReportedProgress, UsageView};
use crate::json::{Json, in_two_parts};
use crate::limits::ThrottleView;
use crate::remains::{AttemptRemains, FileView, TransitionView};
use crate::time::TimeView;
use crate::word::{self, Word};

/// The output of `submit`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submitted {
    /// The task's id; if the unique key was taken, the id of the task that has it.
    pub id: String,
    pub result: SubmitResult,
}

/// What became of a submitted task, or why nothing was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SubmitResult {
    Created,
    Existing,
    Replaced,
    Rejected,
    /// The id belongs to another task.
    IdTaken,
    /// A task to wait for does not exist.
    NoSuchTask,
    QueueFull,
}

impl SubmitResult {
    /// The name that users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Existing => "existing",
            Self::Replaced => "replaced",
            Self::Rejected => "rejected",
            Self::IdTaken => "id_taken",
            Self::NoSuchTask => "no_such_task",
            Self::QueueFull => "queue_full",
        }
    }
}

impl Submitted {
    #[must_use]
    pub fn new(id: TaskId, result: SubmitResult) -> Self {
        Self { id: id.to_string(), result }
    }
}

/// A line of the output of `submit --jsonl`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubmittedLine {
    /// The number of the line, from 1.
    pub line: u64,
    /// The task's id; if the unique key was taken, the id of the task that has it; `null` if there is no task.
    pub id: Option<String>,
    pub result: SubmitResult,
}

impl SubmittedLine {
    #[must_use]
    pub fn new(line: u64, id: Option<TaskId>, result: SubmitResult) -> Self {
        Self { line, id: id.as_ref().map(ToString::to_string), result }
    }
}

/// A task in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Never changes.
    pub id: String,
    pub queue: String,
    pub kind: String,
    /// `queued`, `claimed`, `running`, `completed`, `failed` or `cancelled`.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    /// What the task waits for while it is queued.
    #[serde(deserialize_with = "word::read_option")]
    pub waits_for: Option<Word>,
    /// From -100 to 100; each point is a minute's head start.
    pub priority: i64,
    /// Attempts started.
    pub runs: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// The earliest time to run, while it is queued.
    pub run_at: Option<TimeView>,
    /// When it was enqueued.
    pub created_at: TimeView,
    pub key: Option<String>,
    /// What it is about: its item, its key, or the command or other text in its payload, cut.
    #[serde(default)]
    pub about: Option<String>,
    /// When it ended.
    pub finished_at: Option<TimeView>,
    /// Why it was ended, in one word: of failed and cancelled tasks.
    #[serde(deserialize_with = "word::read_option")]
    pub ended_by: Option<Word>,
    /// The last failure, or why the task was ended. Lists leave out its details.
    pub error: Option<ErrorView>,
    /// How far its running attempt has come, as that has reported it: of tasks in detail, and of up to 100 in a list.
    pub progress: Option<ReportedProgress>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorView {
    /// The error class.
    #[serde(deserialize_with = "word::read")]
    pub class: Word,
    /// One sentence.
    pub message: String,
    pub details: Option<String>,
    /// The step that failed.
    pub step: Option<String>,
    pub hint: Option<String>,
    /// The exit code of a command that exited by itself.
    pub exit_code: Option<u8>,
}

/// A task with everything but its events.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Detail {
    #[serde(flatten)]
    pub summary: Summary,
    pub payload: Json,
    pub output: Option<Json>,
    /// Saved steps by name.
    pub steps: BTreeMap<String, Json>,
    /// The tasks that it still waits for.
    pub after: Vec<String>,
    /// The task is cancelled instead of being started after this time.
    pub not_after: Option<TimeView>,
    /// No attempt starts after this time.
    pub deadline: Option<TimeView>,
    /// Retry and timeout settings of the task. Unset ones are taken from its kind or its queue.
    pub rules: PolicyView,
    /// Worker crashes while running it.
    pub crashes: u32,
    /// Nodes that died while running it.
    pub node_deaths: u32,
    /// Its working folder, if it was submitted with one.
    pub folder: Option<String>,
    /// The W3C trace context that it was submitted with.
    pub traceparent: Option<String>,
    /// When a cancellation was requested while a node held the task.
    pub cancel_requested_at: Option<TimeView>,
    /// The node that holds the task.
    pub lease: Option<LeaseView>,
    pub first_failure: Option<TimeView>,
    pub last_failure: Option<TimeView>,
    /// Attempts, oldest first.
    pub attempts: Vec<AttemptView>,
    /// Tasks with the same limit key share limits and take turns.
    pub limit_key: Option<String>,
    /// How much of the queue's rates it uses.
    pub cost: u32,
    /// What throttles the task while it is queued.
    pub held: Option<ThrottleView>,
    /// Commands that help it to start, in this order, while it is queued.
    #[serde(default)]
    pub frees: Vec<FreeingCommand>,
    /// Why it does not start, while it is queued.
    #[serde(default)]
    pub obstacles: Vec<ObstacleView>,
}

/// Why a queued task does not start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObstacleView {
    /// For programs: `no_node`, `queue_unserved`, `kind_unserved`, `kind_new`, `no_worker`, `workers_busy`, or what it waits for.
    #[serde(deserialize_with = "word::read")]
    pub code: Word,
    pub sentence: String,
    /// The attempt that failed, if the task waits for the next one.
    pub attempt: Option<u32>,
    /// A command that removes it, if there is one.
    pub frees: Option<FreeingCommand>,
}

impl ObstacleView {
    /// Whether both are the same reason: times and counts in the sentences may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.code, self.attempt) == (other.code, other.attempt)
    }
}

/// A command that helps a waiting task to start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreeingCommand {
    /// What it does, for people.
    pub what: String,
    /// The command line.
    pub command: String,
}

/// A task as `show` prints it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShownTask {
    #[serde(flatten)]
    pub detail: Detail,
    /// Why it is not retried, in one word; `null` unless it has failed for good. Dead letters have the same field.
    pub reason: Option<Word>,
    /// The newest changes of its state, other than by a plain start or success, the oldest of them first. Its log has all.
    pub transitions: Vec<TransitionView>,
}

/// Retry and timeout settings of a task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyView {
    /// The maximum number of attempts.
    pub attempts: Option<u32>,
    /// The timeout of one attempt.
    pub timeout_ms: Option<i64>,
    /// How delays between attempts grow: `fixed`, `linear` or `exponential`.
    #[serde(deserialize_with = "word::read_option")]
    pub backoff: Option<Word>,
    /// The first delay.
    pub base_ms: Option<i64>,
    /// The longest delay.
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

/// A node's lease on a task.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseView {
    pub node: String,
    /// The fencing token.
    pub token: u64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptView {
    /// Counted from 1.
    pub number: u32,
    /// The token of its lease.
    pub token: u64,
    pub worker: String,
    pub node: String,
    /// `running`, `completed`, `failed`, `cancelled`, `handed_back` or `node_died`.
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    pub started_at: TimeView,
    pub finished_at: Option<TimeView>,
    pub duration_ms: Option<i64>,
    pub error: Option<ErrorView>,
    /// Files left in the task's folder.
    pub files: Vec<FileView>,
    /// Standard output of a command that did not succeed, or has not yet; if it is long, the beginning and the end. The output of a success
    /// is the task's `output`.
    pub stdout: Option<String>,
    /// The rendered prompt of an agent, up to 64 KiB; `prompt_bytes` is its whole size.
    pub prompt: Option<String>,
    pub prompt_bytes: Option<u64>,
    /// The sum over all models; null: not known.
    pub cost_usd: Option<f64>,
    /// Whether it may be more: the attempt could not report all that it spent.
    pub cost_estimated: bool,
    /// Tokens and money, by model.
    pub usage: Vec<UsageView>,
    /// The conversation of an agent, by which it can be resumed.
    pub session_id: Option<String>,
}

/// The output of `submit --wait`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waited {
    pub id: String,
    #[serde(deserialize_with = "word::read")]
    pub state: Word,
    pub output: Option<Json>,
    /// Why the task did not complete.
    pub error: Option<ErrorView>,
}

impl<'de> Deserialize<'de> for ShownTask {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Rest {
            #[serde(deserialize_with = "word::read_option")]
            reason: Option<Word>,
            transitions: Vec<TransitionView>,
        }
        let (detail, Rest { reason, transitions }) = in_two_parts(from)?;
        Ok(Self { detail, reason, transitions })
    }
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
        let (finished_at, ended_by) = match task.state {
            State::Completed { finished_at } => (Some(finished_at.into()), None),
            State::Failed { finished_at, reason } => (Some(finished_at.into()), Some(reason.name())),
            State::Cancelled { finished_at, reason } => (Some(finished_at.into()), Some(reason.name())),
            State::Queued { .. } | State::Claimed { .. } | State::Running { .. } => (None, None),
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
            about: about(task),
            finished_at,
            ended_by,
            error: ErrorView::of(task).map(|trouble| ErrorView { details: None, ..trouble }),
            progress: None,
        }
    }
}

impl ShownTask {
    #[must_use]
    pub fn new(found: &TaskDetail, held: Option<ThrottleView>, mut remains: AttemptRemains) -> Self {
        let (reason, transitions) = (PostMortem::from(&found.task).reason, remains.transitions());
        Self { reason, transitions, detail: Detail::new(found, held, remains) }
    }
}

impl Detail {
    /// Builds the view of a task, what throttles it, and what its attempts left.
    #[must_use]
    pub fn new(found: &TaskDetail, held: Option<ThrottleView>, mut remains: AttemptRemains) -> Self {
        let TaskDetail { task, attempts, steps, after, talks: _, scratch_token: _ } = found;
        let attempt = |attempt: &Attempt| AttemptView::new(attempt, &mut remains);
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
            node_deaths: task.node_deaths,
            folder: task.folder.clone(),
            traceparent: task.traceparent.as_ref().map(Traceparent::to_string),
            cancel_requested_at: task.cancel_requested_at.map(TimeView::from),
            lease: holder(&task.state).map(|node| LeaseView { node: node.to_string(), token: task.token }),
            first_failure: task.first_failure_at.map(TimeView::from),
            last_failure: task.last_failure_at.map(TimeView::from),
            attempts: attempts.iter().map(attempt).collect(),
            limit_key: task.limit_key.clone(),
            cost: task.cost,
            held,
            frees: Vec::new(),
            obstacles: Vec::new(),
        }
    }
}

pub(crate) fn steps(saved: &[Step]) -> BTreeMap<String, Json> {
    saved.iter().map(|step| (step.name.clone(), Json::from_text(&step.value))).collect()
}

fn holder(state: &State) -> Option<SessionId> {
    match state {
        State::Claimed { session } | State::Running { session, .. } => Some(*session),
        State::Queued { .. } | State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => {
            None
        }
    }
}

impl AttemptView {
    /// Takes the files and the output of the attempt out of `remains`.
    fn new(attempt: &Attempt, remains: &mut AttemptRemains) -> Self {
        let (end, prompt) = (attempt.end.as_ref(), attempt.conversation.prompt.as_ref());
        let succeeded = end.is_some_and(|end| end.ending == Ending::Success);
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
            files: remains.files(attempt.token),
            stdout: remains.stdout(attempt.token).filter(|_| !succeeded),
            prompt: prompt.map(|prompt| prompt.text.clone()),
            prompt_bytes: prompt.map(|prompt| prompt.bytes),
            cost_usd: attempt.conversation.cost().map(|cost| cost.usd()),
            cost_estimated: attempt.has_estimated_cost(),
            usage: attempt.conversation.usage.iter().map(UsageView::from).collect(),
            session_id: attempt.conversation.session.clone(),
        }
    }
}

/// The class of a failure is part of its error; the state is only `failed`.
pub(crate) const fn ending(ending: Ending) -> &'static str {
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
    /// Why the task was ended, if none of its own failures explains it; otherwise its last failure. A completed task has no error.
    #[must_use]
    pub fn of(task: &Task) -> Option<Self> {
        let ended = |class, message: String| {
            Some(Self { class, message, details: None, step: None, hint: None, exit_code: None })
        };
        match task.state {
            State::Completed { .. } => None,
            State::Failed { reason: reason @ FailReason::NodeDeaths, .. } => {
                ended(reason.name(), format!("{} nodes died while running it", task.node_deaths))
            }
            State::Failed { reason: reason @ FailReason::Deadline, .. } => {
                ended(reason.name(), "its deadline has passed".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Expired, .. } => {
                ended(reason.name(), "it did not complete before its not_after".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Dependency, .. } => {
                ended(reason.name(), "a task it depends on did not complete".to_owned())
            }
            State::Cancelled { reason: reason @ CancelReason::Replaced, .. } => {
                ended(reason.name(), "replaced by the next run of its schedule".to_owned())
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
