//! Lists of rare states: ten failed tasks that are the oldest, many completed ones, and five that run. The same lists without the
//! completed ones are the yardstick.

use std::sync::Arc;
use std::time::Instant;

use ostler_core::StateName;
use ostler_store::views::{Filter, ListOrder};

use crate::load::QUEUE;
use crate::ours::Ours;
use crate::report::{LatencyRow, Report};
use crate::stats::Samples;
use crate::{Bench, Error};

const FAILED: usize = 10;
const RUNNING: usize = 5;
/// Tasks per page, as `ostler ls` reads them.
const PAGE: usize = 100;

/// One list: its name with few tasks and with many, its filter, and how many tasks it must have.
struct Row {
    few: &'static str,
    many: &'static str,
    filter: Filter,
    found: usize,
}

fn rows() -> [Row; 4] {
    let of = |state| Filter { state: Some(state), ..Filter::ALL };
    [
        Row {
            few: "list of 10 failed, few others",
            many: "list of 10 failed, which are the oldest",
            filter: of(StateName::Failed),
            found: FAILED,
        },
        Row {
            few: "list of 10 failed of a queue, few others",
            many: "list of 10 failed of a queue, oldest first",
            filter: Filter {
                queue: Some(QUEUE.to_owned()),
                order: ListOrder::OldestFirst,
                ..of(StateName::Failed)
            },
            found: FAILED,
        },
        Row {
            few: "list of 5 running, few others",
            many: "list of 5 running",
            filter: of(StateName::Running),
            found: RUNNING,
        },
        Row {
            few: "list of 100 completed, few others",
            many: "list of 100 completed, the last to end",
            filter: of(StateName::Completed),
            found: PAGE,
        },
    ]
}

/// Measures every list on a store with few tasks and on one with many, in turns.
pub(crate) fn run(
    bench: &Bench,
    place: &'static str,
    [few, many]: [Arc<Ours>; 2],
    fdatasync: f64,
    report: &mut Report,
) -> Result<(), Error> {
    bench.runtime.block_on(async {
        for (ours, completed) in [(&few, PAGE), (&many, bench.scale.backlog)] {
            ours.fail(FAILED).await?;
            ours.warm_up(completed).await?;
            ours.start(RUNNING).await?;
        }
        for row in rows() {
            let (mut with_few, mut with_many) = (Samples::default(), Samples::default());
            for _ in 0..bench.scale.samples {
                for (ours, samples) in [(&few, &mut with_few), (&many, &mut with_many)] {
                    let begun = Instant::now();
                    let found = ours.list(row.filter.clone(), PAGE).await?;
                    samples.add(begun.elapsed());
                    if found != row.found {
                        return Err(format!("{}: {found} tasks, not {}", row.many, row.found).into());
                    }
                }
            }
            for (what, samples) in [(row.few, with_few), (row.many, with_many)] {
                report.latency.push(LatencyRow { place, what, samples, fdatasync });
            }
        }
        Ok(())
    })
}
