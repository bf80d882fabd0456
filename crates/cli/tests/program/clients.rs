//! Clients of the HTTP API in other languages. Their own tests start nodes with the real program, and do `sdk/scenario.json`.

use std::path::Path;
use std::process::Command;

use crate::ostler::Place;

/// Runs the tests whose file name matches; their nodes have this store on a server, if there is one.
fn run(pattern: &str, store: Option<&str>) {
    let mut command = Command::new("python3");
    if let Some(store) = store {
        command.env("OSTLER_TEST_STORE", store);
    }
    let output = command
        .args(["-m", "unittest", "discover", "-s", "tests/client", "-p", pattern])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python"))
        .env("OSTLER_PROGRAM", env!("CARGO_BIN_EXE_ostler"))
        .env("PYTHONPATH", ".")
        // Leave no cache files beside the sources.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim_end().ends_with("OK"), "not all of them ran:\n{said}");
}

#[test]
fn the_client_in_python_does_the_scenario_and_survives_cuts() {
    run("test*.py", None);
}

#[test]
fn the_client_in_python_does_the_scenario_on_a_server() {
    run("test_scenario.py", Some(Place::on_server().url()));
}
