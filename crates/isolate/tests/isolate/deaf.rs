//! Scripts that cannot be ended on their thread: the watchdog reports them, and the end of the process ends them.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ostler_isolate::{FunctionEnd, FunctionSource, Reuse, Watchdog};

use crate::bombs::limits;
use crate::corpus::DEAF;
use crate::desk::{Desk, call, worker};

/// The script that a child runs.
const SCRIPT: &str = "OSTLER_TEST_SCRIPT";
/// How long a stopped call may run on before it is reported.
const PATIENCE: Duration = Duration::from_millis(200);
/// A child that is still there after this is killed, and the test fails.
const MAX_CHILD: Duration = Duration::from_secs(60);

/// Runs in a child of the next test: one script, under a watchdog that ends the process.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let watchdog = Watchdog::start(PATIENCE, |deaf| {
        println!("deaf {:?} after {:?}", deaf.cause, deaf.wall);
        std::process::exit(0);
    });
    let watchdog = watchdog.expect("a thread can be started");
    let mut worker = worker(limits(), Reuse::Fresh).watched(watchdog.watch_this_thread());
    let source = FunctionSource::single("test.js", &format!("export default async () => {{ {script} }}"));
    let output = worker.run(&source, call("null", &Rc::new(Desk::default())));
    println!("ended {}", output.err().map_or("output", |end| FunctionEnd::cause(&end)));
}

/// Runs a script in a process of its own, and returns what the child printed.
fn in_child(script: &str) -> String {
    let mut child = Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["--exact", "deaf::child", "--ignored", "--nocapture"])
        .env(SCRIPT, script)
        .stdout(Stdio::piped())
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
    let _ = child.kill();
    let _ = child.wait();
    let text = reader.join().expect("it does not panic");
    assert!(in_time, "{script}: neither ended nor reported: {text}");
    let line = text.lines().find(|line| line.starts_with("deaf ") || line.starts_with("ended "));
    line.unwrap_or_else(|| panic!("{script}: {text}")).to_owned()
}

#[test]
fn the_watchdog_reports_what_cannot_be_ended() {
    let mut deaf = Vec::new();
    for (name, script) in DEAF {
        let line = in_child(script);
        println!("{name}: {line}");
        // Either way the call is over: by the watchdog, or by a limit that the engine noticed late.
        if line.starts_with("deaf ") {
            assert!(line.starts_with("deaf Cpu "), "{name}: {line}");
            deaf.push(*name);
        } else {
            assert!(
                ["ended cpu", "ended memory", "ended thrown", "ended output"].contains(&line.as_str()),
                "{name}: {line}"
            );
        }
    }
    println!("{} of {} are deaf: {}", deaf.len(), DEAF.len(), deaf.join(", "));
    assert!(deaf.contains(&"join") && deaf.contains(&"String.raw"), "{deaf:?}");
}

#[test]
fn the_watchdog_leaves_calls_alone_that_end() {
    assert_eq!(in_child("return 1"), "ended output");
    assert_eq!(in_child("for (;;);"), "ended cpu");
}
