//! `ostler dead`: lists, shows, replays and removes tasks that failed for good.

use std::ffi::OsString;

use ostler_ops::act::Act;
use ostler_ops::tasks;
use ostler_store::calls::{Replay, StepsOnReplay};
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::task::Summary;

use super::selection::Chosen;
use super::{Console, list, payload, task_name};
use crate::args::{Filters, One, PageArgs, Select};
use crate::exit::{Code, refused};
use crate::print::{self, Format};
use crate::store_location::IfMissing;

pub(super) async fn list(console: &Console, filters: &Filters, part: &PageArgs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = list::page(console, store.as_ref(), &part.ordered(filters.filter()), part).await?;
    let letters = match console.out.format() {
        Format::Json => tasks::letters(store.as_ref(), &found).await?,
        Format::People => Vec::new(),
    };
    let summaries: Vec<Summary> = found.tasks.iter().map(Summary::from).collect();
    list::print(console, found.next.map(|next| next.to_string()).as_deref(), &summaries, &letters)
}

pub(super) async fn show(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let which = task_name::of_one(store.as_ref(), one).await?;
    let letter = tasks::show_letter(store.as_ref(), &which).await?;
    console.out.answer(&letter.view, |looks| print::show(&letter.view.detail, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

pub(super) async fn replay(
    console: &Console,
    select: &Select,
    steps: StepsOnReplay,
    payload: Option<OsString>,
) -> anyhow::Result<Code> {
    let chosen = Chosen::of(select)?;
    if payload.is_some() && !chosen.is_one() {
        let sentence = "--payload needs exactly one dead letter, named by id or key:K";
        return Err(refused(Code::BadInput, sentence));
    }
    let place = console.place()?;
    let payload = match payload {
        Some(given) => Some(payload::read(given, place.bounds()).await?),
        None => None,
    };
    let store = place.open(IfMissing::Refuse).await?;
    chosen.act(console, store.as_ref(), &Act::ReplayLetters(Replay { steps, payload })).await
}

pub(super) async fn drop(console: &Console, select: &Select) -> anyhow::Result<Code> {
    let chosen = Chosen::of(select)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    chosen.act(console, store.as_ref(), &Act::DropLetters).await
}
