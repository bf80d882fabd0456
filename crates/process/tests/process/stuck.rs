//! Attempts that are alive and do nothing.

use std::time::{Duration, Instant};

use ostler_core::ErrorClass;
use ostler_exec::{AttemptResult, Work};
use ostler_process::{CommandPolicy, ProcessPolicy};

use crate::bench::{failure, run, runs, supervisor, until, work};
use crate::desk::{Desk, output, policy, task};

/// Long enough for a busy machine to give a living child some CPU time in each half of it.
const STUCK_AFTER: Duration = Duration::from_secs(2);

fn python(script: &str) -> CommandPolicy {
    CommandPolicy { stuck_after: Some(STUCK_AFTER), ..CommandPolicy::new(["python3", "-c", script]) }
}

/// Asserts that an attempt was found to be stuck, and not before its time.
fn is_stuck(ended: AttemptResult, began: Instant) {
    assert!(began.elapsed() >= STUCK_AFTER, "{:?}", began.elapsed());
    let failure = failure(ended);
    assert_eq!(failure.class, ErrorClass::Stuck, "{failure:?}");
    assert!(failure.message.contains("no output and no CPU time for 2s"), "{}", failure.message);
}

#[tokio::test]
async fn a_command_that_sleeps_is_stuck_and_its_children_are_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid = folder.path().join("pid");
    let script = format!(
        "import os, subprocess, sys, time; child = subprocess.Popen(['sleep', '600']); \
         open({pid:?}, 'w').write(str(child.pid)); print('begun', file=sys.stderr, flush=True); time.sleep(600)"
    );
    let began = Instant::now();
    let (ended, _) = run(&supervisor().await, python(&script), work("1")).await;
    assert!(failure(ended.clone()).details.is_some_and(|details| details.contains("begun")), "{ended:?}");
    is_stuck(ended, began);
    let child: u32 = std::fs::read_to_string(&pid).expect("it has begun").parse().expect("a pid");
    until("its child is gone", || !runs(child)).await;
}

#[tokio::test]
async fn a_command_that_burns_cpu_or_prints_is_left_alone() {
    let supervisor = supervisor().await;
    let burns = "import time; end = time.monotonic() + 6\nwhile time.monotonic() < end: pass\nprint(1)";
    // In a child of its own, while it waits for that.
    let delegates = format!(
        "import subprocess, sys; print(len(subprocess.check_output([sys.executable, '-c', {burns:?}])))"
    );
    let prints = "import time\nfor i in range(12): print('on', flush=True); time.sleep(0.5)\n";
    let (burnt, delegated, printed) = tokio::join!(
        run(&supervisor, python(burns), work("1")),
        run(&supervisor, python(&delegates), work("1")),
        run(&supervisor, python(prints), work("1")),
    );
    assert_eq!(output(burnt.0), "1");
    assert_eq!(output(delegated.0), "2");
    assert!(output(printed.0).starts_with("\"on"));
}

#[tokio::test]
async fn a_worker_that_does_nothing_is_stuck_and_one_that_speaks_is_not() {
    let desk = Desk::of(ProcessPolicy { stuck_after: Some(STUCK_AFTER), ..policy("well") }).await;
    let worker = desk.open().await;
    let lively = desk.run(worker, Work { timeout: STUCK_AFTER * 20, ..task("speak", "12") }).await.0;
    assert_eq!(lively, AttemptResult::success(None));
    let began = Instant::now();
    let (ended, _) = desk.run(worker, task("hang-politely", "null")).await;
    is_stuck(ended, began);
}
