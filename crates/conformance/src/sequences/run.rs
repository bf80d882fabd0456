//! Runs many random sequences, several at once.

use tokio::task::JoinSet;

use super::super::fixture::Constructor;
use super::draw::{ROWS, draw, row_name};
use super::op::{Names, Step};
use super::shrink::{shrink, try_out};

/// Sequences that run concurrently.
const AT_ONCE: u64 = 8;
/// From this many operations on, the share of each sort is significant.
const ENOUGH: usize = 20_000;

/// Each sort of operation must be drawn at least once in this many.
const RAREST: usize = 200;

/// The counts of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceReport {
    pub sequences: usize,
    /// Operations of all sequences.
    pub operations: usize,
    /// How often each sort of operation was drawn, rarest first.
    pub sorts: Vec<(&'static str, usize)>,
}

/// Compares `count` sequences of `ops` operations each, and prints the counts.
///
/// # Panics
/// When the stores differ, with the seed and the shortest sequence found that shows it; and when, in a large run,
/// some sort of operation is drawn in less than one of two hundred.
pub async fn run(
    make: &Constructor,
    reference: &Constructor,
    count: usize,
    ops: usize,
    first_seed: u64,
) -> SequenceReport {
    let mut sorts = vec![0; ROWS];
    let end = first_seed + count as u64;
    // Dropped at the first difference, which aborts the others.
    let mut lanes = JoinSet::new();
    for lane in 0..AT_ONCE {
        let (make, reference) = (make.clone(), reference.clone());
        lanes.spawn(async move {
            let mut sorts = vec![0; ROWS];
            let mut seed = first_seed + lane;
            while seed < end {
                let drawn = draw(seed, ops);
                for (row, _) in &drawn {
                    sorts[*row] += 1;
                }
                let steps = drawn.into_iter().map(|(_, step)| step).collect();
                check(&make, &reference, seed, steps).await?;
                seed += AT_ONCE;
            }
            Ok::<_, String>(sorts)
        });
    }
    while let Some(lane) = lanes.join_next().await {
        match lane.expect("a store that panics is an answer") {
            Ok(some) => sorts.iter_mut().zip(some).for_each(|(sum, some)| *sum += some),
            Err(difference) => panic!("{difference}"),
        }
    }
    let operations = count * ops;
    let mut sorts: Vec<(&str, usize)> =
        sorts.into_iter().enumerate().map(|(row, n)| (row_name(row), n)).collect();
    sorts.sort_by_key(|sort| sort.1);
    let rarest = sorts[0];
    println!(
        "{count} sequences, {operations} operations of {ROWS} sorts, the rarest: {} ({})",
        rarest.0, rarest.1
    );
    assert!(
        operations < ENOUGH || rarest.1 * RAREST >= operations,
        "only {} of {operations} operations are \"{}\": less than one of {RAREST}",
        rarest.1,
        rarest.0
    );
    SequenceReport { sequences: count, operations, sorts }
}

async fn check(
    make: &Constructor,
    reference: &Constructor,
    seed: u64,
    steps: Vec<Step>,
) -> Result<(), String> {
    let names = Names { seed };
    let Err((steps, why)) = try_out(make, reference, names, steps).await else { return Ok(()) };
    let drawn = steps.len();
    let (steps, why) = shrink(make, reference, names, steps, why).await;
    let lines: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(at, step)| format!("{:3}. {:?}: {:?}", at + 1, step.via, step.act))
        .collect();
    Err(format!(
        "seed {seed}: the stores differ after {} operations (shrunk from {drawn}):\n{}\n{why}",
        steps.len(),
        lines.join("\n")
    ))
}
