//! `ostler db`: checks, migrates, backs up, restores and prunes the store.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use ostler_postgres::integrity as shared;
use ostler_sqlite::integrity;
use ostler_store::calls::Retention;
use ostler_store::{Error, ErrorKind};
use ostler_wire::action::{BackedUp, Migrated, PrunedTasks, RestoredStore, StoreHealthView};

use super::{Console, db_move, leftovers};
use crate::args::Db;
use crate::config::StoreUrl;
use crate::exit::{Code, refused};
use crate::print::visible;
use crate::store_location::{IfMissing, MAX_OPENING, StoreLocation, refusal};

pub(super) async fn run(console: &Console, what: Db) -> anyhow::Result<Code> {
    match what {
        Db::Move(what) => db_move::run(console, what).await,
        Db::Check => check(console, &console.place()?).await,
        Db::Migrate { check: true } => look(console, &console.place()?).await,
        Db::Migrate { check: false } => migrate(console, &console.place()?).await,
        Db::Backup { file } => backup(console, &console.place()?, file).await,
        Db::Restore { file } => restore(console, &console.place()?, file).await,
        Db::Prune { completed_older, failed_older, strays_older } => {
            let place = console.place()?;
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

async fn check(console: &Console, place: &StoreLocation) -> anyhow::Result<Code> {
    place.prepare(IfMissing::Refuse)?;
    let (version, newest, problems) = match place.url() {
        StoreUrl::Sqlite(path) => {
            let here = path.clone();
            let health = apart(move || integrity::check(here)).await?.map_err(refusal)?;
            (health.version, integrity::versions(path).map_err(refusal)?.newest, health.problems)
        }
        StoreUrl::Postgres(address) => {
            let newest = in_time(place, shared::versions(address)).await?.newest;
            let health = in_time(place, shared::check(address)).await?.ok_or_else(|| place.absent())?;
            (health.version, newest, health.problems)
        }
    };
    let view = StoreHealthView::new(place.name(), version, newest, problems);
    console.out.answer(&view, |_| {
        if view.ok {
            return format!("{} is intact (schema version {})\n", visible(&view.store), view.version);
        }
        view.problems.iter().map(|problem| format!("{}\n", visible(problem))).collect()
    })?;
    if view.ok {
        return Ok(Code::Done);
    }
    let sentence = match place.url() {
        StoreUrl::Sqlite(_) => {
            format!(
                "{} is damaged; stop its nodes, then restore a backup: ostler db restore BACKUP",
                view.store
            )
        }
        StoreUrl::Postgres(_) => format!("{} is damaged", view.store),
    };
    Err(refused(Code::WorkFailed, sentence))
}

async fn look(console: &Console, place: &StoreLocation) -> anyhow::Result<Code> {
    let (found, newest) = versions(place).await?;
    tell(console, place, found, newest)
}

async fn migrate(console: &Console, place: &StoreLocation) -> anyhow::Result<Code> {
    place.prepare(IfMissing::Make)?;
    let (found, newest) = versions(place).await?;
    drop(place.open(IfMissing::Make).await?);
    tell(console, place, found, newest)
}

/// The schema version of the store, and the newest one.
async fn versions(place: &StoreLocation) -> anyhow::Result<(Option<i64>, i64)> {
    match place.url() {
        StoreUrl::Sqlite(path) => {
            let versions = integrity::versions(path).map_err(refusal)?;
            Ok((versions.found, versions.newest))
        }
        StoreUrl::Postgres(address) => {
            let versions = in_time(place, shared::versions(address)).await?;
            Ok((versions.found, versions.newest))
        }
    }
}

fn tell(console: &Console, place: &StoreLocation, from: Option<i64>, to: i64) -> anyhow::Result<Code> {
    let view = Migrated::new(place.name(), from, to);
    let store = visible(&view.store);
    console.out.answer(&view, |_| match from {
        None => format!("{store}: no store yet; a new one gets version {to}\n"),
        Some(from) if from == to => format!("{store}: version {to}, nothing to do\n"),
        Some(from) => format!("{store}: from version {from} to {to}\n"),
    })?;
    Ok(Code::Done)
}

async fn backup(console: &Console, place: &StoreLocation, file: PathBuf) -> anyhow::Result<Code> {
    let from = match place.url() {
        StoreUrl::Sqlite(path) => path.clone(),
        StoreUrl::Postgres(address) => {
            let sentence = format!(
                "back up {address} with PostgreSQL's own tools, such as pg_dump; nodes may keep running"
            );
            return Err(refused(Code::BadInput, sentence));
        }
    };
    place.prepare(IfMissing::Refuse)?;
    let to = file.clone();
    let bytes = apart(move || integrity::backup(from, to)).await?.map_err(|error| {
        // The target is at fault, not the store.
        let bad_target = error.kind() == ErrorKind::Invalid;
        if bad_target { refused(Code::BadInput, error.to_string()) } else { refusal(error) }
    })?;
    let view = BackedUp::new(file.display().to_string(), bytes);
    console.out.answer(&view, |_| format!("{} written ({bytes} bytes)\n", visible(&view.file)))?;
    Ok(Code::Done)
}

async fn restore(console: &Console, place: &StoreLocation, file: PathBuf) -> anyhow::Result<Code> {
    let to = match place.url() {
        StoreUrl::Sqlite(path) => path.clone(),
        StoreUrl::Postgres(address) => {
            let sentence = format!("restore {address} with PostgreSQL's own tools, such as pg_restore");
            return Err(refused(Code::BadInput, sentence));
        }
    };
    place.prepare(IfMissing::Make)?;
    let from = file.clone();
    let restored = apart(move || integrity::restore(from, to)).await?.map_err(|error| {
        // The backup is at fault; the store is unchanged.
        let bad_backup = error.kind() == ErrorKind::Invalid;
        if bad_backup { refused(Code::BadInput, error.to_string()) } else { refusal(error) }
    })?;
    let former = restored.former.map(|former| former.display().to_string());
    let backup = file.display().to_string();
    let view = RestoredStore::new(place.name(), backup, restored.version, restored.bytes, former);
    console.out.answer(&view, |_| {
        let kept = match &view.former {
            Some(former) => format!("the previous store is now {former}"),
            None => "there was no previous store".to_owned(),
        };
        format!("{} restored from {}; {kept}\n", view.store, view.backup)
    })?;
    Ok(Code::Done)
}

async fn prune(
    console: &Console,
    place: &StoreLocation,
    keep: Retention,
    strays: Duration,
) -> anyhow::Result<Code> {
    let store = place.open(IfMissing::Refuse).await?;
    let removed = ostler_ops::prune::prune(store.as_ref(), keep, strays).await?;
    leftovers::sweep(store.as_ref(), place).await?;
    pruned(console, &removed)
}

/// Prints what was removed.
pub(super) fn pruned(console: &Console, removed: &PrunedTasks) -> anyhow::Result<Code> {
    console.out.answer(removed, |_| {
        let swept = match removed.strays {
            0 => String::new(),
            strays => format!(" and {strays} orphaned rows"),
        };
        format!("removed {} finished tasks{swept}\n", removed.tasks)
    })?;
    Ok(Code::Done)
}

/// Runs slow work on its own thread, so that an interrupt is handled.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work).await.context("the operation on the file did not finish")
}

/// The answer of the store's server, with a timeout.
async fn in_time<T>(
    place: &StoreLocation,
    asked: impl Future<Output = Result<T, Error>>,
) -> anyhow::Result<T> {
    let answered = tokio::time::timeout(MAX_OPENING, asked).await;
    answered.map_err(|_| place.silent())?.map_err(refusal)
}
