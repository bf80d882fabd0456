//! Fault injection: nodes of the real program are killed, stopped and starved while they work, their server crashes, their disk
//! fills up. Afterwards every acknowledged submission is looked up, and every run has left its own durable line.
//!
//! Prints one row for each class of faults, and fails if anything was lost, completed twice, or left behind.
//! `effect.rs`: the work of a task. `fleet.rs`: the nodes. `draw.rs`: the faults. `check.rs`: the checks.

mod check;
mod draw;
pub(crate) mod effect;
mod fleet;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Seed, TaskId};
use ostler_postgres::Postgres;
use ostler_sqlite::Sqlite;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::views::Filter;
use ostler_store::{Store, SystemClock};
use tokio::task::JoinHandle;

use self::check::{Found, check};
use self::draw::{Fault, Faults};
use self::effect::Effects;
use self::fleet::{Fleet, Shape};
use crate::postgres::server::Server;
use crate::{Bench, Error, Place, Scale, machine};

const NODES: usize = 2;
const QUEUE: &str = "work";
/// How long the remaining tasks may take after the last fault.
const PATIENCE: Duration = Duration::from_secs(180);
/// Task run times: short, or so long that a stopped node loses its lease during the run.
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_millis(1_500);
/// The polling interval.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A disk just large enough for a run.
const SMALL_DISK: &str = "64m";
/// The payload size on the small disk: more than the log can take without growing.
const BIG_PAYLOAD: usize = 16 * 1024;
/// The time between two submissions on the small disk, so that they continue while it is full.
const SPACING: Duration = Duration::from_millis(5);
/// The flag that marks a run inside its own mount namespace.
pub(crate) const INSIDE: &str = "--inside";

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Faults of each class.
    pub(crate) faults: u64,
    /// Tasks of each class.
    pub(crate) tasks: u64,
    pub(crate) seed: u64,
    /// Only classes with this text in their name.
    pub(crate) only: Option<String>,
    /// The `ostler` program; by default the one beside this program.
    pub(crate) ostler: Option<PathBuf>,
    pub(crate) place: Namespace,
}

/// The mount namespace of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Shared with other processes.
    Shared,
    /// Private: a small disk can be mounted.
    Own,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { faults: 100, tasks: 1_500, seed: 1, only: None, ostler: None, place: Namespace::Shared }
    }
}

/// One class of faults.
struct Sort {
    name: &'static str,
    store: Where,
    ttl: Duration,
    /// How long a task runs.
    run: Duration,
    faults: Faults,
}

impl Sort {
    /// The number of tasks: fewer where each takes long.
    fn tasks(&self, wanted: &Wanted) -> u64 {
        if self.run == LONG { wanted.tasks.div_ceil(10) } else { wanted.tasks }
    }

    /// The payload of a task, and the pause before the next submission.
    fn load(&self) -> (String, Duration) {
        match self.store {
            Where::SmallDisk => (format!("\"{}\"", "x".repeat(BIG_PAYLOAD)), SPACING),
            Where::Sqlite | Where::Postgres => ("null".to_owned(), Duration::ZERO),
        }
    }
}

/// The store that the nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    Sqlite,
    Postgres,
    SmallDisk,
}

const SORTS: [Sort; 5] = [
    Sort {
        name: "kills",
        store: Where::Sqlite,
        ttl: Duration::from_secs(10),
        run: SHORT,
        faults: Faults::Kills,
    },
    Sort {
        name: "pauses",
        store: Where::Sqlite,
        ttl: Duration::from_secs(2),
        run: LONG,
        faults: Faults::Pauses,
    },
    Sort {
        name: "descriptors",
        store: Where::Sqlite,
        ttl: Duration::from_secs(10),
        run: SHORT,
        faults: Faults::Descriptors,
    },
    Sort {
        name: "full disk",
        store: Where::SmallDisk,
        ttl: Duration::from_secs(10),
        run: SHORT,
        faults: Faults::FullDisk,
    },
    Sort {
        name: "postgres",
        store: Where::Postgres,
        ttl: Duration::from_secs(10),
        run: SHORT,
        faults: Faults::Server,
    },
];

/// Runs every requested class, and prints the table.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let bench = Bench::new(Scale::FULL, wanted.only.clone())?;
    let ostler = wanted.ostler.clone().map_or_else(crate::map::beside_this, Ok)?;
    let ostler = ostler.canonicalize()?;
    let place = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    if wanted.place == Namespace::Shared {
        println!("seed {}\n\n{}", wanted.seed, check::HEADER);
    }
    let mut broken = Vec::new();
    for sort in &SORTS {
        if !bench.wants(sort.name) {
            continue;
        }
        if sort.store == Where::SmallDisk && wanted.place == Namespace::Shared {
            apart(wanted, sort, &ostler, place.path())?;
            continue;
        }
        let found = one(&bench, sort, wanted, &ostler, place.path())?;
        println!("{}", found.row(sort.name));
        broken.extend(found.broken().into_iter().map(|what| format!("{}: {what}", sort.name)));
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ").into()) }
}

/// Runs one class by this program in its own mount namespace, where a small disk can be mounted.
fn apart(wanted: &Wanted, sort: &Sort, ostler: &Path, dir: &Path) -> Result<(), Error> {
    let spaces = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mut inside = std::process::Command::new("unshare");
    inside.arg(spaces).arg(std::env::current_exe()?).args(["faults", INSIDE, "--only", sort.name]);
    inside.arg("--faults").arg(wanted.faults.to_string()).arg("--tasks").arg(wanted.tasks.to_string());
    inside.arg("--seed").arg(wanted.seed.to_string()).arg("--ostler").arg(ostler).arg("--dir").arg(dir);
    if inside.status()?.success() { Ok(()) } else { Err(format!("{}: see above", sort.name).into()) }
}

