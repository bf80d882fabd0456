//! Nothing survives: not the child's end, not the node's.

use std::fs::{File, read_to_string};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use ostler_process::keeper::{Exit, Gone, Keeper, KeeperProgram, SpawnError, StartError};
use rustix::fs::{FlockOperation, flock};

use crate::bench::{ROLE, SOON, keeper, parent, pids, program, runs, script, until};

/// A family that does all it can to survive, and lists itself in a folder: the head ignores SIGTERM, one has left the
/// group, one is an orphan in a session of its own, and one of those has an empty environment too.
const FAMILY: &str = r#"
    note() { echo $1 > $2/.$1 && mv $2/.$1 $2/$1; }
    trap '' TERM
    note $$ $1
    sleep 600 & note $! $1
    setsid sh -c 'trap "" TERM; echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &
    (setsid sh -c 'trap "" TERM; echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &)
    (setsid env -i PATH="$PATH" sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &)
"#;
const MEMBERS: usize = 5;

async fn family_of(folder: &Path) -> Vec<u32> {
    until("the family is complete", || pids(folder).len() == MEMBERS).await;
    let family = pids(folder);
    assert!(family.iter().all(|pid| runs(*pid)), "all of them run");
    family
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}

#[tokio::test]
async fn a_code_and_a_signal_are_told_apart() {
    let keeper = keeper().await;
    let mut child = keeper.spawn(script("exit 7", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Code(7)));
    let mut child = keeper.spawn(script("kill -9 $$", &[])).await.expect("it starts");
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)), "the answer stays");
}

#[tokio::test]
async fn the_end_of_a_child_is_the_end_of_its_family() {
    let keeper = keeper().await;
    let folder = tempfile::tempdir().expect("a folder");
    let wait = format!("{FAMILY} while [ ! -e $1/end ]; do sleep 0.01; done");
    let mut child = keeper.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
    let family = family_of(folder.path()).await;
    File::create(folder.path().join("end")).expect("a file");
    assert_eq!(child.ended().await, Ok(Exit::Code(0)));
    until("nobody is left", || family.iter().all(|pid| !runs(*pid))).await;
}

#[tokio::test]
async fn a_kill_takes_the_whole_family_and_no_other() {
    let keeper = keeper().await;
    let (folder, others) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let wait = format!("{FAMILY} wait");
    let mut other = keeper.spawn(script(&wait, &[text(others.path())])).await.expect("it starts");
    let other_family = family_of(others.path()).await;
    let mut child = keeper.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
    let family = family_of(folder.path()).await;
    // Orphans with an empty environment cannot be told apart while another child lives: one may be left.
    child.kill();
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
    until("only one can be left", || family.iter().filter(|pid| runs(**pid)).count() <= 1).await;
    assert!(other_family.iter().all(|pid| runs(*pid)), "another child's family lives on");
    other.kill();
    assert_eq!(other.ended().await, Ok(Exit::Signal(9)));
    until("nobody is left", || family.iter().chain(&other_family).all(|pid| !runs(*pid))).await;
}

/// Lists itself, without any mark, and stays.
const UNMARKED: &str =
    r#"env -i PATH="$PATH" sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1"#;

#[tokio::test]
async fn who_stays_in_the_group_needs_no_mark_to_end_with_it() {
    let keeper = keeper().await;
    let folder = tempfile::tempdir().expect("a folder");
    // While another child lives, whoever bears no mark is not swept: only the group tells whose it is.
    let _other = keeper.spawn(script("sleep 600", &[])).await.expect("it starts");
    let wait = format!("{UNMARKED} & while [ ! -e $1/end ]; do sleep 0.01; done");
    let mut child = keeper.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
    until("the member is there", || pids(folder.path()).len() == 1).await;
    let member = pids(folder.path())[0];
    File::create(folder.path().join("end")).expect("a file");
    assert_eq!(child.ended().await, Ok(Exit::Code(0)));
    until("the member is gone", || !runs(member)).await;
}

#[tokio::test]
async fn who_left_the_group_needs_no_mark_to_be_killed_under_its_parent() {
    let keeper = keeper().await;
    let folder = tempfile::tempdir().expect("a folder");
    let _other = keeper.spawn(script("sleep 600", &[])).await.expect("it starts");
    let family = format!("setsid {UNMARKED} & wait");
    let mut child = keeper.spawn(script(&family, &[text(folder.path())])).await.expect("it starts");
    until("the member is there", || pids(folder.path()).len() == 1).await;
    let member = pids(folder.path())[0];
    child.kill();
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
    until("the member is gone", || !runs(member)).await;
}

#[tokio::test]
async fn a_term_is_for_the_group() {
    let keeper = keeper().await;
    let mut child = keeper
        .spawn(script("trap 'exit 3' TERM; echo ready >&2; while :; do sleep 60 & wait; done", &[]))
        .await
        .expect("it starts");
    child.stderr.as_mut().expect("a pipe").readable().await.expect("it writes");
    child.terminate();
    assert_eq!(child.ended().await, Ok(Exit::Code(3)));
}

