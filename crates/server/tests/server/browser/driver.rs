//! Runs a scenario in Chromium: a module of this folder, started by Node.js with playwright-core and axe-core beside it.
//!
//! The two talk in lines. The scenario writes `order WORDS` for what only the test can do, and reads one line as the answer; `figure
//! WORDS` for the counts that a run of all tests shows at its end; and `done` when everything was as it must be.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ostler_testkit::{note, npm_modules};
use serde_json::Value;

/// What drives the browser, and what looks for barriers in a page. The rules of the latter are the same in every run.
const PACKAGES: [&str; 2] = ["playwright-core@1", "axe-core@4.14"];
/// How long a whole scenario may take.
const MAX_SCENARIO: Duration = Duration::from_secs(600);
/// Lines of a scenario that wait to be read.
const MAX_LINES: usize = 16;

/// The folder with the packages, installed once and kept with the build; `None` where the registry does not answer.
fn modules() -> Option<PathBuf> {
    // Other versions are installed anew.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{}", PACKAGES.join("-")));
    npm_modules(&folder, &PACKAGES, &PACKAGES.map(|package| package.split('@').next().unwrap_or_default()))
}

/// Plays a scenario to its end. `obey` does what it orders, and returns what it is told.
///
/// # Panics
/// When the scenario fails, or lasts too long.
pub(super) async fn play(scenario: &str, told: &Value, mut obey: impl AsyncFnMut(&str) -> String) {
    let Some(modules) = modules() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/browser").join(scenario);
    let mut node = Command::new("node")
        .arg(script)
        .arg(modules)
        .arg(told.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs");
    let (mut answers, out) = (node.stdin.take().expect("a pipe"), node.stdout.take().expect("a pipe"));
    let (sender, mut lines) = tokio::sync::mpsc::channel::<String>(MAX_LINES);
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let played = async {
        let mut last = String::new();
        while let Some(line) = lines.recv().await {
            match line.split_once(' ') {
                Some(("order", order)) => {
                    let answer = obey(order).await;
                    writeln!(answers, "{answer}").expect("it listens");
                }
                Some(("figure", figure)) => note(&format!("browser, {scenario}: {figure}")),
                _ => {}
            }
            last = line;
        }
        last
    };
    let last = tokio::time::timeout(MAX_SCENARIO, played).await;
    if last.is_err() {
        node.kill().expect("it is our child");
    }
    let (last, status) = (last.expect("it ends"), node.wait().expect("it ends"));
    assert!(status.success() && last == "done", "{scenario}: {status}: {last}");
}
