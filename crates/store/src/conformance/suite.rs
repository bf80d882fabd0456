//! The four parts, one after the other.

use std::io::Write as _;

use super::fixture::Constructor;
use super::reference::reference;
use super::{races, sequences, switches, topics};
use crate::checks::Checks;

const SEQUENCES: usize = 1_000;
const OPS: usize = 60;
const FIRST_SEED: u64 = 1;
const ROUNDS: usize = 200;

/// Says how much was tried: on the terminal, and in the file that `OSTLER_COUNTS` names, so that a run of all tests can
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

/// How much was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Cases of all topics.
    pub cases: usize,
    /// Checks that were taken out, each of which turned a case red.
    pub switches: usize,
    /// Random sequences that were compared with the reference.
    pub sequences: usize,
    /// Operations in all of them.
    pub operations: usize,
    /// Rounds of all races.
    pub rounds: usize,
}

/// The whole suite. Panics with a sentence at the first violation, and prints its counts.
///
/// # Panics
/// When the store breaks the contract.
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
