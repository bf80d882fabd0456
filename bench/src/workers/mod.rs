//! Long-lived workers compared with common pools in Python and JavaScript: the round trip of a no-op task, and tasks per second with
//! 1, 4 and 16 workers. All take turns.
//!
//! The peers store nothing, so they are compared with the executor alone (`alone.rs`). The cost of a task that is on disk
//! before it begins and when it has ended is measured separately (`durable.rs`).

mod alone;
mod durable;
mod peers;

pub(crate) use peers::{carry_out, npm_package};

use std::path::{Path, PathBuf};

use ostler_process::supervisor::{Supervisor, SupervisorProgram};
use ostler_process::{Environment, Process, ProcessPolicy};

use crate::child::Role;
use crate::stats::median;
use crate::{Bench, Error, Place, Scale, machine};
use peers::Peers;

/// The requested run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Calls of each measurement.
    pub(crate) calls: u32,
    pub(crate) rounds: u32,
    /// Worker counts, in turn.
    pub(crate) workers: Vec<u32>,
    pub(crate) peers: Beside,
}

/// Whether peers are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// All that can be installed.
    Peers,
    /// None; nothing is installed.
    None,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { calls: 5_000, rounds: 3, workers: vec![1, 4, 16], peers: Beside::Peers }
    }
}

/// The program that runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    OstlerPython,
    OstlerJs,
    OstlerPythonDurable,
    ProcessPool,
    Loky,
    Piscina,
}

impl Side {
    const ALL: [Self; 6] = [
        Self::OstlerPython,
        Self::OstlerJs,
        Self::OstlerPythonDurable,
        Self::ProcessPool,
        Self::Loky,
        Self::Piscina,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::OstlerPython => "ostler, Python worker",
            Self::OstlerJs => "ostler, JavaScript worker",
            Self::OstlerPythonDurable => "ostler, Python worker, each task on disk",
            Self::ProcessPool => "ProcessPoolExecutor",
            Self::Loky => "loky",
            Self::Piscina => "piscina",
        }
    }
}

/// The result of one measurement.
#[derive(Clone, Debug)]
struct Figures {
    /// `None` for Ostler.
    version: Option<String>,
    /// The median round trip. `None`: not measured.
    p50_us: Option<f64>,
    per_second: f64,
}

/// Measures, and prints a table.
pub(crate) fn run(wanted: &Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let bench = Bench::new(Scale::QUICK, None)?;
    let under = dir.unwrap_or_else(machine::default_dir);
    let place = Place::new(&under)?;
    let peers = match wanted.peers {
        Beside::Peers => Peers::set_up(&under),
        Beside::None => Peers::default(),
    };
    println!(
        "{} tasks that do nothing, medians of {} rounds in turns; load {}",
        wanted.calls,
        wanted.rounds,
        machine::load()
    );
    println!("| who | workers | there and back, p50 | tasks/s |");
    println!("|---|---:|---:|---:|");
    for workers in &wanted.workers {
        let mut all = vec![Vec::new(); Side::ALL.len()];
        for round in 0..wanted.rounds {
            for (side, figures) in Side::ALL.iter().zip(&mut all) {
                let store = place.path().join(format!("{workers}-{round}.db"));
                figures.extend(measure(&bench, &peers, *side, wanted.calls, *workers, &store)?);
            }
        }
        for (side, figures) in Side::ALL.iter().zip(all) {
            print_row(*side, *workers, &figures);
        }
    }
    Ok(())
}

fn print_row(side: Side, workers: u32, figures: &[Figures]) {
    let Some(first) = figures.first() else { return };
    let version = first.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let there_and_back: Vec<f64> = figures.iter().filter_map(|figures| figures.p50_us).collect();
    let there_and_back = match there_and_back.is_empty() {
        true => String::new(),
        false => format!("{:.0} µs", median(there_and_back)),
    };
    let rate = median(figures.iter().map(|figures| figures.per_second).collect());
    println!("| {}{version} | {workers} | {there_and_back} | {rate:.0} |", side.name());
}

/// One measurement; `None` if a peer is not installed.
fn measure(
    bench: &Bench,
    peers: &Peers,
    side: Side,
    calls: u32,
    workers: u32,
    store: &Path,
) -> Result<Option<Figures>, Error> {
    match side {
        Side::OstlerPython => bench.runtime.block_on(alone::run(python_worker(), calls, workers)).map(Some),
        Side::OstlerJs => bench.runtime.block_on(alone::run(js_worker(), calls, workers)).map(Some),
        Side::OstlerPythonDurable => {
            bench.runtime.block_on(durable::run(python_worker(), store, calls, workers)).map(Some)
        }
        Side::ProcessPool => peers.python("processpool", calls, workers),
        Side::Loky => peers.python("loky", calls, workers),
        Side::Piscina => peers.piscina(calls, workers),
    }
}

/// The kind of the benchmark's workers: a no-op.
const KIND: &str = "noop";

/// The folder with the programs of all sides.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/workers")
}

pub(crate) fn python_worker() -> ProcessPolicy {
    let program = programs().join("ours.py");
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python");
    let mut environment = Environment::default();
    environment.set.push(("PYTHONPATH".to_owned(), sdk.display().to_string()));
    ProcessPolicy {
        environment,
        ..ProcessPolicy::new("bench", ["python3".into(), program.display().to_string()])
    }
}

pub(crate) fn js_worker() -> ProcessPolicy {
    let program = programs().join("ours.mjs");
    ProcessPolicy::new("bench", ["node".into(), program.display().to_string()])
}

/// The executor, with the supervisor of its children.
async fn executor(policy: ProcessPolicy) -> Result<(Process, Supervisor), Error> {
    let supervisor = supervisor().await?;
    Ok((Process::new(supervisor.clone(), policy)?, supervisor))
}

/// This program as a supervisor.
pub(crate) async fn supervisor() -> Result<Supervisor, Error> {
    let program = SupervisorProgram::this(["child", Role::Supervisor.name(), "-"]);
    Ok(Supervisor::start(program, Vec::new()).await?)
}
