//! `ostler recycle`: replaces idle workers.

use ostler_ops::recycle::{WorkersToRecycle, recycle};
use ostler_wire::action::RecycledView;

use super::Console;
use crate::args::Recycle;
use crate::exit::Code;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, whom: Recycle) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    told(console, &recycle(store.as_ref(), &request(whom)).await?)
}

/// The workers that the options name.
pub(super) fn request(whom: Recycle) -> WorkersToRecycle {
    match (whom.worker, whom.any, whom.all) {
        (Some(worker), _, _) => WorkersToRecycle::Worker(worker),
        (None, Some(pool), _) => WorkersToRecycle::Any(pool),
        (None, None, Some(pool)) => WorkersToRecycle::All(pool),
        (None, None, None) => unreachable!("clap requires one of the three"),
    }
}

pub(super) fn told(console: &Console, done: &RecycledView) -> anyhow::Result<Code> {
    console.out.answer(done, |_| sentences(done))?;
    Ok(if done.recycled.is_empty() { Code::WorkFailed } else { Code::Done })
}

fn sentences(done: &RecycledView) -> String {
    let goes = done.recycled.iter().map(|id| format!("worker {id} is being replaced\n"));
    let stays = done.busy.iter().map(|id| format!("worker {id} is busy and was not replaced\n"));
    goes.chain(stays).collect()
}
