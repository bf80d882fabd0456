//! `ostler submit --server` and `ostler run --server`: one task or many lines, by a node.

use std::path::PathBuf;
use std::time::Duration;

use ostler::{ApiMethod, ApiRequest, RemoteClient, RemoteError, RemoteErrorKind};
use ostler_core::{KeyHold, TaskId, Traceparent};
use ostler_ops::run::RunRequest;
use ostler_ops::submit::{SubmitAnswer, SubmitRequest};
use ostler_ops::task_name::NamedTask;
use ostler_ops::{OpsError, Unsuccessful};
use ostler_store::{Bounds, Clock as _, SystemClock};
use ostler_wire::input::TaskInput;
use ostler_wire::task::{SubmitResult, Submitted, SubmittedLine, Waited};
use ostler_wire::time::TimeView;
use serde_json::json;
use serde_json::value::RawValue;

use crate::args::{Continue, RunArgs, Submit, Wait};
use crate::commands::obstacles::{keep_telling, tell_at_once_by};
use crate::commands::submit::{accepted, folder, ids, is_new, request, told};
use crate::commands::wait::{WaitReport, WaitTime};
use crate::commands::{Console, continuation, payload, submit_lines};
use crate::exit::{Code, refused, say};
use crate::print::Format;

pub(super) async fn run(console: &Console, node: &RemoteClient, submit: Submit) -> anyhow::Result<Code> {
    let Submit { queue, kind, jsonl, options, wait, wait_timeout } = submit;
    if let Some(file) = jsonl {
        return lines(console, node, file, queue, kind).await;
    }
    let (Some(queue), Some(kind)) = (queue, kind) else { unreachable!("clap requires both") };
    let payload = match options.payload.clone() {
        Some(given) => payload::read(given, Bounds::default()).await?,
        None => "null".to_owned(),
    };
    let request = request(queue, kind, payload, options, &ids()?)?;
    request.check(Bounds::default(), SystemClock.now())?;
    let answer = answer(&request, node.submit_input(&input(&request)?, None).await)?;
    accepted(console, answer)?;
    let id = answer.id();
    if !wait {
        console.out.answer(&answer.view(), |_| format!("{id}\n"))?;
        if is_new(answer) {
            tell_at_once_by(node, id).await;
        }
        return Ok(Code::Done);
    }
    wait_for(console, node, id, wait_timeout).await
}

/// `ostler run --server`. The pool is one of the node, whose config is not known here.
pub(super) async fn prompt(console: &Console, node: &RemoteClient, asked: RunArgs) -> anyhow::Result<Code> {
    let RunArgs { prompt, folder: work, id, max_iterations, model, pool, wait, wait_timeout } = asked;
    let Some(queue) = pool else {
        return Err(refused(Code::BadInput, "name the pool of the node that runs it with --pool"));
    };
    let run = RunRequest {
        prompt: continuation::prompt_of(prompt)?,
        folder: work.as_deref().map(folder).transpose()?,
        id,
        max_iterations,
        model,
    };
    let request = run.request(&queue, TaskId(ids()?()));
    request.check(Bounds::default(), SystemClock.now())?;
    let answer = answer(&request, node.submit_input(&input(&request)?, None).await)?;
    crate::commands::run::accepted(answer)?;
    if wait {
        return wait_for(console, node, answer.id(), wait_timeout).await;
    }
    console.out.answer(&answer.view(), |_| format!("{}\n", answer.id()))?;
    Ok(Code::Done)
}

/// Waits for a task, and prints its outcome.
async fn wait_for(
    console: &Console,
    node: &RemoteClient,
    id: TaskId,
    within: Option<Duration>,
) -> anyhow::Result<Code> {
    if console.out.format() == Format::People {
        say(&format!("{id} is enqueued; waiting for it to finish"));
    }
    told(console, &end_of(node, id, within).await?)
}

/// The task when it has ended, or the error of a store if that takes too long.
async fn end_of(node: &RemoteClient, id: TaskId, within: Option<Duration>) -> anyhow::Result<Waited> {
    let ended = async {
        match within {
            Some(timeout) => node.wait_within(id, timeout).await,
            None => node.wait(id).await,
        }
    };
    let waited = tokio::select! {
        waited = ended => waited,
        never = keep_telling(node, id) => match never {},
    };
    waited.map_err(|error| {
        if error.kind == RemoteErrorKind::NotFinished {
            OpsError::from(Unsuccessful::NotFinished(id)).into()
        } else {
            error.into()
        }
    })
}

/// `ostler wait --server`.
pub(super) async fn wait(console: &Console, node: &RemoteClient, wait: &Wait) -> anyhow::Result<Code> {
    let mut ids: Vec<TaskId> = Vec::new();
    for task in &wait.tasks {
        let (node, name) = super::tasks::named(node, &task.in_queue(&wait.queue));
        let id = node.show(name).await?.detail.summary.id;
        ids.push(id.parse().map_err(|_| refused(Code::Store, "the node's answer has no id of a task"))?);
    }
    let time = WaitTime::new(wait.timeout);
    let mut report = WaitReport::new(console);
    for id in ids {
        report.add(end_of(node, id, time.left()).await?)?;
    }
    report.end()
}

