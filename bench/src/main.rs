//! Benchmarks: the throughput and latency of a store, compared with its bare database in the same minutes.
//!
//! An absolute rate says little: the disk of a rented machine may be ten times slower a minute later. So each row
//! is measured in short rounds, in which the store (`ours.rs`) and a program of bare statements (`ceiling.rs`) alternate
//! (`sides.rs`), with the disk's own rate before each round (`disk.rs`); the result is the ratio.
//!
//! - `throughput.rs`: tasks per second from enqueue to done. `backlog.rs`: the same with a million rows in the way.
//! - `latency.rs`: one enqueue, one pick-up, one commit beside a hot writer; `child.rs` is its other process.
//! - `lists.rs`: lists of rare states among a million tasks.
//! - `postgres/mod.rs`: the PostgreSQL store, compared with bare statements and peers on the same server.
//! - `node/mod.rs`: a whole node: no-ops, pick-up, commands, failover, and its idle cost.
//! - `rate.rs`: how closely two nodes keep to one rate. `map.rs`: `ostler map` compared with xargs and GNU parallel.
//! - `http.rs`: the HTTP API in front of a million tasks, served by `serving.rs`, warm and cold (`cold.rs`); `readers.rs`: readers of its
//!   overview.
//! - `workers/`: long-lived workers compared with the process pools of Python and the thread pools of JavaScript.
//! - `isolates/`: JavaScript functions compared with contexts and threads of Node, and with workerd.
//! - `threads.rs`: closures on the pool of threads, compared with bare threads.
//! - `faults/`: failing nodes, servers and disks, and whether anything is lost.
//! - `turns/`: two builds in turns, to see what a change costs.
//! - `args.rs`, `scale.rs`: arguments and sizes. `machine.rs`, `report.rs`: the machine and the results.

mod args;
mod backlog;
mod ceiling;
mod child;
mod cold;
mod disk;
mod faults;
mod http;
mod isolates;
mod latency;
mod lists;
mod load;
mod machine;
mod map;
mod node;
mod ours;
mod postgres;
mod rate;
mod readers;
mod report;
mod scale;
mod serving;
mod sides;
mod stats;
mod threads;
mod throughput;
mod turns;
mod workers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ostler_sqlite::Durability;

use crate::args::{Asked, Output, USAGE};
use crate::load::Keys;
use crate::machine::Machine;
use crate::ours::Ours;
use crate::report::Report;
use crate::scale::Scale;

/// Any error ends the benchmark.
type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match args::parse(std::env::args().skip(1)) {
        Ok(Asked::Sqlite { scale, output, dir, only }) => said(sqlite(scale, &output, dir, only)),
        Ok(Asked::Postgres { scale, output, dir, only }) => said(postgres::run(scale, &output, dir, only)),
        Ok(Asked::Node { scale, output, dir, only }) => said(node::run(scale, &output, dir, only)),
        Ok(Asked::Rate { wanted, dir }) => said(rate::run(wanted, dir)),
        Ok(Asked::Map { wanted, dir }) => said(map::run(&wanted, dir)),
        Ok(Asked::Http { wanted, dir }) => said(http::run(&wanted, dir)),
        Ok(Asked::Workers { wanted, dir }) => said(workers::run(&wanted, dir)),
        Ok(Asked::Isolates { wanted, dir }) => said(isolates::run(&wanted, dir)),
        Ok(Asked::Threads(wanted)) => said(threads::run(&wanted)),
        Ok(Asked::Faults { wanted, dir }) => said(faults::run(&wanted, dir)),
        Ok(Asked::Effect { folder, id, time }) => said(faults::effect::run(&folder, &id, time)),
        Ok(Asked::Turns { wanted, dir }) => said(turns::run(&wanted, dir)),
        Ok(Asked::Slices(arguments)) => said(turns::run_slices(&arguments)),
        Ok(Asked::Child { role, path }) => said(child::run(role, &path)),
        Ok(Asked::Usage) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn said(done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// State shared by all parts of a run.
struct Bench {
    runtime: tokio::runtime::Runtime,
    scale: Scale,
    only: Option<String>,
}

impl Bench {
    fn new(scale: Scale, only: Option<String>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        Ok(Self { runtime, scale, only })
    }

    /// Whether a row is requested; if so, announces it on stderr.
    fn wants(&self, row: &str) -> bool {
        let wanted = self.only.as_deref().is_none_or(|only| row.contains(only));
        if wanted {
            eprintln!("bench: {row}");
        }
        wanted
    }
}

/// The file system that a row is measured on.
struct Place {
    /// `disk` or `tmpfs`.
    name: &'static str,
    /// Its own folder, removed at the end.
    dir: tempfile::TempDir,
}

impl Place {
    fn new(under: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(under)?;
        let name = if machine::file_system(under).starts_with(TMPFS) { TMPFS } else { DISK };
        Ok(Self { name, dir: tempfile::Builder::new().prefix("ostler-bench-").tempdir_in(under)? })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

const DISK: &str = "disk";
const TMPFS: &str = "tmpfs";
/// An in-memory file system.
const MEMORY: &str = "/dev/shm";

fn sqlite(scale: Scale, output: &Output, dir: Option<PathBuf>, only: Option<String>) -> Result<(), Error> {
    let bench = Bench::new(scale, only)?;
    let disk = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    let mut report = Report::new(Machine::look(disk.path()));
    eprintln!("bench: draining the disk's burst for {:?}", scale.drain);
    disk::probe(disk.path(), scale.drain)?;
    throughput::run(&bench, &disk, &mut report)?;
    latency::run(&bench, &disk, &mut report)?;
    lists_of_a_file(&bench, &disk, &mut report)?;
    backlog::run(&bench, &disk, &mut report)?;
    if disk.name == DISK && Path::new(MEMORY).is_dir() {
        throughput::run(&bench, &Place::new(Path::new(MEMORY))?, &mut report)?;
    }
    report.end(machine::load());
    output.write(&report)
}

fn lists_of_a_file(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    if !bench.wants("latency: lists") {
        return Ok(());
    }
    let fdatasync = disk::probe(place.path(), bench.scale.probe)?;
    let folder = place.path().join("lists");
    std::fs::create_dir(&folder)?;
    let open = |name: &str| {
        bench.runtime.block_on(Ours::open(&folder.join(name), Durability::Relaxed, Keys::Without))
    };
    lists::run(bench, place.name, [open("few.db")?, open("many.db")?], fdatasync, report)?;
    Ok(std::fs::remove_dir_all(&folder)?)
}
