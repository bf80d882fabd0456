//! `ostler submit`: enqueues one task, and optionally waits for it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use ostler_core::{Overrides, StateName, Task, TaskId};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use ostler_store::{Clock as _, MAX_AFTER, Store, SystemClock, check_len, check_replacement};
use ostler_wire::json::Json;
use ostler_wire::task::{ErrorView, Submitted, Waited};

use super::{Console, payload, show};
use crate::args::{Submit, TaskName};
use crate::exit::{Code, refused, say};
use crate::print::{Format, visible};
use crate::store_location::IfMissing;

/// The polling interval of --wait, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOK: Duration = Duration::from_millis(100);

pub(super) async fn run(console: &Console, submit: Submit) -> anyhow::Result<Code> {
    let place = console.place()?;
    let (wait, wait_timeout, queue) = (submit.wait, submit.wait_timeout, submit.queue.clone());
    let others = submit.plans.after.clone();
    let (delay, deadline) = (submit.delay.filter(|_| submit.at.is_none()), submit.plans.deadline);
    let mut task = task(submit, place.bounds()).await?;
    // Checked before the store is opened: a refused task creates no store.
    check_len("tasks to wait for by one", others.len(), MAX_AFTER)?;
    check_replacement(task.unique.as_ref(), others.len())?;
    place.bounds().check_tasks(std::slice::from_ref(&task))?;
    // Tasks to wait for are in an existing store.
    let missing = if others.is_empty() { IfMissing::Make } else { IfMissing::Refuse };
    let store = place.open(missing).await?;
    if delay.is_some() || deadline.is_some() {
        // The store's clock decides, and it may be another machine's.
        let now = store.now().await?;
        task.run_at = delay.map(|delay| now.after(delay)).or(task.run_at);
        task.deadline = deadline.map(|time| now.after(time));
    }
    for other in &others {
        task.after.push(match other {
            TaskName::Id(id) => *id,
            TaskName::Key(_) => show::named(store.as_ref(), other, &queue).await?.task.id,
        });
    }
    let answers = store.enqueue(vec![task.clone()]).await?;
    let answer = *answers.first().expect("one task has one answer");
    if answer == Enqueued::Existing(task.id) {
        is_the_same(store.as_ref(), &task).await?;
    }
    let (id, result) = became(console, answer, &task)?;
    if !wait {
        console.out.answer(&Submitted { id: id.to_string(), result }, |_| format!("{id}\n"))?;
        return Ok(Code::Done);
    }
    if console.out.format() == Format::People {
        say(&format!("{id} is enqueued; waiting for it to finish"));
    }
    let waited = waited_for(store.as_ref(), id);
    let task = match wait_timeout {
        None => waited.await?,
        Some(timeout) => tokio::time::timeout(timeout, waited).await.unwrap_or_else(|_| {
            let sentence = format!("{id} has not finished in time and continues; see: ostler show {id}");
            Err(refused(Code::WorkFailed, sentence))
        })?,
    };
    told(console, &task)
}

/// Refuses a task whose id belongs to a different task: its payload would be lost silently.
async fn is_the_same(store: &dyn Store, task: &NewTask) -> anyhow::Result<()> {
    match store.show(TaskRef::Id(task.id)).await? {
        Some(found) if !task.is_repeated_by(&found.task) => {
            let sentence = format!(
                "the id {} belongs to another task: \"{}\" in the queue \"{}\"; nothing was enqueued",
                task.id,
                visible(&found.task.kind),
                visible(&found.task.queue)
            );
            Err(refused(Code::BadInput, sentence))
        }
        Some(_) | None => Ok(()),
    }
}

