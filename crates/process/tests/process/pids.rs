//! A pid that somebody else has by now is never signalled. To have one used again, the tests run in a namespace of pids where
//! they may say which comes next.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use ostler_process::supervisor::Exit;

use crate::bench::{ROLE, script, supervisor};

/// So often somebody else may have taken the pid.
const MAX_TRIES: u32 = 50;

/// A stranger with this pid.
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

/// Not a test: the process that has pids used again.
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
    // Orders are followed one after the other: when this one has ended, those before were followed.
    let mut next = supervisor.spawn(script("true", &[])).await.expect("it starts");
    assert_eq!(next.ended().await, Ok(Exit::Code(0)));
    // Whoever is to die does nothing before.
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
