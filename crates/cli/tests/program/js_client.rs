//! The client of the HTTP API in JavaScript. Its own tests start nodes with the real program, and do `sdk/scenario.json`.

use std::path::Path;
use std::process::Command;

use crate::ostler::Place;

/// Runs these tests; their nodes have this store on a server, if there is one.
fn run(files: &[&str], store: Option<&str>) {
    let mut command = Command::new("node");
    if let Some(store) = store {
        command.env("OSTLER_TEST_STORE", store);
    }
    let output = command
        .arg("--test")
        .args(files)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/js"))
        .env("OSTLER_PROGRAM", env!("CARGO_BIN_EXE_ostler"))
        .env_remove("NODE_TEST_CONTEXT")
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let all_ran = said.contains("skipped 0") && said.contains("fail 0");
    assert!(output.status.success() && all_ran, "not all of them ran:\n{said}");
}

#[test]
fn the_client_in_javascript_does_the_scenario_and_survives_cuts() {
    run(&["test/scenario.test.mjs", "test/client.test.mjs"], None);
}

#[test]
fn a_test_in_javascript_starts_a_node_and_gives_it_work() {
    run(&["test/testing.test.mjs"], None);
}

#[test]
fn the_client_in_javascript_does_the_scenario_on_a_server() {
    run(&["test/scenario.test.mjs"], Some(Place::on_server().url()));
}
