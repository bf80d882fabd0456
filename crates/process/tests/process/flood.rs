//! A gibibyte on stderr: nothing blocks, and the node's memory does not grow. The measurement needs a process of its own, so the
//! test program starts itself again.

use std::process::{Command, Stdio};

use ostler_core::Outcome;
use ostler_process::CommandPolicy;

use crate::bench::{ROLE, run, supervisor, work};
use crate::desk::{Desk, policy, task};

const GIBIBYTE: u64 = 1 << 30;
/// The most memory that the node may use: a few buffers and the lines that are kept.
const MOST_KIB: u64 = 96 * 1024;

/// The peak memory of this process.
fn high_water_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the system reports it");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Not a test: takes the flood, alone in its process.
#[tokio::test]
#[ignore = "it is the process that takes the flood"]
async fn take_it_alone() {
    match std::env::var(ROLE).as_deref() {
        Ok("flooded by a command") => {
            let script = format!("yes 'a line of this length' | head -c {GIBIBYTE} >&2; echo '\"done\"'");
            let (ended, _notes) =
                run(&supervisor().await, CommandPolicy::new(["sh", "-c", &script]), work("1")).await;
            assert_eq!(ended.output.as_deref(), Some("\"done\""), "{ended:?}");
        }
        Ok("flooded by a worker") => {
            let desk = Desk::of(policy("well")).await;
            let worker = desk.open().await;
            let (ended, _notes) = desk.run(worker, task("flood-lines", &GIBIBYTE.to_string())).await;
            assert_eq!(ended.outcome, Outcome::Success);
        }
        _ => return,
    }
    let most = high_water_kib();
    assert!(most < MOST_KIB, "it had {most} KiB");
}

fn survives(role: &str) {
    let status = Command::new("/proc/self/exe")
        .args(["--exact", "flood::take_it_alone", "--ignored", "--nocapture"])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");
}

#[test]
fn a_gibibyte_on_the_stderr_of_a_command_blocks_nothing_and_is_not_kept() {
    survives("flooded by a command");
}

#[test]
fn a_gibibyte_on_the_stderr_of_a_worker_blocks_nothing_and_is_not_kept() {
    survives("flooded by a worker");
}
