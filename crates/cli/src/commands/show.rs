//! `ostler show`: shows one task in detail.

use ostler_ops::tasks;
use ostler_store::{Clock as _, SystemClock};

use super::{Console, task_name};
use crate::args::One;
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, one: &One) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let shown = tasks::show(store.as_ref(), &task_name::of_one(store.as_ref(), one).await?).await?;
    console.out.answer(&shown.view, |looks| print::show(&shown.view.detail, SystemClock.now(), looks))?;
    Ok(Code::Done)
}
