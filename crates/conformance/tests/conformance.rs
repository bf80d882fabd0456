//! The conformance suite on the in-memory reference itself. (The testkit's clock is not used: the testkit builds
//! SQLite, and the reference should be tested without it.)

use std::sync::Arc;

use ostler_conformance::{Constructor, note, races, reference, sequences, switches, topics};
use ostler_core::Timestamp;
use ostler_store::{Check, Checks};

/// 2026-01-01, so that printed timestamps look plausible.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const SEQUENCES: usize = 1_000;
const OPS: usize = 60;
/// Sequences in which a missing check must show. The search ends with the first one.
const SEARCH: usize = 40_000;

fn memory() -> Constructor {
    reference(START)
}

/// A store that lacks one check, whichever checks are requested.
fn without(check: Check) -> Constructor {
    let make = memory();
    Arc::new(move |_| make(Checks::without(check)))
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_green() {
    note(&format!("memory: {} cases", topics::run(&memory()).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_references_are_alike() {
    let report = sequences::run(&memory(), &memory(), SEQUENCES, OPS, 1).await;
    note(&format!("memory: {} sequences, {} operations", report.sequences, report.operations));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_check_turns_a_case_red() {
    note(&format!("memory: {} switches", switches::run(&memory()).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn races_have_one_winner() {
    note(&format!("memory: {} rounds", races::run(&memory(), 200).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_find_each_missing_check_and_say_the_seed() {
    for check in Check::ALL {
        let run =
            tokio::spawn(async move { sequences::run(&without(check), &memory(), SEARCH, OPS, 1).await });
        let panic = run.await.expect_err("the stores differ").into_panic();
        let said = panic.downcast_ref::<String>().expect("a panic with words");
        assert!(said.contains("seed ") && said.contains("expected:"), "{check:?}: {said}");
        println!("{check:?}: {said}");
    }
}
