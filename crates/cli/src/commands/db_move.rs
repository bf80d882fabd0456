//! `ostler db move`: moves a store to PostgreSQL.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use ostler_postgres::{Address, PostgresTarget};
use ostler_sqlite::SqliteSource;
use ostler_store::transfer::{self, MovePlan, MoveStep, ROWS, Table};
use ostler_store::{ErrorKind, SystemClock};
use ostler_wire::action::{MovedStore, StayedStore};

use super::Console;
use crate::args::Move;
use crate::config::StoreUrl;
use crate::exit::{Code, refused, say};
use crate::store_location::{MAX_OPENING, refusal};

/// The interval between messages about running tasks.
const SAY_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn run(console: &Console, what: Move) -> anyhow::Result<Code> {
    let from = match &what.from {
        Some(url) => parse("--from", url)?,
        None => console.place()?.url().clone(),
    };
    let StoreUrl::Sqlite(path) = from else {
        let sentence = "only an SQLite store can be moved; name one with --from sqlite:PATH";
        return Err(refused(Code::BadInput, sentence));
    };
    if what.abandon {
        return abandon(console, path, what.to.as_deref()).await;
    }
    // clap requires --to.
    let to = what.to.context("--to is missing")?;
    let to = address(&to)?;
    let shown = shown(&to);
    let source = open(path)?;
    let target = reach(&to).await?;
    let ids = ostler::ids().context("cannot get random bytes from the system")?;
    let plan = MovePlan {
        id: ids(),
        from: source.path().display().to_string(),
        to: shown.clone(),
        patience: what.wait,
        rows: ROWS,
    };
    let teller = MovePrinter::default();
    let moved = transfer::run(&source, &target, &plan, &|step| teller.tell(step)).await?;
    let view = MovedStore::new(&plan, &moved);
    console.out.answer(&view, |_| {
        if view.tables.is_empty() {
            return format!("{} has already moved to {}\n", view.from, view.to);
        }
        format!(
            "{} has moved to {}: {} tasks, {} rows, all compared\n",
            view.from, view.to, view.tasks, view.rows
        )
    })?;
    say(&format!("from now on use --store {shown} (add the password, if any), and change ostler.toml"));
    Ok(Code::Done)
}

async fn abandon(console: &Console, path: PathBuf, to: Option<&str>) -> anyhow::Result<Code> {
    let source = open(path)?;
    let target = match to {
        Some(to) => Some(reach(&address(to)?).await?),
        None => None,
    };
    let target: Option<&dyn transfer::MoveTarget> = target.as_ref().map(|target| target as _);
    let departure = transfer::abandon(&source, target).await?;
    let view = StayedStore::new(source.path().display().to_string(), departure.target);
    console.out.answer(&view, |_| {
        format!("move abandoned: {} is in use again, and its nodes will rejoin\n", view.store)
    })?;
    if to.is_none() {
        say(&format!("the copy in {} is left unused; the next move replaces it", view.target));
    }
    Ok(Code::Done)
}

fn open(path: PathBuf) -> anyhow::Result<SqliteSource> {
    SqliteSource::open(path, Arc::new(SystemClock)).map_err(refusal)
}

fn parse(field: &str, url: &str) -> anyhow::Result<StoreUrl> {
    StoreUrl::parse(url).map_err(|error| refused(Code::BadInput, format!("{field}: {error}")))
}

fn address(to: &str) -> anyhow::Result<Address> {
    match parse("--to", to)? {
        StoreUrl::Postgres(address) => Ok(address),
        StoreUrl::Sqlite(_) => Err(refused(
            Code::BadInput,
            "--to: must be a PostgreSQL address, such as postgres://user@host/database",
        )),
    }
}

/// The address without any trace of a password: it is kept in the old store, and shown to everyone.
fn shown(address: &Address) -> String {
    address.to_string().replacen(":***@", "@", 1)
}

/// Errors of the target are about `--to`, not about the store.
async fn reach(to: &Address) -> anyhow::Result<PostgresTarget> {
    let reached = tokio::time::timeout(MAX_OPENING, PostgresTarget::reach(to.secret())).await;
    let silent = || refused(Code::Store, "--to: the PostgreSQL server does not answer");
    reached.map_err(|_| silent())?.map_err(|error| {
        let code = if error.kind() == ErrorKind::Invalid { Code::BadInput } else { Code::Store };
        refused(code, format!("--to: {error}"))
    })
}

/// Prints the progress of a move, each step once.
#[derive(Default)]
struct MovePrinter {
    waited: Mutex<Option<tokio::time::Instant>>,
}

impl MovePrinter {
    fn tell(&self, step: MoveStep) {
        match step {
            MoveStep::Leaving => say("the old store accepts no more tasks"),
            MoveStep::Draining { leased } if leased > 0 => self.waits(leased),
            MoveStep::Frozen { handed_back } if handed_back > 0 => {
                say(&format!("{handed_back} running tasks were returned to the queue"));
            }
            MoveStep::Copied { table: Table::Task, rows } => say(&format!("{rows} tasks copied")),
            MoveStep::Gone => say("all rows verified; the old store is marked as moved"),
            MoveStep::Arriving
            | MoveStep::Draining { .. }
            | MoveStep::Frozen { .. }
            | MoveStep::Copied { .. }
            | MoveStep::Verified { .. }
            | MoveStep::Open => {}
        }
    }

    fn waits(&self, leased: u64) {
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if waited.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            *waited = Some(tokio::time::Instant::now());
            say(&format!("waiting for {leased} running tasks"));
        }
    }
}
