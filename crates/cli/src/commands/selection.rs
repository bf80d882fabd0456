//! Selections of tasks: by name, or by filters with a confirmation. And the report of what was done.

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use ostler_core::{StateName, TaskId};
use ostler_store::views::Filter;
use ostler_store::{MAX_PAGE, Store};
use ostler_wire::action::{ActionResult, ActionView};

use super::{Console, show};
use crate::args::{Select, SelectedTasks, TaskName};
use crate::exit::{Code, refused, say};
use crate::print::Format;

/// The maximum number of tasks in one command.
const MAX_CHOSEN: usize = 1_000_000;

/// The action, for the confirmation, and the states to which it applies.
pub(super) struct SelectionVerb<'a> {
    pub(super) name: &'a str,
    pub(super) states: &'a [StateName],
}

pub(super) struct Selection {
    pub(super) ids: Vec<TaskId>,
    by: By,
}

impl Selection {
    /// Whether each task was named explicitly.
    pub(super) fn is_by_name(&self) -> bool {
        self.by == By::Name
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Name,
    Filter,
}

/// Finds the tasks, and asks for confirmation if they were selected by filters. `None`: the user declined.
pub(super) async fn choose(
    store: &dyn Store,
    select: &Select,
    verb: &SelectionVerb<'_>,
) -> anyhow::Result<Option<Selection>> {
    match chosen(select)? {
        SelectedTasks::Named { tasks, queue } => {
            let mut ids = Vec::new();
            for task in &tasks {
                ids.push(match task {
                    TaskName::Id(id) => *id,
                    TaskName::Key(_) => show::named(store, task, &queue).await?.task.id,
                });
            }
            Ok(Some(Selection { ids, by: By::Name }))
        }
        SelectedTasks::Matching(filter) => {
            if !select.yes && !can_ask() {
                let sentence = format!(
                    "not a terminal, so there is no way to ask; add --yes to {} all matching tasks",
                    verb.name
                );
                return Err(refused(Code::BadInput, sentence));
            }
            let ids = matching(store, &filter, verb.states).await?;
            if !ids.is_empty() && !select.yes && !ask(format!("{} {}?", verb.name, count(ids.len()))).await? {
                say("nothing was done");
                return Ok(None);
            }
            Ok(Some(Selection { ids, by: By::Filter }))
        }
    }
}

/// The selection, checked without opening a store.
pub(super) fn chosen(select: &Select) -> anyhow::Result<SelectedTasks> {
    select.chosen().map_err(|sentence| refused(Code::BadInput, sentence))
}

async fn matching(store: &dyn Store, filter: &Filter, states: &[StateName]) -> anyhow::Result<Vec<TaskId>> {
    let mut ids = Vec::new();
    let wanted = filter.state.map_or_else(|| states.to_vec(), |state| vec![state]);
    for state in wanted {
        let filter = Filter { state: Some(state), ..filter.clone() };
        let mut next = None;
        loop {
            let page = store.list(filter.clone(), next, MAX_PAGE).await?;
            ids.extend(page.tasks.iter().map(|task| task.id));
            if ids.len() > MAX_CHOSEN {
                let sentence =
                    format!("more than {MAX_CHOSEN} tasks match, the maximum for one command; add filters");
                return Err(refused(Code::BadInput, sentence));
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
    }
    Ok(ids)
}

fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks on the terminal. Anything but a yes is a no.
async fn ask(question: String) -> anyhow::Result<bool> {
    let asked = tokio::task::spawn_blocking(move || {
        let _ = write!(std::io::stderr(), "{question} [y/N] ");
        let _ = std::io::stderr().flush();
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok::<_, std::io::Error>(matches!(line.trim(), "y" | "Y" | "yes"))
    });
    Ok(asked.await??)
}

/// Reports what was done.
pub(super) fn report(console: &Console, picked: &Selection, answers: &[ActionView]) -> anyhow::Result<Code> {
    match (console.out.format(), picked.by) {
        (Format::Json, _) => console.out.json(&answers)?,
        (Format::People, By::Filter) => console.out.line(&sum(answers))?,
        (Format::People, By::Name) => {
            for answer in answers {
                match sentence(answer) {
                    Confirmation::Done(line) => console.out.line(&line)?,
                    Confirmation::Not(line) => say(&line),
                }
            }
        }
    }
    let any = |result: ActionResult| answers.iter().any(|answer| answer.result == result);
    // A task that matched a filter and has changed since is not the user's mistake.
    Ok(match picked.by {
        By::Name if any(ActionResult::NotFound) => Code::NotFound,
        By::Name if any(ActionResult::Refused) => Code::BadInput,
        By::Name | By::Filter => Code::Done,
    })
}

enum Confirmation {
    Done(String),
    Not(String),
}

fn sentence(answer: &ActionView) -> Confirmation {
    let id = &answer.id;
    match answer.result {
        ActionResult::NotFound => Confirmation::Not(format!("there is no task {id}")),
        ActionResult::Refused if answer.state == Some(StateName::Completed.name()) => {
            Confirmation::Not(format!("{id} is completed; to enqueue a copy: ostler retry --again {id}"))
        }
        ActionResult::Refused => {
            Confirmation::Not(format!("{id} is {}", answer.state.unwrap_or("in another state")))
        }
        ActionResult::Copied => Confirmation::Done(answer.copy.clone().unwrap_or_default()),
        ActionResult::Cancelled
        | ActionResult::Requested
        | ActionResult::Requeued
        | ActionResult::Hastened
        | ActionResult::Unchanged
        | ActionResult::Amended
        | ActionResult::Dropped => Confirmation::Done(format!("{id} {}", phrase(answer.result))),
    }
}

const fn phrase(result: ActionResult) -> &'static str {
    match result {
        ActionResult::Cancelled => "cancelled",
        ActionResult::Requested => "asked to stop",
        ActionResult::Requeued => "queued again",
        ActionResult::Hastened => "due now",
        ActionResult::Unchanged => "already queued",
        ActionResult::Copied => "copied",
        ActionResult::Amended => "amended",
        ActionResult::Dropped => "removed",
        ActionResult::Refused => "refused",
        ActionResult::NotFound => "not found",
    }
}

/// Counts the tasks by result.
fn sum(answers: &[ActionView]) -> String {
    let mut counts: BTreeMap<ActionResult, usize> = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.result).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(did, count)| format!("{count} {}", phrase(*did))).collect();
    if parts.is_empty() {
        "no tasks match".to_owned()
    } else {
        format!("{}: {}", count(answers.len()), parts.join(", "))
    }
}

fn count(tasks: usize) -> String {
    if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
}
