//! `ostler ls` and `ostler dead ls`: a page of tasks.

use std::io::Write as _;

use ostler_ops::progress;
use ostler_ops::tasks;
use ostler_store::views::{Filter, Page};
use ostler_store::{Clock as _, Store, SystemClock};
use ostler_wire::task::Summary;
use serde::Serialize;

use super::Console;
use crate::args::{List, PageArgs};
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, list: &List) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = page(console, store.as_ref(), &list.filter(), &list.page).await?;
    let summaries = progress::summaries(store.as_ref(), &found.tasks).await?;
    print(console, found.next.map(|next| next.to_string()).as_deref(), &summaries, &summaries)
}

/// Reads the requested page.
pub(super) async fn page(
    console: &Console,
    store: &dyn Store,
    filter: &Filter,
    part: &PageArgs,
) -> anyhow::Result<Page> {
    Ok(tasks::list(store, filter, part.cursor, part.most(console.out)).await?)
}

/// Prints a page; `views` is its JSON form.
pub(super) fn print<T: Serialize>(
    console: &Console,
    next: Option<&str>,
    tasks: &[Summary],
    views: &[T],
) -> anyhow::Result<Code> {
    console.out.answer(&views, |looks| print::list(tasks, SystemClock.now(), looks))?;
    if let Some(cursor) = next {
        // To standard error, so that standard output is only JSON.
        let _ = writeln!(std::io::stderr(), "more: --cursor {cursor}");
    }
    Ok(Code::Done)
}
