//! `ostler queue`: shows queues and what throttles them, and changes their limits while nodes run.

use ostler_ops::overview::{JobQueues, Overview};
use ostler_ops::queues::{self, Lift};
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::limits::{LimitsSet, QueueView};

use super::Console;
use crate::args::{QueueCommand, Set};
use crate::exit::{Code, refused, say};
use crate::print::{self, visible};
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, command: QueueCommand) -> anyhow::Result<Code> {
    match command {
        QueueCommand::Ls { all } => {
            list(console, if all { JobQueues::Listed } else { JobQueues::Hidden }).await
        }
        QueueCommand::Show { queue } => show(console, &queue).await,
        QueueCommand::Set(set) => change(console, *set).await,
        QueueCommand::Release { queue, key } => release(console, &queue, key.as_deref()).await,
        QueueCommand::Unsubscribe { queue, subscriber } => unsubscribe(console, &queue, &subscriber).await,
    }
}

async fn list(console: &Console, jobs: JobQueues) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let views = Overview::take(store.as_ref()).await?.queues(jobs);
    console.out.answer(&views, |looks| print::queues(&views, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn show(console: &Console, queue: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let view = Overview::take(store.as_ref()).await?.queue(queue)?;
    tell(console, &view)
}

fn tell(console: &Console, view: &QueueView) -> anyhow::Result<Code> {
    console.out.answer(view, |looks| print::queue(view, SystemClock.now(), looks))?;
    Ok(Code::Done)
}

async fn change(console: &Console, set: Set) -> anyhow::Result<Code> {
    let place = console.place()?;
    let queue = set.queue.clone();
    let changes = |before| set.clone().changes(before).map_err(|sentence| refused(Code::BadInput, sentence));
    // Checked before the store is opened: a refused change creates no store.
    place.bounds().check_changes(&queue, &queues::by_hand(changes(None)?))?;
    let store = place.open(IfMissing::Make).await?;
    let changes = changes(store.queue_settings(&queue).await?.budget)?;
    changed(console, &queues::set_limits(store.as_ref(), &queue, changes).await?)
}

/// Tells the new limits, and whose config will replace them.
pub(super) fn changed(console: &Console, changed: &LimitsSet) -> anyhow::Result<Code> {
    let view = &changed.view;
    if let Some(brought) = &changed.brought {
        say(&format!(
            "applied; the config of node \"{}\" sets limits for {} too ({}), which replace these when a node \
             starts with it",
            visible(&brought.node),
            visible(&view.queue),
            brought.limits.join(", ")
        ));
    }
    tell(console, view)
}

async fn unsubscribe(console: &Console, queue: &str, subscriber: &str) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    unsubscribed(console, &queues::unsubscribe(store.as_ref(), queue, subscriber).await?, subscriber)
}

pub(super) fn unsubscribed(console: &Console, view: &QueueView, subscriber: &str) -> anyhow::Result<Code> {
    console.out.answer(view, |_| {
        format!("{} is no longer a subscriber of {}\n", visible(subscriber), visible(&view.queue))
    })?;
    Ok(Code::Done)
}

async fn release(console: &Console, queue: &str, key: Option<&str>) -> anyhow::Result<Code> {
    let place = console.place()?;
    place.bounds().check_changes(queue, &[queues::release_change(key)])?;
    let store = place.open(IfMissing::Refuse).await?;
    let (view, lift) = queues::release(store.as_ref(), queue, key).await?;
    released(console, &view, key, lift)
}

pub(super) fn released(
    console: &Console,
    view: &QueueView,
    key: Option<&str>,
    lift: Lift,
) -> anyhow::Result<Code> {
    console.out.answer(view, |_| {
        let queue = visible(&view.queue);
        let whose = key.map_or_else(|| queue.clone(), |key| format!("{} of {queue}", visible(key)));
        let how = match lift {
            Lift::Lifted => "is no longer on hold",
            Lift::NotNeeded => "was not on hold",
        };
        format!("{whose} {how}\n")
    })?;
    Ok(Code::Done)
}