#[tokio::test]
async fn orphans_are_reaped_while_their_family_lives() {
    let keeper = keeper().await;
    let folder = tempfile::tempdir().expect("a folder");
    let orphan =
        "(sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while [ ! -e $1/end ]; do sleep 0.01; done' sh $1 &)";
    let child = keeper.spawn(script(&format!("{orphan}; sleep 600"), &[text(folder.path())])).await;
    let _child = child.expect("it starts");
    until("the orphan is there", || pids(folder.path()).len() == 1).await;
    let orphan = pids(folder.path())[0];
    until("it is the keeper's", || parent(orphan) == Some(keeper.pid())).await;
    File::create(folder.path().join("end")).expect("a file");
    until("it is gone, not a zombie", || crate::bench::state(orphan).is_none()).await;
}

#[tokio::test]
async fn when_the_node_closes_nobody_survives_and_the_lock_is_held_until_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lock");
    let lock = File::create(&path).expect("a file");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("nobody has it");
    let held = vec![OwnedFd::from(lock)];
    let keeper = Keeper::start(program("serve_as_the_keeper", "keeper"), held).await.expect("it starts");
    let members = tempfile::tempdir().expect("a folder");
    let mut child =
        keeper.spawn(script(&format!("{FAMILY} wait"), &[text(members.path())])).await.expect("it starts");
    let family = family_of(members.path()).await;
    let again = File::open(&path).expect("it is there");
    assert!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err(), "the keeper holds it");

    let pid = keeper.pid();
    let stopped = keeper.clone();
    tokio::spawn(async move { stopped.stop().await });
    let locked = tokio::task::spawn_blocking(move || flock(&again, FlockOperation::LockExclusive));
    tokio::time::timeout(SOON, locked).await.expect("in time").expect("no panic").expect("it is free");
    assert!(family.iter().all(|pid| !runs(*pid)), "the lock is free only when nobody is left");
    assert_eq!(child.ended().await, Err(Gone));
    until("the keeper is gone", || crate::bench::state(pid).is_none()).await;
    assert!(matches!(keeper.spawn(script("true", &[])).await, Err(SpawnError::Gone(Gone))));
}

/// Not a test: a node with a family, which waits to be killed.
#[tokio::test]
#[ignore = "it is the node that is killed"]
async fn live_as_a_node() {
    let Some(folder) = std::env::var_os(ROLE).filter(|role| role != "keeper") else { return };
    let keeper = keeper().await;
    let family = script(&format!("{FAMILY} wait"), &[text(Path::new(&folder))]);
    let mut child = keeper.spawn(family).await.expect("it starts");
    let _ = child.ended().await;
}

#[tokio::test]
async fn when_the_node_is_killed_nobody_survives() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut node = Command::new("/proc/self/exe")
        .args(["--exact", "keeper::live_as_a_node", "--ignored", "--nocapture"])
        .env(ROLE, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("a node starts");
    let family = family_of(folder.path()).await;
    let keeper = family.iter().filter_map(|pid| parent(*pid)).find(|pid| is_child_of(*pid, node.id()));
    let keeper = keeper.expect("somebody's parent is the keeper");
    node.kill().expect("it can be killed");
    node.wait().expect("it is gone");
    until("nobody is left", || family.iter().all(|pid| !runs(*pid))).await;
    until("the keeper is gone too", || !runs(keeper)).await;
}

fn is_child_of(pid: u32, node: u32) -> bool {
    parent(pid) == Some(node)
}

#[tokio::test]
async fn a_program_that_is_no_keeper_is_refused() {
    let program = KeeperProgram { program: "true".into(), args: Vec::new(), env: Vec::new() };
    let error = Keeper::start(program, Vec::new()).await.expect_err("it is no keeper");
    assert!(matches!(error, StartError::NoAnswer), "{error}");
}

#[tokio::test]
async fn when_the_keeper_is_killed_its_children_are_dead_and_every_handle_says_so() {
    let keeper = keeper().await;
    let mut child =
        keeper.spawn(script("trap '' TERM; while :; do sleep 1; done", &[])).await.expect("it starts");
    let mut other = keeper.spawn(script("exec sleep 600", &[])).await.expect("it starts");
    let pids = [child.pid(), other.pid()].map(|pid| u32::try_from(pid).expect("a pid"));
    assert!(pids.into_iter().all(runs));
    let status = Command::new("kill").args(["-9", &keeper.pid().to_string()]).status();
    assert!(status.expect("it is asked").success());
    for child in [&mut child, &mut other] {
        let ended = tokio::time::timeout(SOON, child.ended()).await.expect("it is seen");
        assert_eq!(ended, Err(Gone));
    }
    until("the children are dead", || !pids.into_iter().any(runs)).await;
    assert!(matches!(keeper.spawn(script("true", &[])).await, Err(SpawnError::Gone(Gone))));
    until("the keeper is reaped", || crate::bench::state(keeper.pid()).is_none()).await;
}

#[tokio::test]
async fn a_child_has_a_session_and_a_group_of_its_own() {
    let keeper = keeper().await;
    let mut child = keeper.spawn(script("read x < /dev/null; sleep 600", &[])).await.expect("it starts");
    let stat = read_to_string(format!("/proc/{}/stat", child.pid())).expect("it runs");
    let mut fields = stat[stat.rfind(')').expect("a name") + 1..].split_ascii_whitespace().skip(2);
    let pid = child.pid().to_string();
    assert_eq!(fields.next(), Some(pid.as_str()), "the group");
    assert_eq!(fields.next(), Some(pid.as_str()), "the session");
    child.kill();
    assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
}