/// The task that now exists, and the result for the submitted one. Tells the user if another task was kept.
fn became(console: &Console, answer: Enqueued, task: &NewTask) -> anyhow::Result<(TaskId, &'static str)> {
    match answer {
        Enqueued::Created(id) => Ok((id, "created")),
        Enqueued::Existing(id) if id == task.id => {
            say("a task with this id already exists and was not changed");
            Ok((id, "existing"))
        }
        Enqueued::Existing(id) => {
            say("a task with this key already exists; this is its id");
            Ok((id, "existing"))
        }
        Enqueued::Replaced(id) => {
            say("replaced the waiting task that had this key; this is its id");
            Ok((id, "replaced"))
        }
        Enqueued::Rejected { holder } => {
            if console.out.format() == Format::Json {
                console.out.json(&Submitted { id: holder.to_string(), result: "rejected" })?;
            }
            Err(refused(Code::BadInput, format!("task {holder} already has this key; nothing was enqueued")))
        }
        Enqueued::NoSuchTask(id) => {
            Err(refused(Code::NotFound, format!("there is no task {id} to run after; nothing was enqueued")))
        }
        Enqueued::QueueFull { limit } => {
            let sentence = format!(
                "the queue \"{}\" is full: {limit} tasks are waiting, its limit",
                visible(&task.queue)
            );
            Err(refused(Code::QueueFull, sentence))
        }
    }
}

/// The task as described by the options, without its dependencies.
async fn task(submit: Submit, bounds: ostler_store::Bounds) -> anyhow::Result<NewTask> {
    let (now, plans) = (SystemClock.now(), submit.plans);
    let payload = match submit.payload {
        Some(given) => payload::read(given, bounds).await?,
        None => "null".to_owned(),
    };
    let folder = submit.folder.as_deref().map(folder).transpose()?;
    let id = match submit.id {
        Some(id) => id,
        None => TaskId(ostler::ids().context("cannot get random bytes from the system")?()),
    };
    Ok(NewTask {
        priority: submit.priority.unwrap_or_default(),
        run_at: submit.at.or_else(|| submit.delay.map(|delay| now.after(delay))),
        unique: submit.key.map(|key| Unique {
            hold: plans.key_for,
            on_conflict: plans.if_taken.unwrap_or_default(),
            ..Unique::new(key)
        }),
        on_failed: plans.if_failed.unwrap_or_default(),
        deadline: plans.deadline.map(|time| now.after(time)),
        limit_key: submit.limit_key,
        cost: submit.cost,
        overrides: Overrides { attempts: submit.attempts, timeout: submit.timeout, ..Overrides::NONE },
        not_after: submit.not_after,
        folder,
        ..NewTask::new(id, submit.queue, submit.kind, payload)
    })
}

/// The absolute path of the folder: the node has another current folder.
fn folder(given: &Path) -> anyhow::Result<String> {
    let wrong = |sentence: &str| refused(Code::BadInput, format!("folder: {} {sentence}", given.display()));
    let whole = std::path::absolute(given).map_err(|error| wrong(&format!("cannot be found: {error}")))?;
    if !whole.is_dir() {
        return Err(wrong("is not a folder; create it first"));
    }
    whole.into_os_string().into_string().map_err(|_| wrong("must be UTF-8 text"))
}

async fn waited_for(store: &dyn Store, id: TaskId) -> anyhow::Result<Task> {
    let mut pause = FIRST_LOOK;
    loop {
        let found = store.show(TaskRef::Id(id)).await?;
        let gone = || refused(Code::NotFound, format!("{id} was removed while waiting for it"));
        let task = found.ok_or_else(gone)?.task;
        if task.state.name().is_terminal() {
            return Ok(task);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}

/// Prints the outcome.
fn told(console: &Console, task: &Task) -> anyhow::Result<Code> {
    let completed = task.state.name() == StateName::Completed;
    if console.out.format() == Format::Json {
        console.out.json(&Waited::from(task))?;
    } else if completed {
        console
            .out
            .json_line(task.output.as_deref().map(Json::from_text).as_ref().map_or("null", Json::as_str))?;
    }
    if completed {
        return Ok(Code::Done);
    }
    let why =
        ErrorView::of(task).map(|trouble| format!(": {}", visible(&trouble.message))).unwrap_or_default();
    Err(refused(Code::WorkFailed, format!("{} {}{why}", task.id, task.state.name().name())))
}
