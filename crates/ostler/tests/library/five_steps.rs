//! The five-steps example, killed at every point: stored steps are never repeated.

use std::path::Path;

use ostler_testkit::{Twin, scratch};

#[allow(dead_code, reason = "the example's own main function is not called here")]
#[path = "../../examples/five_steps.rs"]
mod example;

const FOLDER: &str = "OSTLER_TEST_FOLDER";

#[test]
#[ignore = "the other process of the test below"]
fn brings_a_document_through() {
    let folder = std::env::var_os(FOLDER).expect("the test says where");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(example::run(Path::new(&folder))).expect("it is brought through");
    assert_eq!(done, "completed with Some(\"3\") words");
}

fn times(folder: &Path, step: &str) -> usize {
    let effects = std::fs::read_to_string(folder.join("effects")).unwrap_or_default();
    effects.lines().filter(|line| line.split(' ').next() == Some(step)).count()
}

#[test]
fn a_program_that_dies_at_any_point_repeats_no_step_that_was_kept() {
    for (place, step) in example::STEPS.iter().enumerate() {
        for when in ["done", "kept"] {
            let folder = scratch();
            let here = (FOLDER, folder.path().as_os_str());
            let at = format!("{step}:{when}");
            let dies = Twin::start("five_steps::brings_a_document_through", &[here, ("DIE_AT", at.as_ref())]);
            assert!(!dies.wait().success(), "it dies at {at}");
            assert_eq!(times(folder.path(), step), 1, "at {at}");
            Twin::start("five_steps::brings_a_document_through", &[here]).succeed();
            for (other, name) in example::STEPS.iter().enumerate() {
                // Only a step that was done but not stored is repeated.
                let expected = if other == place && when == "done" { 2 } else { 1 };
                assert_eq!(times(folder.path(), name), expected, "{name}, after it died at {at}");
            }
        }
    }
}
