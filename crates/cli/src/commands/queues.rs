//! `ostler pause` and `ostler resume`.

use ostler_ops::queues::{self, Lift};
use ostler_store::calls::QueueChange;

use super::Console;
use crate::exit::Code;
use crate::print::visible;
use crate::store_location::IfMissing;

pub(super) async fn pause(console: &Console, queue: &str, reason: String) -> anyhow::Result<Code> {
    let place = console.place()?;
    // Checked before the store is opened: a refused change creates no store.
    place.bounds().check_changes(queue, &[QueueChange::Pause(reason.clone())])?;
    let view = queues::pause(place.open(IfMissing::Make).await?.as_ref(), queue, reason).await?;
    console
        .out
        .answer(&view, |_| format!("{0} is paused; to resume it: ostler resume {0}\n", visible(queue)))?;
    Ok(Code::Done)
}

pub(super) async fn resume(console: &Console, queue: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let (view, lift) = queues::resume(store.as_ref(), queue).await?;
    let how = match lift {
        Lift::Lifted => "is resumed",
        Lift::NotNeeded => "was not paused",
    };
    console.out.answer(&view, |_| format!("{} {how}\n", visible(queue)))?;
    Ok(Code::Done)
}
