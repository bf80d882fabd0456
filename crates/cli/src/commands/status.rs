//! `ostler status`: one screen with the store and the config in use, nodes, queues, running tasks, and what is wrong.

use std::path::Path;

use ostler_core::StateName;
use ostler_ops::overview::{JobQueues, Overview};
use ostler_store::views::Filter;
use ostler_store::{Clock as _, SystemClock};
use ostler_wire::overview::StatusView;
use ostler_wire::task::Summary;

use super::{Console, config};
use crate::config::StoreUrl;
use crate::exit::Code;
use crate::print;
use crate::store_location::{IfMissing, StoreLocation};
use crate::top;

/// Running tasks that are shown.
pub(super) const MAX_RUNNING: usize = 10;

pub(super) async fn run(console: &Console) -> anyhow::Result<Code> {
    let (place, file) = (console.place()?, console.config_file());
    let findings = top::findings(place.url().clone(), file.as_deref().map(config::read)).await;
    let store = (whole(&place), place.origin().name());
    let mut view = StatusView::new(env!("CARGO_PKG_VERSION"), store, file.as_deref().map(absolute), findings);
    let read = fill(&place, &mut view).await;
    console.out.answer(&view, |looks| print::status(&view, SystemClock.now(), looks))?;
    read.map(|()| Code::Done)
}

async fn fill(place: &StoreLocation, view: &mut StatusView) -> anyhow::Result<()> {
    let store = place.open(IfMissing::Refuse).await?;
    let overview = Overview::take(store.as_ref()).await?;
    view.nodes = overview.nodes();
    view.queues = overview.queues(JobQueues::Hidden);
    let filter = Filter { state: Some(StateName::Running), ..Filter::default() };
    let running = store.list(filter, None, MAX_RUNNING).await?;
    view.running = running.tasks.iter().map(Summary::from).collect();
    Ok(())
}

/// The store with its whole path: where it is must be clear from any folder.
fn whole(place: &StoreLocation) -> String {
    match place.url() {
        StoreUrl::Sqlite(path) => absolute(path),
        StoreUrl::Postgres(_) => place.name(),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
