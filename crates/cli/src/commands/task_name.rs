//! Names of tasks on the command line: a part of an id becomes the whole id, and a search that was cut short is reported.

use ostler_ops::selection::Selector;
use ostler_ops::task_name::{NamedTask, by_part};
use ostler_store::Store;
use ostler_store::views::IdScan;

use crate::args::One;
use crate::exit::say;

/// The task that is meant.
pub(super) async fn of_one(store: &dyn Store, one: &One) -> anyhow::Result<NamedTask> {
    whole(store, one.which()).await
}

/// The selection, without parts of ids.
pub(super) async fn pinned(store: &dyn Store, selector: Selector) -> anyhow::Result<Selector> {
    Ok(match selector {
        Selector::Named(names) => Selector::Named(all_whole(store, names).await?),
        Selector::Matching(filter) => Selector::Matching(filter),
    })
}

pub(super) async fn all_whole(store: &dyn Store, names: Vec<NamedTask>) -> anyhow::Result<Vec<NamedTask>> {
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        all.push(whole(store, name).await?);
    }
    Ok(all)
}

async fn whole(store: &dyn Store, name: NamedTask) -> anyhow::Result<NamedTask> {
    let NamedTask::Part(part) = name else { return Ok(name) };
    let found = by_part(store, part).await?;
    match found.scan {
        IdScan::Whole => {}
        IdScan::Cut => say(&format!(
            "{part} is taken as {} (of ids that end so, only those of the newest tasks were looked at)",
            found.id
        )),
    }
    Ok(NamedTask::Id(found.id))
}
