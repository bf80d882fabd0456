//! `ostler dead`: tasks that failed for good are shown, replayed, removed.

use std::ffi::OsString;

use ostler_core::{StateName, TaskId};
use ostler_store::calls::{Prune, Replay, StepsOnReplay};
use ostler_store::views::Which;
use ostler_store::{MAX_BATCH, Store};
use ostler_wire::act::{Answer, Did};

use super::choose::{Picked, Verb, choose, chosen, report};
use super::{Console, payload, retry, show as show_task};
use crate::args::{One, Select};
use crate::exit::{Code, refused};
use crate::place::Missing;

const STATES: &[StateName] = &[StateName::Failed];

pub(super) async fn show(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(Missing::Refuse)?;
    let found = show_task::find(&store, one).await?;
    let state = found.task.state.name();
    if state != StateName::Failed {
        let sentence =
            format!("{} is no dead letter: it is {}; see: ostler show", found.task.id, state.name());
        return Err(refused(Code::NotFound, sentence));
    }
    show_task::print(console, &found, None)
}

pub(super) async fn replay(
    console: &Console,
    select: &Select,
    steps: StepsOnReplay,
    payload: Option<OsString>,
) -> anyhow::Result<Code> {
    chosen(select)?;
    let place = console.place()?;
    let payload = match payload {
        Some(given) => Some(payload::read(given, place.bounds()).await?),
        None => None,
    };
    let store = place.open(Missing::Refuse)?;
    let Some(picked) = choose(&store, select, &Verb { name: "replay", states: STATES }).await? else {
        return Ok(Code::Done);
    };
    let (picked, mut answers) = dead_only(&store, picked).await?;
    answers.extend(retry::replays(&store, &picked, &Replay { steps, payload }).await?);
    report(console, &picked, &answers)
}

pub(super) async fn drop(console: &Console, select: &Select) -> anyhow::Result<Code> {
    chosen(select)?;
    let store = console.place()?.open(Missing::Refuse)?;
    let Some(picked) = choose(&store, select, &Verb { name: "remove", states: STATES }).await? else {
        return Ok(Code::Done);
    };
    let (picked, mut answers) = dead_only(&store, picked).await?;
    for ids in picked.ids.chunks(MAX_BATCH) {
        store.prune(Prune::Tasks(ids.to_vec())).await?;
        answers.extend(ids.iter().map(|id| answer(*id, Did::Dropped, None)));
    }
    report(console, &picked, &answers)
}

/// Those that are dead letters, and an answer for each that is none. What was chosen by a filter is one.
async fn dead_only(store: &dyn Store, mut picked: Picked) -> anyhow::Result<(Picked, Vec<Answer>)> {
    if !picked.is_by_name() {
        return Ok((picked, Vec::new()));
    }
    let (mut dead, mut others) = (Vec::new(), Vec::new());
    for id in std::mem::take(&mut picked.ids) {
        match store.show(Which::Id(id)).await?.map(|found| found.task.state.name()) {
            Some(StateName::Failed) => dead.push(id),
            Some(state) => others.push(answer(id, Did::Refused, Some(state.name()))),
            None => others.push(answer(id, Did::NotFound, None)),
        }
    }
    picked.ids = dead;
    Ok((picked, others))
}

fn answer(id: TaskId, result: Did, state: Option<&'static str>) -> Answer {
    Answer { id: id.to_string(), result, state, copy: None }
}
