//! Tasks by a node: lists, one task, its log, and actions.

use std::ffi::OsString;

use ostler::view::action::{ActionResult, ActionView};
use ostler::view::event::EventView;
use ostler::view::task::{Detail, Summary};
use ostler::{
    BulkAction, LettersPage, RemoteClient, RemoteError, RemoteErrorKind, Replay, StepsOnReplay, TasksPage,
};
use ostler_core::StateName;
use ostler_ops::act::Act;
use ostler_ops::selection::{MAX_SELECTED, SelectedBy, Selector};
use ostler_ops::task_name::NamedTask;
use ostler_ops::{OpsError, Refusal};
use ostler_store::views::Filter;
use ostler_store::{Bounds, Clock as _, MAX_PAGE, SystemClock};

use crate::args::{Amend, Filters, List, Logs, One, PageArgs, Retry, Select};
use crate::commands::log_lines::{LogLines, SilentTask};
use crate::commands::selection::{Chosen, report, report_sum};
use crate::commands::{Console, list as list_command, payload};
use crate::exit::{Code, refused};
use crate::print::{self, Format};

/// The client for a task, and the name that it has there.
pub(super) fn named(node: &RemoteClient, which: &NamedTask) -> (RemoteClient, String) {
    match which {
        NamedTask::Id(id) => (node.clone(), id.to_string()),
        NamedTask::Part(part) => (node.clone(), part.to_string()),
        NamedTask::Key { queue, key } => (node.on(queue.as_str()), format!("key:{key}")),
    }
}

pub(super) async fn list(console: &Console, node: &RemoteClient, list: &List) -> anyhow::Result<Code> {
    let filter = list.filter();
    let (tasks, cursor) = pages(console, &list.page, async |cursor, limit| {
        node.list_all(&filter, cursor, limit).await.map(|page: TasksPage| (page.tasks, page.cursor))
    })
    .await?;
    list_command::print(console, cursor.as_deref(), &tasks, &tasks)
}

/// Reads pages until there are as many rows as are wanted, and returns where the list goes on.
async fn pages<T>(
    console: &Console,
    part: &PageArgs,
    page: impl AsyncFn(Option<&str>, usize) -> Result<(Vec<T>, Option<String>), RemoteError>,
) -> Result<(Vec<T>, Option<String>), RemoteError> {
    let (mut rows, mut cursor) = (Vec::new(), part.cursor.map(|cursor| cursor.to_string()));
    let most = part.most(console.out);
    loop {
        let (more, next) = page(cursor.as_deref(), (most - rows.len()).min(MAX_PAGE)).await?;
        rows.extend(more);
        cursor = next;
        if cursor.is_none() || rows.len() >= most {
            return Ok((rows, cursor));
        }
    }
}

pub(super) async fn dead_list(
    console: &Console,
    node: &RemoteClient,
    filters: &Filters,
    part: &PageArgs,
) -> anyhow::Result<Code> {
    // All of them have failed, and the API takes no state here.
    let filter = part.ordered(Filter { state: None, ..filters.filter() });
    let (letters, cursor) = pages(console, part, async |cursor, limit| {
        node.dead_letters(&filter, cursor, limit).await.map(|page: LettersPage| (page.letters, page.cursor))
    })
    .await?;
    let tasks: Vec<Summary> = letters.iter().map(|letter| letter.summary.clone()).collect();
    list_command::print(console, cursor.as_deref(), &tasks, &letters)
}

