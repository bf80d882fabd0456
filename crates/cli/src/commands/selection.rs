//! Selections of tasks on the command line: the confirmation at the terminal, and the report of what was done.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use async_trait::async_trait;
use ostler_core::StateName;
use ostler_ops::act::{Act, Acted, Approval, Operator, act};
use ostler_ops::selection::{SelectedBy, Selector};
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::action::{ActionResult, ActionView, BulkProgress, BulkState};
use ostler_wire::job::JobView;

use super::{Console, task_name};
use crate::args::Select;
use crate::exit::{Code, refused, say};
use crate::print::{Format, ago, visible};

/// More tasks of a job than these are not cancelled without a question.
const MANY: u64 = 100;

/// Tasks that a command line selects.
pub(super) struct Chosen {
    selector: Selector,
    /// Whether to ask before a filter acts.
    asks: Asks,
}

#[derive(Clone, Copy)]
pub(super) enum Asks {
    First,
    Nothing,
}

impl Chosen {
    /// The selection, checked without opening a store.
    pub(super) fn of(select: &Select) -> anyhow::Result<Self> {
        let selector = select.chosen().map_err(|sentence| refused(Code::BadInput, sentence))?;
        Ok(Self { selector, asks: if select.yes { Asks::Nothing } else { Asks::First } })
    }

    pub(super) const fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Asks before a filter acts, unless `--yes` was given or no task matches. Returns how the command ends if the user declines.
    pub(super) async fn declined(&self, verb: &'static str, tasks: usize) -> anyhow::Result<Option<Code>> {
        let mut operator = Terminal { verb, asks: self.asks, fault: None };
        if let Asks::First = self.asks
            && !can_ask()
        {
            return Err(cannot_ask(verb));
        }
        let answer = if tasks == 0 { Approval::GoOn } else { operator.approve(tasks).await };
        operator.fault.map_or(Ok(()), Err)?;
        match answer {
            Approval::GoOn => Ok(None),
            Approval::Stop => {
                say("nothing was done");
                Ok(Some(Code::Done))
            }
        }
    }

    /// Whether a single task was named.
    pub(super) fn is_one(&self) -> bool {
        matches!(&self.selector, Selector::Named(names) if names.len() == 1)
    }

    /// Acts on the tasks, and reports what was done.
    pub(super) async fn act(
        self,
        console: &Console,
        store: &dyn Store,
        what: &Act<'_>,
    ) -> anyhow::Result<Code> {
        let mut operator = match (&self.selector, self.asks) {
            (Selector::Matching(_), Asks::First) if !can_ask() => {
                return Err(cannot_ask(verb(what)));
            }
            (_, asks) => Terminal { verb: verb(what), asks, fault: None },
        };
        let selector = task_name::pinned(store, self.selector).await?;
        match act(store, &selector, what, &mut operator).await? {
            Acted::Done { by, answers } => report(console, by, &answers),
            Acted::Declined => {
                operator.fault.map_or(Ok(()), Err)?;
                say("nothing was done");
                Ok(Code::Done)
            }
        }
    }
}

