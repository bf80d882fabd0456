//! `ostler cancel`: cancels waiting tasks and asks running ones to stop.

use ostler_core::{StateName, TaskId};
use ostler_store::calls::CancelAnswer;
use ostler_store::{MAX_BATCH, release_all_dependents};
use ostler_wire::action::{ActionResult, ActionView};

use super::Console;
use super::selection::{SelectionVerb, choose, chosen, report};
use crate::args::Select;
use crate::exit::Code;
use crate::store_location::IfMissing;

const VERB: SelectionVerb<'_> =
    SelectionVerb { name: "cancel", states: &[StateName::Queued, StateName::Claimed, StateName::Running] };

pub(super) async fn run(console: &Console, select: &Select) -> anyhow::Result<Code> {
    chosen(select)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let Some(picked) = choose(store.as_ref(), select, &VERB).await? else { return Ok(Code::Done) };
    let mut answers = Vec::new();
    for ids in picked.ids.chunks(MAX_BATCH) {
        let said = store.cancel(ids.to_vec()).await?;
        answers.extend(ids.iter().zip(said).map(|(id, said)| answer(*id, said)));
    }
    if answers.iter().any(|answer| answer.result == ActionResult::Cancelled) {
        release_all_dependents(store.as_ref()).await?;
    }
    report(console, &picked, &answers)
}

fn answer(id: TaskId, said: CancelAnswer) -> ActionView {
    let (result, state) = match said {
        CancelAnswer::Cancelled | CancelAnswer::Ended(StateName::Cancelled) => {
            (ActionResult::Cancelled, None)
        }
        CancelAnswer::Requested => (ActionResult::Requested, None),
        CancelAnswer::Ended(state) => (ActionResult::Refused, Some(state.name())),
        CancelAnswer::NotFound => (ActionResult::NotFound, None),
    };
    ActionView { id: id.to_string(), result, state, copy: None }
}