pub(super) async fn show(console: &Console, node: &RemoteClient, one: &One) -> anyhow::Result<Code> {
    let (node, name) = named(node, &one.which());
    let view = node.show(name).await?;
    console.out.answer(&view, |looks| print::show(&view.detail, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn dead_show(console: &Console, node: &RemoteClient, one: &One) -> anyhow::Result<Code> {
    let (node, name) = named(node, &one.which());
    let view = node.dead_letter(name).await?;
    console.out.answer(&view, |looks| print::show(&view.detail, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn logs(console: &Console, node: &RemoteClient, logs: &Logs) -> anyhow::Result<Code> {
    if logs.html {
        return Err(super::not_here("a page is made from the records of a store"));
    }
    let (node, name) = named(node, &logs.one.which());
    let shown = node.show(&name).await?.detail;
    let id = shown.summary.id.clone();
    let mut lines = LogLines::new(console, &logs.shape);
    lines.know_attempts(attempts(&shown));
    if !logs.follow {
        lines.check_attempt(&id)?;
    }
    let mut after = 0;
    loop {
        let page =
            if logs.raw { node.raw_events(&id, after).await? } else { node.events(&id, after).await? };
        print(&mut lines, &node, &id, &page.events).await?;
        after = page.after.or(page.events.last().map(|event| event.number)).unwrap_or(after);
        if page.after.is_none() {
            break;
        }
    }
    if logs.follow {
        lines.up_to_date()?;
        let events = node.follow(&id, after);
        let mut events = if logs.raw { events.with_raw() } else { events };
        while let Some(event) = events.next().await? {
            print(&mut lines, &node, &id, &[event]).await?;
        }
    }
    let shown = node.show(&id).await?.detail;
    let silent = match (shown.summary.finished_at.is_some(), shown.output.is_some()) {
        (false, _) => SilentTask::Running,
        (true, false) => SilentTask::Ended,
        (true, true) => SilentTask::WithOutput,
    };
    lines.end(&id, silent)?;
    Ok(Code::Done)
}

/// Prints events, whose attempts may be new.
async fn print(
    lines: &mut LogLines<'_>,
    node: &RemoteClient,
    id: &str,
    events: &[EventView],
) -> anyhow::Result<()> {
    if lines.must_know_attempts(events) {
        lines.know_attempts(attempts(&node.show(id).await?.detail));
    }
    lines.print(events)
}

/// The numbers and tokens of the attempts of a task.
fn attempts(shown: &Detail) -> impl Iterator<Item = (u32, u64)> {
    shown.attempts.iter().map(|attempt| (attempt.number, attempt.token))
}

pub(super) async fn amend(console: &Console, node: &RemoteClient, amend: &Amend) -> anyhow::Result<Code> {
    let overrides = amend.rules.overrides();
    ostler_ops::tasks::check_amendment(&overrides)?;
    let (node, name) = named(node, &amend.one.which());
    let answer = node.amend(name, overrides).await?;
    console.out.answer(&answer, |_| format!("{} amended\n", answer.id))?;
    Ok(Code::Done)
}

/// What a command does to tasks.
pub(super) enum RemoteAct {
    Cancel,
    Retry(Replay),
    Copy(Option<String>),
    Replay(Replay),
    Drop,
}

impl RemoteAct {
    const fn verb(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry(_) => "retry",
            Self::Copy(_) => "enqueue a copy of",
            Self::Replay(_) => "replay",
            Self::Drop => "remove",
        }
    }

    async fn one(&self, node: &RemoteClient, name: &str) -> Result<ActionView, RemoteError> {
        match self {
            Self::Cancel => node.cancel(name).await,
            Self::Retry(how) => node.replay(name, how.clone()).await,
            Self::Copy(payload) => node.copy(name, payload.clone()).await,
            Self::Replay(how) => node.replay_dead_letter(name, how.clone()).await,
            Self::Drop => node.drop_dead_letter(name).await,
        }
    }

    /// The states to which it applies.
    fn states(&self) -> &'static [StateName] {
        match self {
            Self::Cancel => Act::Cancel.states(),
            Self::Retry(how) => Act::Replay(how.clone()).states(),
            Self::Copy(_) => &[StateName::Completed],
            Self::Replay(_) | Self::Drop => Act::DropLetters.states(),
        }
    }

    /// The action on many, and what becomes of steps.
    fn many(&self) -> Option<(BulkAction, StepsOnReplay)> {
        match self {
            Self::Cancel => Some((BulkAction::Cancel, StepsOnReplay::Keep)),
            Self::Retry(how) => Some((BulkAction::Retry, how.steps)),
            Self::Replay(how) => Some((BulkAction::Replay, how.steps)),
            Self::Drop => Some((BulkAction::Drop, StepsOnReplay::Keep)),
            Self::Copy(_) => None,
        }
    }
}

pub(super) async fn retry(console: &Console, node: &RemoteClient, retry: Retry) -> anyhow::Result<Code> {
    let payload = match retry.payload {
        Some(given) => Some(payload::read(given, Bounds::default()).await?),
        None => None,
    };
    let steps = if retry.from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
    let what =
        if retry.again { RemoteAct::Copy(payload) } else { RemoteAct::Retry(Replay { steps, payload }) };
    act(console, node, &retry.select, &what).await
}

pub(super) async fn dead_replay(
    console: &Console,
    node: &RemoteClient,
    select: &Select,
    steps: StepsOnReplay,
    payload: Option<OsString>,
) -> anyhow::Result<Code> {
    if payload.is_some() && !Chosen::of(select)?.is_one() {
        return Err(refused(Code::BadInput, "--payload needs exactly one dead letter, named by id or key:K"));
    }
    let payload = match payload {
        Some(given) => Some(payload::read(given, Bounds::default()).await?),
        None => None,
    };
    act(console, node, select, &RemoteAct::Replay(Replay { steps, payload })).await
}

pub(super) async fn act(
    console: &Console,
    node: &RemoteClient,
    select: &Select,
    what: &RemoteAct,
) -> anyhow::Result<Code> {
    let chosen = Chosen::of(select)?;
    let names = match chosen.selector() {
        Selector::Named(names) => names,
        Selector::Matching(filter) => return act_on_all(console, node, &chosen, filter, what).await,
    };
    let mut answers = Vec::with_capacity(names.len());
    for name in names {
        let (node, text) = named(node, name);
        answers.push(match what.one(&node, &text).await {
            Ok(answer) => answer,
            Err(error) => declined(name, &text, error)?,
        });
    }
    report(console, SelectedBy::Name, &answers)
}

/// A task that is missing or whose state does not allow it is an answer; anything else is an error.
fn declined(name: &NamedTask, text: &str, error: RemoteError) -> Result<ActionView, RemoteError> {
    let word = |name: &str| error.details[name].as_str().map(str::to_owned);
    let result = match (error.kind, name) {
        (RemoteErrorKind::NotFound, NamedTask::Id(_)) => ActionResult::NotFound,
        (RemoteErrorKind::Conflict, _) if error.code == "refused" => ActionResult::Refused,
        _ => return Err(error),
    };
    let (state, holder) = (word("state"), word("holder"));
    let told =
        serde_json::json!({ "id": text, "result": result, "state": state, "copy": null, "holder": holder });
    serde_json::from_value(told).map_err(|_| error)
}

async fn act_on_all(
    console: &Console,
    node: &RemoteClient,
    chosen: &Chosen,
    filter: &Filter,
    what: &RemoteAct,
) -> anyhow::Result<Code> {
    // An action of the API counts, and JSON names each task; copies are made one by one in any case.
    let (Some((action, steps)), Format::People) = (what.many(), console.out.format()) else {
        return act_on_each(console, node, chosen, filter, what).await;
    };
    let input = ostler::filter_input(filter);
    let preview = node.preview(action, &input).await?;
    let tasks = usize::try_from(preview.tasks).unwrap_or(usize::MAX);
    if let Some(code) = chosen.declined(what.verb(), tasks).await? {
        return Ok(code);
    }
    let begun = node.act(action, &input, &preview.cutoff.to_string(), steps).await?;
    let done = node.wait_action(&begun.id).await?;
    report_sum(console, &done)
}

/// The tasks that match, in the states to which the action applies unless the filter has one.
async fn matching(node: &RemoteClient, filter: &Filter, states: &[StateName]) -> anyhow::Result<Vec<String>> {
    let states = filter.state.as_ref().map_or(states, std::slice::from_ref);
    let mut ids = Vec::new();
    for state in states {
        let (filter, mut cursor) = (Filter { state: Some(*state), ..filter.clone() }, None::<String>);
        loop {
            let found: TasksPage = node.list_all(&filter, cursor.as_deref(), MAX_PAGE).await?;
            ids.extend(found.tasks.into_iter().map(|task| task.id));
            if ids.len() > MAX_SELECTED {
                return Err(OpsError::from(Refusal::TooManyTasks(MAX_SELECTED)).into());
            }
            cursor = found.cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(ids)
}

async fn act_on_each(
    console: &Console,
    node: &RemoteClient,
    chosen: &Chosen,
    filter: &Filter,
    what: &RemoteAct,
) -> anyhow::Result<Code> {
    let ids = matching(node, filter, what.states()).await?;
    if let Some(code) = chosen.declined(what.verb(), ids.len()).await? {
        return Ok(code);
    }
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(match what.one(node, &id).await {
            Ok(answer) => answer,
            Err(error) => declined(&NamedTask::Id(id.parse().map_err(anyhow::Error::msg)?), &id, error)?,
        });
    }
    report(console, SelectedBy::Filter, &answers)
}
