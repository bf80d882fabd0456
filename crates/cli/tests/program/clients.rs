//! Clients of the HTTP API in other languages. Their own tests start nodes with the real program, and do `sdk/scenario.json`.

use std::path::Path;
use std::process::Command;

#[test]
fn the_client_in_python_does_the_scenario_and_survives_cuts() {
    let output = Command::new("python3")
        .args(["-m", "unittest", "discover", "-s", "tests/client"])
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