/// The action, for the confirmation.
const fn verb(act: &Act<'_>) -> &'static str {
    match act {
        Act::Cancel => "cancel",
        Act::Replay(_) => "retry",
        Act::ReplayLetters(_) => "replay",
        Act::Copy { .. } => "enqueue a copy of",
        Act::DropLetters => "remove",
    }
}

fn cannot_ask(verb: &str) -> anyhow::Error {
    unasked(&format!("{verb} all matching tasks"))
}

fn unasked(what: &str) -> anyhow::Error {
    refused(Code::BadInput, format!("not a terminal, so I cannot ask; add --yes to {what}"))
}

/// Asks before an action on this many tasks of a job, if they are many. Returns how the command ends if the user declines.
pub(super) async fn declined_job(
    verb: &'static str,
    job: &JobView,
    tasks: u64,
    asks: Asks,
) -> anyhow::Result<Option<Code>> {
    match asks {
        Asks::First if tasks > MANY => {}
        Asks::First | Asks::Nothing => return Ok(None),
    }
    let tasks = count(usize::try_from(tasks).unwrap_or(usize::MAX));
    let what = format!("{verb} {tasks} of job {} ({})", visible(&job.name), job.id);
    if !can_ask() {
        return Err(unasked(&what));
    }
    let created = ago(SystemClock.now(), job.created_at.timestamp());
    let asked = tokio::task::spawn_blocking(move || ask(&format!("{what}, created {created}?"))).await;
    Ok(match asked?? {
        Approval::GoOn => None,
        Approval::Stop => {
            say("nothing was done");
            Some(Code::Done)
        }
    })
}

fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The user at the terminal. Anything but a yes is a no.
struct Terminal {
    verb: &'static str,
    asks: Asks,
    /// Why the answer could not be read.
    fault: Option<io::Error>,
}

#[async_trait]
impl Operator for Terminal {
    async fn approve(&mut self, tasks: usize) -> Approval {
        match self.asks {
            Asks::Nothing => return Approval::GoOn,
            Asks::First => {}
        }
        let question = format!("{} {}?", self.verb, count(tasks));
        let asked = tokio::task::spawn_blocking(move || ask(&question)).await;
        match asked.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(answer) => answer,
            Err(error) => {
                self.fault = Some(error);
                Approval::Stop
            }
        }
    }
}

fn ask(question: &str) -> io::Result<Approval> {
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let _ = io::stderr().flush();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(if matches!(line.trim(), "y" | "Y" | "yes") { Approval::GoOn } else { Approval::Stop })
}

/// Reports what a node did to all tasks that match. It counts, and does not name them.
pub(super) fn report_sum(console: &Console, done: &BulkProgress) -> anyhow::Result<Code> {
    console.out.line(&summed(&done.results))?;
    match done.state {
        BulkState::Done | BulkState::Running => Ok(Code::Done),
        BulkState::Stopped => Err(refused(Code::WorkFailed, "the action was stopped before it was done")),
        BulkState::Failed => {
            let why = done.error.as_deref().unwrap_or("the node does not say why");
            Err(refused(Code::Store, format!("the action is not done: {why}")))
        }
    }
}

/// Reports what was done.
pub(super) fn report(console: &Console, by: SelectedBy, answers: &[ActionView]) -> anyhow::Result<Code> {
    match (console.out.format(), by) {
        (Format::Json, _) => console.out.json(&answers)?,
        (Format::People, SelectedBy::Filter) => console.out.line(&sum(answers))?,
        (Format::People, SelectedBy::Name) => {
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
    Ok(match by {
        SelectedBy::Name if any(ActionResult::NotFound) => Code::NotFound,
        SelectedBy::Name if any(ActionResult::Refused) => Code::BadInput,
        SelectedBy::Name | SelectedBy::Filter => Code::Done,
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
        ActionResult::Refused => Confirmation::Not(match &answer.holder {
            Some(holder) => format!(
                "{id} cannot run again while task {holder} has its key; to enqueue a copy without a key: \
                 ostler retry --again {id}"
            ),
            None => format!("{id} is {}", answer.state.unwrap_or("in another state")),
        }),
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
    let mut counts: BTreeMap<ActionResult, u64> = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.result).or_default() += 1;
    }
    summed(&counts)
}

fn summed(counts: &BTreeMap<ActionResult, u64>) -> String {
    let parts: Vec<String> = counts.iter().map(|(did, count)| format!("{count} {}", phrase(*did))).collect();
    if parts.is_empty() {
        "no tasks match".to_owned()
    } else {
        let all = usize::try_from(counts.values().sum::<u64>()).unwrap_or(usize::MAX);
        format!("{}: {}", count(all), parts.join(", "))
    }
}

fn count(tasks: usize) -> String {
    if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
}
