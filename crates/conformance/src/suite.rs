//! Runs the four parts of the conformance suite, one after the other.

use std::io::Write as _;

use super::fixture::Constructor;
use super::reference::reference;
use super::{races, sequences, switches, topics};
use ostler_store::Checks;

const SEQUENCES: usize = 1_000;
const OPS: usize = 60;
const FIRST_SEED: u64 = 1;
const ROUNDS: usize = 200;

/// Prints a line of counts, and appends it to the file named by `OSTLER_COUNTS`, so that a run of all tests can
/// show it at its end.
///
/// # Panics
/// When that file cannot be written.
pub fn note(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("OSTLER_COUNTS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .expect("the counts are kept");
    }
}

/// How much was tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Cases of all topics.
    pub cases: usize,
    /// Disabled checks, each of which made a case fail.
    pub switches: usize,
    /// Random sequences compared with the reference.
    pub sequences: usize,
    /// Operations of all sequences.
    pub operations: usize,
    /// Rounds of all races.
    pub rounds: usize,
}

/// Runs the whole suite, and prints its counts.
///
/// # Panics
/// At the first violation of the contract.
pub async fn run(name: &str, make: &Constructor) -> Counts {
    let start = make(Checks::default()).await.now();
    let cases = topics::run(make).await;
    let compared = sequences::run(make, &reference(start), SEQUENCES, OPS, FIRST_SEED).await;
    let switches = switches::run(make).await;
    let rounds = races::run(make, ROUNDS).await;
    let counts =
        Counts { cases, switches, sequences: compared.sequences, operations: compared.operations, rounds };
    note(&format!("{name}: {counts:?}"));
    counts
}
