//! Throughput with a large backlog. The yardstick is the loss of the ceiling with the same rows: a bigger file slows
//! down any program.

use std::path::Path;

use ostler_sqlite::Durability;

use crate::ceiling::{Bare, Rows, Synchronous};
use crate::load::{Keys, Shape};
use crate::ours::Ours;
use crate::report::{BacklogRound, BacklogRow, Report};
use crate::sides::{Sides, Start, files};
use crate::throughput::name;
use crate::{Bench, Error, Place, disk};

/// The rows of a backlog.
#[derive(Clone, Copy)]
enum Obstacle {
    /// Rows of these sorts, the same number of each.
    Rows(&'static [Rows]),
    /// A key with one running task and all the others behind it.
    SaturatedKey,
    /// A thousand keys that are rate limited until tomorrow, and all tasks theirs.
    LimitedKeys,
}

/// One backlog, and the shapes measured with it.
struct Backlog {
    name: &'static str,
    obstacle: Obstacle,
    measured: &'static [(Shape, Keys)],
}

const PLAIN: &[(Shape, Keys)] = &[(Shape::Batch(128), Keys::Without), (Shape::Callers(64), Keys::Without)];

const BACKLOGS: &[Backlog] = &[
    Backlog {
        name: "finished, as many queued in another lane, as many behind in the same lane",
        obstacle: Obstacle::Rows(&[Rows::Finished, Rows::Elsewhere, Rows::Behind]),
        measured: PLAIN,
    },
    Backlog {
        name: "due tomorrow, of higher rank",
        obstacle: Obstacle::Rows(&[Rows::Waiting]),
        measured: PLAIN,
    },
    Backlog {
        name: "behind a saturated key",
        obstacle: Obstacle::SaturatedKey,
        // Concurrent callers with keys would wait for each other's keys.
        measured: &[
            (Shape::Batch(128), Keys::Without),
            (Shape::Callers(64), Keys::Without),
            (Shape::Batch(128), Keys::Distinct),
        ],
    },
    Backlog {
        name: "of a thousand keys that were told to come back tomorrow",
        obstacle: Obstacle::LimitedKeys,
        measured: &[
            (Shape::Batch(128), Keys::Without),
            (Shape::Callers(64), Keys::Without),
            (Shape::Batch(128), Keys::Distinct),
        ],
    },
];

/// Measures every backlog.
pub(crate) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    for backlog in BACKLOGS {
        let (count, start) = match backlog.obstacle {
            Obstacle::Rows(_) => (bench.scale.backlog, Start::Empty),
            // Keys cost extra for each task, with or without a backlog, so the baseline has them too.
            Obstacle::SaturatedKey => (bench.scale.saturated, Start::HeldKey),
            Obstacle::LimitedKeys => (bench.scale.saturated, Start::LimitedKeys),
        };
        let title = format!("{} {}", thousands(count), backlog.name);
        if !bench.wants(&format!("backlog: {title}")) {
            continue;
        }
        let folder = place.path().join("backlog");
        std::fs::create_dir(&folder)?;
        fill(bench, &folder, backlog.obstacle, count)?;
        disk::settle();
        for (shape, keys) in backlog.measured {
            let what = name(*shape, *keys);
            eprintln!("bench:   {what}");
            let mut full = Sides::open(bench, &folder, *keys, Start::Empty)?;
            let rounds =
                (0..bench.scale.rounds).map(|_| round(bench, place.path(), &mut full, *shape, *keys, start));
            let rounds = rounds.collect::<Result<_, Error>>()?;
            let outside_index = match backlog.obstacle {
                Obstacle::Rows(sorts) => sorts.iter().any(|rows| matches!(rows, Rows::Waiting)),
                Obstacle::SaturatedKey | Obstacle::LimitedKeys => true,
            };
            let (place, backlog) = (place.name, title.clone());
            report.backlog.push(BacklogRow { place, backlog, outside_index, what, rounds });
        }
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn thousands(count: usize) -> String {
    match count {
        few if few < 1_000 => few.to_string(),
        many => format!("{},{:03}", thousands(many / 1_000), many % 1_000),
    }
}

/// Creates the backlog on both sides, without waiting for the disk.
fn fill(bench: &Bench, folder: &Path, obstacle: Obstacle, count: usize) -> Result<(), Error> {
    let (ours, ceiling) = files(folder);
    let mut ceiling = Bare::open(&ceiling, Synchronous::Normal)?;
    bench.runtime.block_on(async {
        let ours = Ours::open(&ours, Durability::Relaxed, Keys::Without).await?;
        match obstacle {
            Obstacle::Rows(sorts) => {
                for rows in sorts {
                    ours.fill(*rows, count).await?;
                    ceiling.fill(*rows, count)?;
                }
                Ok(())
            }
            Obstacle::SaturatedKey => {
                ours.saturate(count).await?;
                // The ceiling has no keys: such rows are outside its index.
                ceiling.fill(Rows::Waiting, count)
            }
            Obstacle::LimitedKeys => {
                ours.limit(count).await?;
                ceiling.fill(Rows::Waiting, count)
            }
        }
    })
}

/// Runs both sides without and with the backlog, alternating.
fn round(
    bench: &Bench,
    dir: &Path,
    full: &mut Sides,
    shape: Shape,
    keys: Keys,
    start: Start,
) -> Result<BacklogRound, Error> {
    let mut empty = Sides::fresh(bench, &dir.join("fresh"), keys, start)?;
    let fdatasync = disk::probe(dir, bench.scale.probe)?;
    for _ in 0..bench.scale.slices {
        empty.slice(bench, shape)?;
        full.slice(bench, shape)?;
    }
    let (ours_empty, ceiling_empty) = empty.end()?;
    let (ours, ceiling) = full.take();
    Ok(BacklogRound::of(fdatasync, (ours_empty, ceiling_empty), (ours, ceiling)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_020_300), "1,020,300");
    }
}
