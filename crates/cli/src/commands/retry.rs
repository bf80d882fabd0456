//! `ostler retry`: requeues failed and cancelled tasks, runs waiting ones now, or enqueues copies of completed ones.

use anyhow::Context as _;
use ostler_ops::act::Act;
use ostler_store::calls::{Replay, StepsOnReplay};

use super::selection::Chosen;
use super::{Console, payload};
use crate::args::Retry;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, retry: Retry) -> anyhow::Result<Code> {
    let chosen = Chosen::of(&retry.select)?;
    let place = console.place()?;
    let payload = match retry.payload {
        Some(given) => Some(payload::read(given, place.bounds()).await?),
        None => None,
    };
    let store = place.open(IfMissing::Refuse).await?;
    if retry.again {
        let ids = ostler::ids().context("cannot get random bytes from the system")?;
        return chosen.act(console, store.as_ref(), &Act::Copy { payload, ids: &*ids }).await;
    }
    let steps = if retry.from_scratch { StepsOnReplay::Drop } else { StepsOnReplay::Keep };
    chosen.act(console, store.as_ref(), &Act::Replay(Replay { steps, payload })).await
}
