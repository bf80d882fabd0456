//! `ostler db`: the care of the store's file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ostler_sqlite::care;
use ostler_store::calls::{Prune, Retention};
use ostler_store::{ErrorKind, Store as _};
use ostler_wire::act::{BackedUp, Migrated, PrunedTasks, StoreHealth};

use super::Console;
use crate::args::Db;
use crate::exit::{Code, refused};
use crate::place::{Missing, Place, refusal};
use crate::print::visible;

pub(super) async fn run(console: &Console, what: Db) -> anyhow::Result<Code> {
    let place = console.place()?;
    match what {
        Db::Check => check(console, &place).await,
        Db::Migrate { check: true } => look(console, &place),
        Db::Migrate { check: false } => migrate(console, &place),
        Db::Backup { file } => backup(console, &place, file).await,
        Db::Prune { completed_older, failed_older, strays_older } => {
            let usual = place.keep();
            let keep = Retention {
                completed: completed_older.unwrap_or(usual.completed),
                failed: failed_older.unwrap_or(usual.failed),
                ..usual
            };
            prune(console, &place, keep, strays_older.unwrap_or(place.strays())).await
        }
    }
}

async fn check(console: &Console, place: &Place) -> anyhow::Result<Code> {
    place.prepare(Missing::Refuse)?;
    let path = place.path().to_owned();
    let health = apart(move || care::check(path)).await?.map_err(refusal)?;
    let newest = care::versions(place.path()).map_err(refusal)?.newest;
    let view = StoreHealth {
        store: name(place.path()),
        ok: health.problems.is_empty(),
        version: health.version,
        newest,
        problems: health.problems,
    };
    console.out.answer(&view, |_| {
        if view.ok {
            return format!("{} is whole (version {})\n", view.store, view.version);
        }
        view.problems.iter().map(|problem| format!("{}\n", visible(problem))).collect()
    })?;
    if view.ok {
        return Ok(Code::Done);
    }
    let sentence = format!("{} is not whole; stop its nodes, and restore it from a backup", view.store);
    Err(refused(Code::WorkFailed, sentence))
}

fn look(console: &Console, place: &Place) -> anyhow::Result<Code> {
    let versions = care::versions(place.path()).map_err(refusal)?;
    tell(console, place, versions.found, versions.newest)
}

fn migrate(console: &Console, place: &Place) -> anyhow::Result<Code> {
    place.prepare(Missing::Make)?;
    let versions = care::versions(place.path()).map_err(refusal)?;
    drop(place.open(Missing::Make)?);
    tell(console, place, versions.found, versions.newest)
}

fn tell(console: &Console, place: &Place, from: Option<i64>, to: i64) -> anyhow::Result<Code> {
    let view = Migrated { store: name(place.path()), from, to, pending: from != Some(to) };
    console.out.answer(&view, |_| match from {
        None => format!("{}: no store is there; a new one has version {to}\n", view.store),
        Some(from) if from == to => format!("{}: version {to}, nothing to do\n", view.store),
        Some(from) => format!("{}: from version {from} to {to}\n", view.store),
    })?;
    Ok(Code::Done)
}

async fn backup(console: &Console, place: &Place, file: PathBuf) -> anyhow::Result<Code> {
    place.prepare(Missing::Refuse)?;
    let (from, to) = (place.path().to_owned(), file.clone());
    let bytes = apart(move || care::backup(from, to)).await?.map_err(|error| {
        // The store is fine: it is the target that is not.
        let bad_target = error.kind() == ErrorKind::Invalid;
        if bad_target { refused(Code::BadInput, error.to_string()) } else { refusal(error) }
    })?;
    let view = BackedUp { file: name(&file), bytes };
    console.out.answer(&view, |_| format!("{} has {bytes} bytes\n", view.file))?;
    Ok(Code::Done)
}

async fn prune(console: &Console, place: &Place, keep: Retention, strays: Duration) -> anyhow::Result<Code> {
    let store = place.open(Missing::Refuse)?;
    let mut tasks = 0;
    // In bites, so that nodes can write between them. Each one removes rows: it ends.
    loop {
        let pruned = store.prune(Prune::Retention(keep)).await?;
        tasks += pruned.tasks;
        if !pruned.more {
            break;
        }
    }
    let strays = store.sweep(strays).await?;
    console.out.answer(&PrunedTasks { tasks, strays }, |_| {
        let swept = if strays == 0 { String::new() } else { format!(", and {strays} rows of no task") };
        format!("{tasks} ended tasks were removed{swept}\n")
    })?;
    Ok(Code::Done)
}

/// Does what takes long on a thread of its own, so that an interrupt is heard.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("the work on the file was lost")
}

fn name(path: &Path) -> String {
    path.display().to_string()
}
