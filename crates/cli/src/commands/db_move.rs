//! `ostler db move`: the store goes to PostgreSQL.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use ostler_postgres::{Address, PostgresTarget};
use ostler_sqlite::SqliteSource;
use ostler_store::transfer::{self, MovePlan, MoveStep, MoveSummary, ROWS, Table};
use ostler_store::{ErrorKind, SystemClock};
use ostler_wire::action::{MovedStore, MovedTable, StayedStore};

use super::Console;
use crate::args::Move;
use crate::config::StoreUrl;
use crate::exit::{Code, refused, say};
use crate::store_location::{MAX_OPENING, refusal};

/// How often it is said that tasks are waited for.
const SAY_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn run(console: &Console, what: Move) -> anyhow::Result<Code> {
    let from = match &what.from {
        Some(url) => parse("--from", url)?,
        None => console.place()?.url().clone(),
    };
    let StoreUrl::Sqlite(path) = from else {
        let sentence = "a store moves from SQLite to PostgreSQL: name an SQLite file with --from sqlite:PATH";
        return Err(refused(Code::BadInput, sentence));
    };
    if what.abandon {
        return abandon(console, path, what.to.as_deref()).await;
    }
    // clap has seen to it that there is one.
    let to = what.to.context("--to is missing")?;
    let to = address(&to)?;
    let shown = shown(&to);
    let source = open(path)?;
    let target = reach(&to).await?;
    let ids = ostler::ids().context("no randomness from the system")?;
    let plan = MovePlan {
        id: ids(),
        from: source.path().display().to_string(),
        to: shown.clone(),
        patience: what.wait,
        rows: ROWS,
    };
    let teller = MovePrinter::default();
    let moved = transfer::run(&source, &target, &plan, &|step| teller.tell(step)).await?;
    let view = view(&plan, &moved);
    console.out.answer(&view, |_| {
        if view.tables.is_empty() {
            return format!("{} has moved to {}; nothing was left to do\n", view.from, view.to);
        }
        format!(
            "{} has moved to {}: {} tasks, {} rows, all compared\n",
            view.from, view.to, view.tasks, view.rows
        )
    })?;
    say(&format!("from now on use --store {shown} (with the password, if it has one), also in ostler.toml"));
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
    let view = StayedStore { store: source.path().display().to_string(), target: departure.target };
    console
        .out
        .answer(&view, |_| format!("{} stays, and works as before; nodes come back to it\n", view.store))?;
    if to.is_none() {
        say(&format!(
            "what was copied to {} is still there, and is not used; the next move throws it away",
            view.target
        ));
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
        StoreUrl::Sqlite(_) => {
            Err(refused(Code::BadInput, "--to: a store moves to PostgreSQL: postgres://user@host/database"))
        }
    }
}

/// The address without even the trace of a password: it is kept in the old store, and said to everybody.
fn shown(address: &Address) -> String {
    address.to_string().replacen(":***@", "@", 1)
}

/// What the target says is about `--to`, and not about the store.
async fn reach(to: &Address) -> anyhow::Result<PostgresTarget> {
    let reached = tokio::time::timeout(MAX_OPENING, PostgresTarget::reach(to.secret())).await;
    let silent = || refused(Code::Store, "--to: the PostgreSQL server does not answer");
    reached.map_err(|_| silent())?.map_err(|error| {
        let code = if error.kind() == ErrorKind::Invalid { Code::BadInput } else { Code::Store };
        refused(code, format!("--to: {error}"))
    })
}

fn view(plan: &MovePlan, moved: &MoveSummary) -> MovedStore {
    let tables: Vec<MovedTable> = moved
        .tables
        .iter()
        .map(|table| MovedTable {
            table: table.table.name().to_owned(),
            rows: table.rows,
            sha256: table.sum.clone(),
        })
        .collect();
    let tasks = moved.tables.iter().find(|table| table.table == Table::Task).map_or(0, |table| table.rows);
    let rows = tables.iter().map(|table| table.rows).sum();
    MovedStore { from: plan.from.clone(), to: plan.to.clone(), tasks, rows, tables }
}

/// Tells people how far it is, each thing once.
#[derive(Default)]
struct MovePrinter {
    waited: Mutex<Option<tokio::time::Instant>>,
}

impl MovePrinter {
    fn tell(&self, step: MoveStep) {
        match step {
            MoveStep::Leaving => say("nothing new is taken by the old store"),
            MoveStep::Draining { leased } if leased > 0 => self.waits(leased),
            MoveStep::Frozen { handed_back } if handed_back > 0 => {
                say(&format!("{handed_back} tasks that were still running are handed back"));
            }
            MoveStep::Copied { table: Table::Task, rows } => say(&format!("{rows} tasks are copied")),
            MoveStep::Gone => say("all is there and the same: the old store is marked as moved"),
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
            say(&format!("waiting for {leased} tasks that run"));
        }
    }
}
