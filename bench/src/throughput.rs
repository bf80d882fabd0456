//! Throughput: tasks per second from enqueue to done, compared with the ceiling. Every round has fresh files on both sides.

use std::path::Path;

use crate::load::{Keys, Shape};
use crate::report::{Report, Round, ThroughputRow};
use crate::sides::{Sides, Start};
use crate::{Bench, Error, Place, disk};

const ROWS: [(Shape, Keys); 9] = [
    (Shape::Batch(1), Keys::Without),
    (Shape::Batch(32), Keys::Without),
    (Shape::Batch(128), Keys::Without),
    (Shape::Batch(1_000), Keys::Without),
    (Shape::Callers(1), Keys::Without),
    (Shape::Callers(8), Keys::Without),
    (Shape::Callers(64), Keys::Without),
    (Shape::Pipelined(128), Keys::Without),
    (Shape::Batch(128), Keys::Distinct),
];

pub(crate) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    for (shape, keys) in ROWS {
        let what = name(shape, keys);
        if !bench.wants(&format!("{}: {what}", place.name)) {
            continue;
        }
        let rounds = (0..bench.scale.rounds).map(|_| round(bench, place.path(), shape, keys));
        let rounds = rounds.collect::<Result<_, Error>>()?;
        report.throughput.push(ThroughputRow { place: place.name, what, rounds });
    }
    Ok(())
}

/// The name of a row.
pub(crate) fn name(shape: Shape, keys: Keys) -> String {
    match keys {
        Keys::Without => shape.name(),
        Keys::Distinct => format!("{}, each with a limit key", shape.name()),
    }
}

fn round(bench: &Bench, dir: &Path, shape: Shape, keys: Keys) -> Result<Round, Error> {
    let mut sides = Sides::fresh(bench, &dir.join("fresh"), keys, Start::Empty)?;
    let fdatasync = disk::probe(dir, bench.scale.probe)?;
    for _ in 0..bench.scale.slices {
        sides.slice(bench, shape)?;
    }
    let (ours, ceiling) = sides.end()?;
    Ok(Round { fdatasync, ours: ours.rate(), ceiling: ceiling.rate() })
}
