//! Leaks: after two hundred children, everything is as before. The count needs a process of its own, so the test program starts
//! itself again.

use std::fs::read_dir;
use std::process::{Command, Stdio};

use ostler_process::CommandPolicy;

use crate::bench::{ROLE, children_of, run, state, supervisor, until, work};

const CHILDREN: usize = 200;
/// Concurrent children.
const AT_ONCE: usize = 10;

/// Not a test: counts, alone in its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is the process that counts"]
async fn count_alone() {
    if std::env::var_os(ROLE).is_none_or(|role| role != "count") {
        return;
    }
    let supervisor = supervisor().await;
    // The first child opens descriptors that stay open.
    batch(&supervisor, 1).await;
    let open = |pid: u32| read_dir(format!("/proc/{pid}/fd")).expect("it runs").count();
    let (me, its) = (std::process::id(), supervisor.pid());
    let before = (open(me), open(its));
    for _ in 0..CHILDREN / AT_ONCE {
        batch(&supervisor, AT_ONCE).await;
    }
    until("as many are open as before", || (open(me), open(its)) == before).await;
    until("the supervisor has no child, not even a dead one", || children_of(its) == 0).await;
    supervisor.stop().await;
    assert_eq!(state(its), None, "the supervisor itself is reaped");
}

async fn batch(supervisor: &ostler_process::supervisor::Supervisor, count: usize) {
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..count {
        let supervisor = supervisor.clone();
        // Some cannot be started, some leave a child behind.
        let policy = match number % 3 {
            0 => CommandPolicy::new(["sh", "-c", "echo 1; echo 2 >&2"]),
            1 => CommandPolicy::new(["no-such-program"]),
            _ => CommandPolicy::new(["sh", "-c", "setsid sleep 600 & exit 3"]),
        };
        runs.spawn(async move { run(&supervisor, policy, work("1")).await.0 });
    }
    runs.join_all().await;
}

#[test]
fn two_hundred_children_leave_no_zombie_and_no_descriptor() {
    let status = Command::new("/proc/self/exe")
        .args(["--exact", "leaks::count_alone", "--ignored", "--nocapture"])
        .env(ROLE, "count")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");
}
