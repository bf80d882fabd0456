//! `ostler ls` and `ostler dead ls`: a page of tasks.

use std::io::Write as _;

use ostler_store::views::{Filter, ListOrder, Page};
use ostler_store::{Clock as _, MAX_PAGE, Store, SystemClock};
use ostler_wire::task::Summary;
use serde::Serialize;

use super::Console;
use crate::args::{Filters, PageArgs};
use crate::exit::Code;
use crate::print;
use crate::store_location::IfMissing;

pub(super) async fn run(console: &Console, filters: &Filters, part: &PageArgs) -> anyhow::Result<Code> {
    let store = console.place()?.open(IfMissing::Refuse).await?;
    let found = page(store.as_ref(), filters, part).await?;
    let summaries: Vec<Summary> = found.tasks.iter().map(Summary::from).collect();
    print(console, &found, &summaries)
}

/// Reads the requested page.
pub(super) async fn page(store: &dyn Store, filters: &Filters, part: &PageArgs) -> anyhow::Result<Page> {
    let order = if part.oldest { ListOrder::OldestFirst } else { ListOrder::NewestFirst };
    let filter = Filter { order, ..filters.filter() };
    let mut tasks = Vec::new();
    let mut next = part.cursor;
    // One call examines a bounded number of rows: where matches are rare, it takes several to fill a page.
    loop {
        let page = store.list(filter.clone(), next, (part.limit - tasks.len()).min(MAX_PAGE)).await?;
        tasks.extend(page.tasks);
        next = page.next;
        if next.is_none() || tasks.len() >= part.limit {
            return Ok(Page { tasks, next });
        }
    }
}

/// Prints a page; `views` is its JSON form.
pub(super) fn print<T: Serialize>(console: &Console, found: &Page, views: &[T]) -> anyhow::Result<Code> {
    console.out.answer(&views, |looks| print::list(&found.tasks, SystemClock.now(), looks))?;
    if let Some(cursor) = found.next {
        // To standard error, so that standard output is only JSON.
        let _ = writeln!(std::io::stderr(), "more: --cursor {cursor}");
    }
    Ok(Code::Done)
}