fn one(bench: &Bench, sort: &Sort, wanted: &Wanted, ostler: &Path, under: &Path) -> Result<Found, Error> {
    let folder = under.join(sort.name.replace(' ', "-"));
    std::fs::create_dir(&folder)?;
    effect::prepare(&folder)?;
    let server = (sort.store == Where::Postgres).then(|| Server::start(&folder)).transpose()?;
    let disk = folder.join("disk");
    if sort.store == Where::SmallDisk {
        std::fs::create_dir(&disk)?;
        let size = ["-t", "tmpfs", "-o", &format!("size={SMALL_DISK}"), "tmpfs"];
        crate::postgres::server::said(std::process::Command::new("mount").args(size).arg(&disk))?;
    }
    let store = match (&server, sort.store) {
        (Some(server), _) => server.url(),
        (None, Where::SmallDisk) => format!("sqlite:{}", disk.join("jobs.db").display()),
        (None, _) => format!("sqlite:{}", folder.join("jobs.db").display()),
    };
    let shape = Shape { store, ttl: sort.ttl, run: sort.run, descriptors: sort.faults.descriptors() };
    let done = bench.runtime.block_on(work(sort, wanted, ostler, &folder, &shape));
    if done.is_err() {
        let log = std::fs::read_to_string(folder.join("nodes.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        eprintln!("the last lines of the nodes:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    drop(server);
    if sort.store == Where::SmallDisk {
        crate::postgres::server::said(std::process::Command::new("umount").arg("-l").arg(&disk))?;
    }
    done
}

async fn work(
    sort: &Sort,
    wanted: &Wanted,
    ostler: &Path,
    folder: &Path,
    shape: &Shape,
) -> Result<Found, Error> {
    let began = Instant::now();
    let tasks = sort.tasks(wanted);
    let store = open(&shape.store).await?;
    let mut fleet = Fleet::start(ostler, folder, shape, NODES)?;
    let submitting = submit(Arc::clone(&store), tasks, sort.load());
    let mut seed = Seed::new(wanted.seed);
    let mut moments = Vec::new();
    for _ in 0..sort.faults.rounds(wanted.faults) {
        tokio::time::sleep(sort.faults.pause(&mut seed)).await;
        let fault = sort.faults.draw(&mut seed);
        moments.extend(fault.happen(&mut fleet, &mut seed, shape, folder).await?);
        fleet.mend()?;
        if all_done(&*store, tasks).await && submitting.is_finished() {
            break;
        }
    }
    fleet.lift_descriptor_limit().await?;
    Fault::over(folder)?;
    let Submitted { acknowledged, refused } = submitting.await?;
    let ended = Instant::now();
    while !all_done(&*store, u64::try_from(acknowledged.len())?).await {
        fleet.mend()?;
        if ended.elapsed() > PATIENCE {
            return Err(format!("after {PATIENCE:?} there are still tasks that have not ended").into());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    fleet.end().await?;
    let effects = Effects::read(folder, &moments)?;
    let faults = moments.len();
    let left = fleet.left();
    check(&*store, &acknowledged, refused, effects, faults, left, began.elapsed()).await
}

async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    Ok(match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(path, Arc::new(SystemClock), ostler_sqlite::Options::default())?),
        None => Arc::new(Postgres::open(url, ostler_postgres::Options::default()).await?),
    })
}

/// The result of the submissions.
struct Submitted {
    acknowledged: Vec<TaskId>,
    refused: u64,
}

/// Submits tasks one by one, whatever happens to the store, until this many were acknowledged.
fn submit(
    store: Arc<dyn Store>,
    tasks: u64,
    (payload, spacing): (String, Duration),
) -> JoinHandle<Submitted> {
    tokio::spawn(async move {
        let mut submitted = Submitted { acknowledged: Vec::new(), refused: 0 };
        let Ok(ids) = ostler::ids() else { return submitted };
        while u64::try_from(submitted.acknowledged.len()).is_ok_and(|count| count < tasks) {
            let task = NewTask::new(TaskId(ids()), QUEUE, "effect", &payload);
            match store.enqueue(vec![task]).await.as_deref() {
                Ok([Enqueued::Created(id) | Enqueued::Existing(id)]) => {
                    submitted.acknowledged.push(*id);
                    if !spacing.is_zero() {
                        tokio::time::sleep(spacing).await;
                    }
                }
                Ok(_) | Err(_) => {
                    submitted.refused += 1;
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
        submitted
    })
}

/// Whether this many tasks have finished; false if the store does not answer.
async fn all_done(store: &dyn Store, tasks: u64) -> bool {
    store.survey().await.is_ok_and(|survey| {
        let ended = survey.lanes.iter().map(|lane| {
            let counts = lane.counts;
            counts.completed + counts.failed + counts.cancelled
        });
        ended.sum::<u64>() >= tasks
    })
}

async fn every_task(store: &dyn Store) -> Result<Vec<ostler_core::Task>, Error> {
    let (mut tasks, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(Filter::default(), cursor, 1_000).await?;
        tasks.extend(page.tasks);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(tasks),
        }
    }
}
