//! A reused pid is never signalled. To reuse one, the tests run in a pid namespace where they can set the next pid.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use ostler_process::supervisor::Exit;

use crate::bench::{ROLE, script, supervisor};

/// How often another process may take the pid first.
const MAX_TRIES: u32 = 50;

/// An unrelated process with this pid.
fn stranger(pid: i32) -> Child {
    for _ in 0..MAX_TRIES {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("it can be said");
        let mut stranger =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        if i32::try_from(stranger.id()) == Ok(pid) {
            return stranger;
        }
        stranger.kill().expect("it is ours");
        stranger.wait().expect("it is ours");
    }
    panic!("the pid {pid} cannot be had");
}

/// Not a test: the process that reuses pids.
#[tokio::test]
#[ignore = "it is the process in a namespace of its own"]
async fn use_pids_again() {
    if std::env::var_os(ROLE).is_none_or(|role| role != "pids") {
        return;
    }
    let supervisor = supervisor().await;
    let mut child = supervisor.spawn(script("true", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Code(0)));
    let mut stranger = stranger(child.pid());
    child.terminate();
    child.kill();
    drop(child);
    // Requests are handled in order: when this child has ended, the earlier ones were handled.
    let mut next = supervisor.spawn(script("true", &[])).await.expect("it starts");
    assert_eq!(next.ended().await, Ok(Exit::Code(0)));
    // A process that is about to be killed would not reply.
    let (mut to, from) = (stranger.stdin.take().expect("a pipe"), stranger.stdout.take().expect("a pipe"));
    writeln!(to, "still there").expect("it was not signalled");
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line).expect("it answers");
    assert_eq!(line, "still there\n", "the stranger was signalled");
    stranger.kill().expect("it is ours");
    stranger.wait().expect("it is ours");
    supervisor.stop().await;
}

#[test]
fn a_pid_that_was_used_again_is_not_signalled() {
    if !rustix::process::geteuid().is_root() {
        return println!("left out: only root can have a namespace of pids");
    }
    let status = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "pids::use_pids_again", "--ignored", "--nocapture"])
        .env(ROLE, "pids")
        .stdout(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");
}