/// `ostler continue --server`.
pub(super) async fn go_on(console: &Console, node: &RemoteClient, asked: Continue) -> anyhow::Result<Code> {
    let Continue { one, prompt, to, wait } = asked;
    let prompt = continuation::prompt_of(prompt)?;
    let (node, name) = super::tasks::named(node, &one.which());
    let request = ApiRequest::new(ApiMethod::Post, &["tasks", &name, "continue"])
        .query("queue", Some(node.queue()))
        .body(&json!({ "prompt": prompt, "to": to }))
        .keyed(&node.new_id().to_string());
    let made: Submitted = node.request(request).await?;
    if !wait {
        console.out.answer(&made, |_| format!("{}\n", made.id))?;
        return Ok(Code::Done);
    }
    let id = made.id.parse().map_err(|_| refused(Code::Store, "the node's answer has no id of a task"))?;
    told(console, &end_of(&node, id, None).await?)
}

async fn lines(
    console: &Console,
    node: &RemoteClient,
    file: PathBuf,
    queue: Option<String>,
    kind: Option<String>,
) -> anyhow::Result<Code> {
    submit_lines::run_on(console, submit_lines::Target::Node(node.clone()), file, queue, kind).await
}

/// What became of one task, in the words of a store.
fn answer(request: &SubmitRequest, told: Result<Submitted, RemoteError>) -> anyhow::Result<SubmitAnswer> {
    match told {
        Ok(done) => {
            let id: TaskId = done.id.parse().unwrap_or(request.task.id);
            Ok(match done.result {
                SubmitResult::Created => SubmitAnswer::Created(id),
                SubmitResult::Replaced => SubmitAnswer::Replaced(id),
                SubmitResult::Existing if id == request.task.id => SubmitAnswer::SameId(id),
                SubmitResult::Existing
                | SubmitResult::Rejected
                | SubmitResult::IdTaken
                | SubmitResult::NoSuchTask
                | SubmitResult::QueueFull => SubmitAnswer::SameKey(id),
            })
        }
        Err(error) if error.kind == RemoteErrorKind::Conflict && error.code == "key_taken" => {
            let holder = error.details["holder"].as_str().and_then(|holder| holder.parse().ok());
            holder.map(SubmitAnswer::Rejected).ok_or_else(|| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Stores a batch of lines, and returns what became of each, with why nothing was enqueued.
pub(crate) async fn batch(
    node: &RemoteClient,
    lines: &[u64],
    requests: &[SubmitRequest],
) -> anyhow::Result<Vec<(SubmittedLine, Option<anyhow::Error>)>> {
    let inputs = requests.iter().map(input).collect::<anyhow::Result<Vec<_>>>()?;
    let answers = node.submit_inputs(&inputs, None).await?;
    let why = |answer: &SubmittedLine| {
        let (kind, sentence) = match answer.result {
            SubmitResult::Created | SubmitResult::Existing | SubmitResult::Replaced => return None,
            SubmitResult::Rejected => {
                let holder = answer.id.as_deref().and_then(|id| id.parse().ok())?;
                return Some(crate::commands::submit::rejected(holder));
            }
            SubmitResult::IdTaken => (RemoteErrorKind::Conflict, "the id belongs to another task"),
            SubmitResult::NoSuchTask => (RemoteErrorKind::NotFound, "a task to wait for does not exist"),
            SubmitResult::QueueFull => (RemoteErrorKind::QueueFull, "the queue is full"),
        };
        let (code, message) = (answer.result.name().to_owned(), sentence.to_owned());
        Some(
            RemoteError { kind, code, message, details: serde_json::Value::Null, status: None, task: None }
                .into(),
        )
    };
    let numbered = answers.into_iter().zip(lines).map(|(mut answer, line)| {
        answer.line = *line;
        answer
    });
    Ok(numbered.map(|answer| (answer.clone(), why(&answer))).collect())
}

/// A submission as the API has it. Its id is made here, so that it can be sent again.
pub(super) fn input(request: &SubmitRequest) -> anyhow::Result<TaskInput> {
    let SubmitRequest { task, delay, deadline, after } = request;
    let (time, span) =
        (|at| TimeView::from(at).to_string(), |span: &Duration| format!("{}ms", span.as_millis()));
    let unique = task.unique.as_ref();
    let (key_until, key_for) = match unique.and_then(|unique| unique.hold) {
        Some(KeyHold::For(length)) => (None, Some(span(&length))),
        Some(hold @ (KeyHold::Removed | KeyHold::End)) => (hold.name().map(str::to_owned), None),
        None => (None, None),
    };
    let after: Vec<String> = after
        .iter()
        .map(|name| match name {
            NamedTask::Id(id) => id.to_string(),
            NamedTask::Part(part) => part.to_string(),
            NamedTask::Key { key, .. } => format!("key:{key}"),
        })
        .collect();
    // Read from an empty object, and then filled: only `ostler-wire` makes views.
    let mut input: TaskInput = serde_json::from_str("{}")?;
    input.queue = Some(task.queue.clone());
    input.kind = Some(task.kind.clone());
    input.payload = Some(RawValue::from_string(task.payload.clone())?);
    input.priority = Some(task.priority.points());
    input.delay = delay.as_ref().map(span);
    input.at = task.run_at.map(time);
    input.id = Some(task.id.to_string());
    input.key = unique.map(|unique| unique.key.clone());
    input.timeout = task.overrides.timeout.as_ref().map(span);
    input.attempts = task.overrides.attempts.map(u64::from);
    input.folder = task.folder.clone();
    input.traceparent = task.traceparent.as_ref().map(Traceparent::to_string);
    input.not_after = task.not_after.map(time);
    input.limit_key = task.limit_key.clone();
    input.cost = task.cost.map(u64::from);
    input.key_for = key_for;
    input.key_until = key_until;
    input.if_taken = unique.map(|unique| unique.on_conflict.name().to_owned());
    input.if_failed = (!after.is_empty()).then(|| task.on_failed.name().to_owned());
    input.after = after;
    input.deadline = deadline.as_ref().map(span);
    Ok(input)
}
