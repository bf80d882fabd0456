//! `ostler dead`: lists, shows, replays and removes tasks that failed for good.

use std::ffi::OsString;

use ostler_core::{StateName, TaskId};
use ostler_store::calls::{Prune, Replay, StepsOnReplay};
use ostler_store::views::TaskRef;
use ostler_store::{Clock as _, MAX_BATCH, Store, SystemClock};
use ostler_wire::action::{ActionResult, ActionView};
use ostler_wire::dead::{Letter, LetterDetail};

use super::selection::{Selection, SelectionVerb, choose, chosen, report};
use super::{Console, list, payload, retry, show as show_task};
use crate::args::{Filters, One, PageArgs, Select, SelectedTasks};
use crate::exit::{Code, refused};
use crate::print::{self, Format};
use crate::store_location::IfMissing;

const STATES: &[StateName] = &[StateName::Failed];

pub(super) async fn list(console: &Console, filters: &Filters, part: &PageArgs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = list::page(store.as_ref(), filters, part).await?;
    let mut letters = Vec::new();
    if console.out.format() == Format::Json {
        for task in &found.tasks {
            // A task that was removed since the list was read has no steps.
            let steps = store.show(TaskRef::Id(task.id)).await?.map(|found| found.steps).unwrap_or_default();
            letters.push(Letter::new(task, &steps));
        }
    }
    list::print(console, &found, &letters)
}

pub(super) async fn show(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = show_task::find(store.as_ref(), one).await?;
    let state = found.task.state.name();
    if state != StateName::Failed {
        let sentence =
            format!("{} is not a dead letter: it is {}; see: ostler show", found.task.id, state.name());
        return Err(refused(Code::NotFound, sentence));
    }
    let mut letter = LetterDetail::new(&found.task, &found.attempts, &found.steps, &found.after);
    letter.detail = show_task::AttemptRemains::read(store.as_ref(), found.task.id).await?.with(letter.detail);
    let runs = letter.detail.attempts.clone();
    console.out.answer(&letter, |looks| print::show(&found, None, &runs, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn replay(
    console: &Console,
    select: &Select,
    steps: StepsOnReplay,
    payload: Option<OsString>,
) -> anyhow::Result<Code> {
    let one = matches!(chosen(select)?, SelectedTasks::Named { tasks, .. } if tasks.len() == 1);
    if payload.is_some() && !one {
        let sentence = "--payload needs exactly one dead letter, named by id or key:K";
        return Err(refused(Code::BadInput, sentence));
    }
    let place = console.place()?;
    let payload = match payload {
        Some(given) => Some(payload::read(given, place.bounds()).await?),
        None => None,
    };
    let store = place.open(IfMissing::Refuse).await?;
    let Some(picked) =
        choose(store.as_ref(), select, &SelectionVerb { name: "replay", states: STATES }).await?
    else {
        return Ok(Code::Done);
    };
    let (picked, mut answers) = dead_only(store.as_ref(), picked).await?;
    answers.extend(retry::replays(store.as_ref(), &picked, &Replay { steps, payload }).await?);
    report(console, &picked, &answers)
}

pub(super) async fn drop(console: &Console, select: &Select) -> anyhow::Result<Code> {
    chosen(select)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let Some(picked) =
        choose(store.as_ref(), select, &SelectionVerb { name: "remove", states: STATES }).await?
    else {
        return Ok(Code::Done);
    };
    let (picked, mut answers) = dead_only(store.as_ref(), picked).await?;
    for ids in picked.ids.chunks(MAX_BATCH) {
        store.prune(Prune::Tasks(ids.to_vec())).await?;
        answers.extend(ids.iter().map(|id| answer(*id, ActionResult::Dropped, None)));
    }
    report(console, &picked, &answers)
}

/// Keeps the dead letters, with a result for each task that is not one. Tasks selected by a filter always are.
async fn dead_only(store: &dyn Store, mut picked: Selection) -> anyhow::Result<(Selection, Vec<ActionView>)> {
    if !picked.is_by_name() {
        return Ok((picked, Vec::new()));
    }
    let (mut dead, mut others) = (Vec::new(), Vec::new());
    for id in std::mem::take(&mut picked.ids) {
        match store.show(TaskRef::Id(id)).await?.map(|found| found.task.state.name()) {
            Some(StateName::Failed) => dead.push(id),
            Some(state) => others.push(answer(id, ActionResult::Refused, Some(state.name()))),
            None => others.push(answer(id, ActionResult::NotFound, None)),
        }
    }
    picked.ids = dead;
    Ok((picked, others))
}

fn answer(id: TaskId, result: ActionResult, state: Option<&'static str>) -> ActionView {
    ActionView { id: id.to_string(), result, state, copy: None }
}
