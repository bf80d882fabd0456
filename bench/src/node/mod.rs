//! The node end to end: no-op handlers compared with the store and the ceiling, pick-up, commands, an idle node, failover.

mod commands;
mod drained;
mod failover;
mod idle;
mod pick_up;
mod side;

use std::path::{Path, PathBuf};

use ostler_sqlite::Durability;

use crate::args::Output;
use crate::ceiling::{Bare, Synchronous};
use crate::load::{Keys, Shape, Tally};
use crate::machine::{self, Machine};
use crate::ours::Ours;
use crate::report::{NodeRound, NodeRow, Report};
use crate::scale::Scale;
use crate::{Bench, DISK, Error, MEMORY, Place, disk};

pub(crate) use drained::drained;
pub(crate) use failover::serve_victim;
pub(crate) use idle::serve_idle;
use side::NodeSide;

/// Worker counts of the measured pool.
const WORKERS: [usize; 3] = [1, 8, 64];
/// The shape of the store and the ceiling, to compare with a node: that of a good node.
const BESIDE: Shape = Shape::Pipelined(128);

pub(crate) fn run(
    scale: Scale,
    output: &Output,
    dir: Option<PathBuf>,
    only: Option<String>,
) -> Result<(), Error> {
    let bench = Bench::new(scale, only)?;
    let disk = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    let mut report = Report::new(Machine::look(disk.path()));
    eprintln!("bench: draining the disk's burst for {:?}", scale.drain);
    disk::probe(disk.path(), scale.drain)?;
    let mut places = vec![disk];
    if places[0].name == DISK && Path::new(MEMORY).is_dir() {
        places.push(Place::new(Path::new(MEMORY))?);
    }
    for place in &places {
        no_ops(&bench, place, &mut report)?;
        commands::run(&bench, place, &mut report)?;
    }
    pick_up::run(&bench, &places[0], &mut report)?;
    failover::run(&bench, &places[0], &mut report)?;
    idle::run(&bench, &places[0], &mut report)?;
    report.end(machine::load());
    output.write(&report)
}

fn no_ops(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    for workers in WORKERS {
        let what = match workers {
            1 => "1 worker".to_owned(),
            more => format!("{more} workers"),
        };
        if !bench.wants(&format!("{}: {what}", place.name)) {
            continue;
        }
        let rounds = (0..bench.scale.rounds).map(|_| round(bench, place.path(), workers));
        let rounds = rounds.collect::<Result<_, Error>>()?;
        report.nodes.push(NodeRow { place: place.name, what, rounds });
    }
    Ok(())
}

/// One round: all three sides have fresh files, and alternate.
fn round(bench: &Bench, dir: &Path, workers: usize) -> Result<NodeRound, Error> {
    let folder = dir.join("fresh");
    std::fs::create_dir(&folder)?;
    let (warm_up, slice) = (bench.scale.warm_up, bench.scale.slice);
    let node = bench.runtime.block_on(NodeSide::start(&folder.join("node.db"), workers))?;
    bench.runtime.block_on(node.warm_up(warm_up))?;
    let ours =
        bench.runtime.block_on(Ours::open(&folder.join("ours.db"), Durability::Full, Keys::Without))?;
    bench.runtime.block_on(ours.warm_up(warm_up))?;
    let mut ceiling = Bare::open(&folder.join("ceiling.db"), Synchronous::Full)?;
    ceiling.warm_up(warm_up)?;
    let fdatasync = disk::probe(dir, bench.scale.probe)?;
    let mut did = [Tally::default(); 3];
    for _ in 0..bench.scale.slices {
        did[0].add(bench.runtime.block_on(node.run(slice))?);
        did[1].add(bench.runtime.block_on(ours.run(BESIDE, slice))?);
        did[2].add(ceiling.run(BESIDE, slice)?);
    }
    bench.runtime.block_on(node.end());
    drop((ours, ceiling));
    std::fs::remove_dir_all(&folder)?;
    let [node, store, ceiling] = did.map(Tally::rate);
    Ok(NodeRound { fdatasync, node, store, ceiling })
}
