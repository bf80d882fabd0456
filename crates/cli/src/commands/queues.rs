//! `ostler pause` and `ostler resume`.

use ostler_store::calls::QueueChange;
use ostler_wire::action::QueueActionView;

use super::Console;
use crate::exit::Code;
use crate::print::visible;
use crate::store_location::IfMissing;

pub(super) async fn pause(console: &Console, queue: &str, reason: String) -> anyhow::Result<Code> {
    let place = console.place()?;
    let change = QueueChange::Pause(reason);
    // Checked before the store is opened: a refused change creates no store.
    place.bounds().check_changes(queue, std::slice::from_ref(&change))?;
    let settings = place.open(IfMissing::Make).await?.configure(queue, vec![change]).await?;
    let view = QueueActionView { queue: queue.to_owned(), paused: settings.paused };
    console
        .out
        .answer(&view, |_| format!("{0} is paused; to resume it: ostler resume {0}\n", visible(queue)))?;
    Ok(Code::Done)
}

pub(super) async fn resume(console: &Console, queue: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let before = store.queue_settings(queue).await?;
    let was_paused = before.paused.is_some();
    if was_paused {
        store.configure(queue, vec![QueueChange::Resume]).await?;
    }
    let view = QueueActionView { queue: queue.to_owned(), paused: None };
    let how = if was_paused { "is resumed" } else { "was not paused" };
    console.out.answer(&view, |_| format!("{} {how}\n", visible(queue)))?;
    Ok(Code::Done)
}
