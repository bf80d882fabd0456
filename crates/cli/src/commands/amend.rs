//! `ostler amend`: changes the retry and timeout settings of a task that has not finished.

use ostler_ops::tasks;

use super::{Console, task_name};
use crate::args::Amend;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, amend: &Amend) -> anyhow::Result<Code> {
    let overrides = amend.rules.overrides();
    tasks::check_amendment(&overrides)?;
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let which = task_name::of_one(store.as_ref(), &amend.one).await?;
    let answer = tasks::amend(store.as_ref(), &which, overrides).await?;
    console.out.answer(&answer, |_| format!("{} amended\n", answer.id))?;
    Ok(Code::Done)
}
