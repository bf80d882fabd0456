//! The fixture for pytest, installed with the SDK from this repository. Needs the package registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use ostler_testkit::scratch;

const PYTEST: &str = "pytest==8.4.2";

fn sdk() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python").canonicalize().expect("the SDK is there")
}

/// The block of the README whose first line names this file.
fn block(name: &str) -> String {
    let page = std::fs::read_to_string(sdk().join("README.md")).expect("the page is there");
    let begins = format!("```python\n# {name}\n");
    let rest = page.split(&begins).nth(1).unwrap_or_else(|| panic!("the page has no {name}"));
    rest.split("```").next().expect("a block ends").to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

#[test]
fn a_test_with_the_fixture_starts_a_node_and_gives_it_work() {
    let folder = scratch();
    let at = folder.path();
    run(Command::new("python3").args(["-m", "venv", "venv"]).current_dir(at));
    let packages = [sdk().to_string_lossy().into_owned(), PYTEST.to_owned()];
    run(Command::new(at.join("venv/bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .args(packages));
    for name in ["worker.py", "test_texts.py"] {
        std::fs::write(at.join(name), block(name)).expect("the file is written");
    }
    // The pool of the page runs "python3".
    let path = format!("{}:{}", at.join("venv/bin").display(), std::env::var("PATH").unwrap_or_default());
    let said = run(Command::new(at.join("venv/bin/pytest"))
        .arg("-q")
        .current_dir(at)
        .env("PATH", path)
        .env("OSTLER_PROGRAM", env!("CARGO_BIN_EXE_ostler")));
    assert!(said.contains("1 passed"), "{said}");
}
