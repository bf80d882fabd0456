//! The supervisor: what it does for a child, and with the descriptors that it holds.

use std::ffi::OsString;
use std::fs::{File, read_to_string};
use std::os::fd::OwnedFd;
use std::path::Path;

use ostler_exec::LivenessHolder;
use ostler_process::supervisor::{Exit, StartError, Supervisor, SupervisorProgram};
use rustix::fs::{FlockOperation, flock};

use crate::bench::{SOON, script, supervisor};

#[tokio::test]
async fn a_code_and_a_signal_are_told_apart() {
    let supervisor = supervisor().await;
    let mut child = supervisor.spawn(script("exit 7", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Code(7)));
    let mut child = supervisor.spawn(script("kill -9 $$", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)), "the answer stays");
}

#[tokio::test]
async fn a_term_is_for_the_group() {
    let supervisor = supervisor().await;
    let mut child = supervisor
        .spawn(script("trap 'exit 3' TERM; echo ready >&2; while :; do sleep 60 & wait; done", &[]))
        .await
        .expect("it starts");
    child.stderr.as_mut().expect("a pipe").readable().await.expect("it writes");
    child.terminate();
    assert_eq!(child.ended().await, Ok(Exit::Code(3)));
}

#[tokio::test]
async fn a_program_that_is_no_supervisor_is_refused() {
    let program = SupervisorProgram { program: "true".into(), ..SupervisorProgram::this::<OsString>([]) };
    let error = Supervisor::start(program, Vec::new()).await.expect_err("it is no supervisor");
    assert!(matches!(error, StartError::NoAnswer), "{error}");
}

#[tokio::test]
async fn a_child_has_a_session_and_a_group_of_its_own() {
    let supervisor = supervisor().await;
    let mut child = supervisor.spawn(script("read x < /dev/null; sleep 600", &[])).await.expect("it starts");
    let stat = read_to_string(format!("/proc/{}/stat", child.pid())).expect("it runs");
    let mut fields = stat[stat.rfind(')').expect("a name") + 1..].split_ascii_whitespace().skip(2);
    let pid = child.pid().to_string();
    assert_eq!(fields.next(), Some(pid.as_str()), "the group");
    assert_eq!(fields.next(), Some(pid.as_str()), "the session");
    child.kill();
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
}

/// A lock that belongs to the returned descriptor alone.
fn lock(path: &Path) -> OwnedFd {
    let lock = File::create(path).expect("a file");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("the lock is free");
    lock.into()
}

fn is_held(path: &Path) -> bool {
    let lock = File::open(path).expect("it is there");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[tokio::test]
async fn the_supervisor_holds_what_it_was_given_last_until_it_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let supervisor = supervisor().await;
    for _ in 0..3 {
        supervisor.hold(lock(&first)).await.expect("it holds it");
        assert!(is_held(&first) && (!second.exists() || !is_held(&second)));
        supervisor.hold(lock(&second)).await.expect("it holds it");
        assert!(is_held(&second), "it is held when the answer is there");
        assert!(!is_held(&first), "and no longer what was held before");
    }
    tokio::time::timeout(SOON, supervisor.stop()).await.expect("it ends");
    assert!(!is_held(&second));
    let refused = supervisor.hold(lock(&second)).await.expect_err("no supervisor is left to hold it");
    assert!(refused.to_string().contains("gone"), "{refused}");
}

#[tokio::test]
async fn who_waits_for_the_end_of_the_supervisor_hears_of_it() {
    let supervisor = supervisor().await;
    let gone = supervisor.clone();
    let gone = tokio::spawn(async move { gone.gone().await });
    let mut child = supervisor.spawn(script("true", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Code(0)));
    assert!(!gone.is_finished());
    supervisor.stop().await;
    tokio::time::timeout(SOON, gone).await.expect("in time").expect("no panic");
}
