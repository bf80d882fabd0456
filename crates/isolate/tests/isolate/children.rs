//! Tests in processes of their own: what ends a process, or runs forever, must not end the other tests.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::engines::Tested;

/// What the child works on.
const TOPIC: &str = "OSTLER_TEST_TOPIC";
/// Its engine.
const ENGINE: &str = "OSTLER_TEST_ENGINE";
/// Begins what a child reports: the test harness prints too.
const MARK: &str = "child: ";
/// A child that is still there after this is killed, and the test fails.
const MAX_CHILD: Duration = Duration::from_secs(120);

/// What a child reported, and how it ended.
#[derive(Debug)]
pub(crate) struct ChildRun {
    pub(crate) lines: Vec<String>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

/// In a child: its engine and its topic. `None` in other runs of the test program.
pub(crate) fn assignment() -> Option<(Tested, String)> {
    Some((Tested::named(&std::env::var(ENGINE).ok()?), std::env::var(TOPIC).ok()?))
}

/// In a child: reports a line.
pub(crate) fn report(line: &str) {
    println!("\n{MARK}{line}");
}

/// Runs an ignored test of this program in a process of its own.
pub(crate) fn run(test: &str, engine: Tested, topic: &str) -> ChildRun {
    let mut child = Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(TOPIC, topic)
        .env(ENGINE, engine.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child can be started");
    let started = Instant::now();
    let mut stdout = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    while !reader.is_finished() && started.elapsed() < MAX_CHILD {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let in_time = reader.is_finished();
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().expect("it is our child");
    let text = reader.join().expect("it does not panic");
    assert!(in_time, "{topic}: the child did not end: {text}");
    let lines: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix(MARK)).map(str::to_owned).collect();
    assert!(status.success() || status.signal().is_some(), "{topic}: the child failed: {text}");
    ChildRun { lines, signal: status.signal() }
}
