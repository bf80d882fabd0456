//! `ostler submit`: enqueues one task, and optionally waits for it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ostler_core::{KeyHold, Overrides, StateName, TaskId, Traceparent};
use ostler_ops::obstacle::Candidate;
use ostler_ops::submit::{self, SubmitAnswer, SubmitRequest};
use ostler_runtime::Ids;
use ostler_store::calls::NewTask;
use ostler_store::unique::Unique;
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::json::Json;
use ostler_wire::task::Waited;

use super::obstacles::{tell, tell_at_once};
use super::{Console, payload, submit_lines, task_name};
use crate::args::{Submit, TaskOptions};
use crate::exit::{Code, refused, say};
use crate::print::{Format, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, submit: Submit) -> anyhow::Result<Code> {
    let Submit { queue, kind, jsonl, options, wait, wait_timeout } = submit;
    if let Some(file) = jsonl {
        return submit_lines::run(console, file, queue, kind).await;
    }
    let (Some(queue), Some(kind)) = (queue, kind) else { unreachable!("clap requires both") };
    let place = console.place()?;
    let payload = match options.payload.clone() {
        Some(given) => payload::read(given, place.bounds()).await?,
        None => "null".to_owned(),
    };
    let mut request = request(queue, kind, payload, options, &ids()?)?;
    // Checked before the store is opened: a refused task creates no store.
    request.check(place.bounds(), SystemClock.now())?;
    // Tasks to wait for are in an existing store.
    let missing = if request.after.is_empty() { IfMissing::Make } else { IfMissing::Refuse };
    let store = place.open(missing).await?;
    request.after = task_name::all_whole(store.as_ref(), request.after).await?;
    let answer = submit::submit(store.as_ref(), &request).await?;
    let id = answer.id();
    accepted(console, answer)?;
    if !wait {
        console.out.answer(&answer.view(), |_| format!("{id}\n"))?;
        if is_new(answer) {
            tell_at_once(store.as_ref(), &[Candidate::from(&request)]).await;
        }
        return Ok(Code::Done);
    }
    wait_for(console, store.as_ref(), id, wait_timeout).await
}

/// Waits for a task, and prints its outcome.
pub(super) async fn wait_for(
    console: &Console,
    store: &dyn Store,
    id: TaskId,
    timeout: Option<Duration>,
) -> anyhow::Result<Code> {
    if console.out.format() == Format::People {
        say(&format!("{id} is enqueued; waiting for it to finish"));
    }
    let ended = submit::wait_and_tell(store, id, timeout, &mut |obstacle| tell(obstacle)).await?;
    told(console, &Waited::from(&ended))
}

/// Whether a task was enqueued: another one may have ended since.
pub(super) const fn is_new(answer: SubmitAnswer) -> bool {
    match answer {
        SubmitAnswer::Created(_) | SubmitAnswer::Replaced(_) => true,
        SubmitAnswer::SameId(_) | SubmitAnswer::SameKey(_) | SubmitAnswer::Rejected(_) => false,
    }
}

pub(super) fn ids() -> anyhow::Result<Ids> {
    ostler::ids().context("cannot get random bytes from the system")
}

/// Tells the user if another task was kept. A rejected task is an error.
pub(super) fn accepted(console: &Console, answer: SubmitAnswer) -> anyhow::Result<()> {
    match answer {
        SubmitAnswer::Created(_) => {}
        SubmitAnswer::SameId(_) => say("a task with this id already exists and was not changed"),
        SubmitAnswer::SameKey(_) => say("a task with this key already exists; this is its id"),
        SubmitAnswer::Replaced(_) => say("replaced the waiting task that had this key; this is its id"),
        SubmitAnswer::Rejected(holder) => {
            if console.out.format() == Format::Json {
                console.out.json(&answer.view())?;
            }
            return Err(rejected(holder));
        }
    }
    Ok(())
}

pub(super) fn rejected(holder: TaskId) -> anyhow::Error {
    let sentence = format!(
        "task {holder} already has this key; nothing was enqueued; see --key-until for how long it is taken"
    );
    refused(Code::BadInput, sentence)
}

/// The submission as described by the options.
pub(super) fn request(
    queue: String,
    kind: String,
    payload: String,
    options: TaskOptions,
    ids: &Ids,
) -> anyhow::Result<SubmitRequest> {
    let plans = options.plans;
    let id = options.id.unwrap_or_else(|| TaskId(ids()));
    let after = plans.after.iter().map(|other| other.in_queue(&queue)).collect();
    let task = NewTask {
        priority: options.priority.unwrap_or_default(),
        run_at: options.at,
        unique: options.key.map(|key| Unique {
            hold: plans.key_until.or(plans.key_for.map(KeyHold::For)),
            on_conflict: plans.if_taken.unwrap_or_default(),
            ..Unique::new(key)
        }),
        on_failed: plans.if_failed.unwrap_or_default(),
        limit_key: options.limit_key,
        cost: options.cost,
        overrides: Overrides { attempts: options.attempts, timeout: options.timeout, ..Overrides::NONE },
        not_after: options.not_after,
        folder: options.folder.as_deref().map(folder).transpose()?,
        traceparent: options.traceparent.or_else(current_trace),
        ..NewTask::new(id, queue, kind, payload)
    };
    Ok(SubmitRequest { task, delay: options.delay, deadline: plans.deadline, after })
}

/// The trace that this process belongs to. A value that is none was not meant for Ostler.
fn current_trace() -> Option<Traceparent> {
    std::env::var(Traceparent::VARIABLE).ok()?.parse().ok()
}

/// The absolute path of the folder: the node has another current folder.
pub(super) fn folder(given: &Path) -> anyhow::Result<String> {
    let wrong = |sentence: &str| refused(Code::BadInput, format!("folder: {} {sentence}", given.display()));
    let whole = std::path::absolute(given).map_err(|error| wrong(&format!("cannot be found: {error}")))?;
    if !whole.is_dir() {
        return Err(wrong("is not a folder; create it first"));
    }
    whole.into_os_string().into_string().map_err(|_| wrong("must be UTF-8 text"))
}

/// Prints the outcome.
pub(super) fn told(console: &Console, task: &Waited) -> anyhow::Result<Code> {
    let completed = task.state == StateName::Completed.name();
    if console.out.format() == Format::Json {
        console.out.json(task)?;
    } else if completed {
        console.out.json_line(task.output.as_ref().map_or("null", Json::as_str))?;
    }
    if completed {
        return Ok(Code::Done);
    }
    let why =
        task.error.as_ref().map(|trouble| format!(": {}", visible(&trouble.message))).unwrap_or_default();
    Err(refused(Code::WorkFailed, format!("{} {}{why}", task.id, task.state)))
}
