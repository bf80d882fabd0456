//! `ostler cancel`: cancels waiting tasks and asks running ones to stop.

use ostler_ops::act::Act;

use super::Console;
use super::selection::Chosen;
use crate::args::Select;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, select: &Select) -> anyhow::Result<Code> {
    let chosen = Chosen::of(select)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    chosen.act(console, store.as_ref(), &Act::Cancel).await
}
