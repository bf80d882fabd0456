//! Containment: nothing survives the end of the child, the node or the supervisor. Each holds however children are contained, and
//! whatever user the supervisor runs as.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ostler_exec::LivenessHolder as _;
use ostler_process::supervisor::{
    About, Contained, Containment, Exit, SpawnError, StartError, Supervisor, SupervisorGone,
};
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::{
    ROLE, SOON, children_of, open_folder, parent, pids, runs, script, state, supervisor_program, until,
};

/// How a supervisor is started for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Group,
    Cgroup,
    /// As a user without rights.
    Unprivileged,
}

impl Way {
    const ALL: [Self; 3] = [Self::Group, Self::Cgroup, Self::Unprivileged];

    /// A supervisor started in this way, or the reason why it is not available here.
    async fn supervisor(self) -> Result<Supervisor, String> {
        let mut program = supervisor_program();
        match self {
            Self::Group => program.containment = Containment::Group,
            Self::Cgroup => program.containment = Containment::Cgroup,
            Self::Unprivileged => {
                if !rustix::process::geteuid().is_root() {
                    return Err("only root can become another user".to_owned());
                }
                let options = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(Into::into);
                let this = std::env::current_exe().expect("this program").into();
                program.args.splice(0..0, options.into_iter().chain([this]));
                program.program = "setpriv".into();
            }
        }
        match Supervisor::start(program, Vec::new()).await {
            Ok(supervisor) => Ok(supervisor),
            Err(StartError::NoContainment(reason)) => Err(reason),
            Err(error @ (StartError::System(_) | StartError::TooMuchToHold | StartError::NoAnswer)) => {
                panic!("a supervisor starts ({self:?}): {error}")
            }
        }
    }
}

/// A supervisor for each way that is available here. The others are printed.
async fn each_way() -> Vec<(Way, Supervisor)> {
    let mut supervisors = Vec::new();
    for way in Way::ALL {
        match way.supervisor().await {
            Ok(supervisor) => supervisors.push((way, supervisor)),
            Err(reason) => println!("left out: {way:?}: {reason}"),
        }
    }
    supervisors
}

/// A family that does all it can to survive, and lists itself in a folder: the head ignores SIGTERM, one has left the
/// group, one is an orphan in a session of its own, and one of those has an empty environment too.
pub(crate) const FAMILY: &str = r#"
    note() { echo $1 > $2/.$1 && mv $2/.$1 $2/$1; }
    trap '' TERM
    note $$ $1
    sleep 600 & note $! $1
    setsid sh -c 'trap "" TERM; echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &
    (setsid sh -c 'trap "" TERM; echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &)
    (setsid env -i PATH="$PATH" sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1 &)
"#;
const MEMBERS: usize = 5;

pub(crate) async fn family_of(folder: &Path) -> Vec<u32> {
    until("the family is complete", || pids(folder).len() == MEMBERS).await;
    let family = pids(folder);
    assert!(family.iter().all(|pid| runs(*pid)), "all of them run");
    family
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}

#[tokio::test]
async fn the_containment_in_force_is_told() {
    for (way, supervisor) in each_way().await {
        match way {
            Way::Group => assert_eq!(supervisor.containment(), Contained::Group),
            Way::Cgroup => assert_eq!(supervisor.containment(), Contained::Cgroup),
            // Unless a part of the tree was delegated to it.
            Way::Unprivileged => println!("unprivileged: {:?}", supervisor.containment()),
        }
    }
}

#[tokio::test]
async fn a_containment_that_cannot_be_had_is_refused_at_the_start() {
    let mut program = supervisor_program();
    program.containment = Containment::Cgroup;
    let hidden =
        ["--mount", "--", "sh", "-c", "umount -l -t cgroup2 -a && exec \"$@\"", "sh"].map(Into::into);
    let this = std::env::current_exe().expect("this program").into();
    program.args.splice(0..0, hidden.into_iter().chain([this]));
    program.program = "unshare".into();
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root can hide the control groups");
        return;
    }
    let error = Supervisor::start(program.clone(), Vec::new()).await.expect_err("it cannot be had");
    assert!(matches!(error, StartError::NoContainment(_)), "{error}");
    assert!(error.to_string().contains("cgroup2"), "{error}");
    program.containment = Containment::Auto;
    let supervisor = Supervisor::start(program, Vec::new()).await.expect("there is another");
    assert_eq!(supervisor.containment(), Contained::Group);
}

#[tokio::test]
async fn a_child_that_cannot_be_contained_is_not_started() {
    let supervisor = match Way::Cgroup.supervisor().await {
        Ok(supervisor) => supervisor,
        Err(reason) => return println!("left out: {reason}"),
    };
    let folder = cgroups_of(supervisor.pid()).pop().expect("it has a folder");
    for group in std::fs::read_dir(&folder).expect("it is there").flatten() {
        if group.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir(group.path()).expect("the group is empty");
        }
    }
    std::fs::remove_dir(&folder).expect("the group is empty");
    let refused = supervisor.spawn(script("true", &[])).await.expect_err("there is no place for it");
    assert!(matches!(refused, SpawnError::Refused { about: About::Containment, .. }), "{refused}");
}

/// The clock that node and supervisor share.
fn uptime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("a time after the boot")
}

#[tokio::test]
async fn a_node_that_is_not_heard_of_in_time_loses_all_its_children_and_can_start_others() {
    for (way, supervisor) in each_way().await {
        let folder = open_folder();
        let wait = format!("{FAMILY} while :; do sleep 0.01; done");
        supervisor.live_until(uptime() + SOON * 10);
        let mut child = supervisor.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
        let family = family_of(folder.path()).await;
        // The last call counts.
        supervisor.live_until(uptime() + SOON);
        supervisor.live_until(uptime() + SOON * 10);
        assert!(!child.has_ended(), "{way:?}");
        supervisor.live_until(uptime() + Duration::from_millis(1));
        assert_eq!(child.ended().await, Ok(Exit::Signal(9)), "{way:?}");
        until("no process is left", || family.iter().all(|pid| !runs(*pid))).await;
        let mut next = supervisor.spawn(script("exit 3", &[])).await.expect("it starts");
        assert_eq!(next.ended().await, Ok(Exit::Code(3)), "{way:?}");
    }
}

#[tokio::test]
async fn the_end_of_a_child_is_the_end_of_its_family() {
    for (way, supervisor) in each_way().await {
        let folder = open_folder();
        let wait = format!("{FAMILY} while [ ! -e $1/end ]; do sleep 0.01; done");
        let mut child = supervisor.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
        let family = family_of(folder.path()).await;
        File::create(folder.path().join("end")).expect("a file");
        assert_eq!(child.ended().await, Ok(Exit::Code(0)), "{way:?}");
        until("no process is left", || family.iter().all(|pid| !runs(*pid))).await;
    }
}

#[tokio::test]
async fn a_kill_takes_the_whole_family_and_no_other() {
    for (_, supervisor) in each_way().await {
        let (folder, others) = (open_folder(), open_folder());
        let wait = format!("{FAMILY} wait");
        let mut other = supervisor.spawn(script(&wait, &[text(others.path())])).await.expect("it starts");
        let other_family = family_of(others.path()).await;
        let mut child = supervisor.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
        let family = family_of(folder.path()).await;
        let may_be_left = match supervisor.containment() {
            Contained::Cgroup => 0,
            // Orphans with an empty environment cannot be attributed while another child lives.
            Contained::Group => 1,
        };
        child.kill();
        assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
        let left = || family.iter().filter(|pid| runs(**pid)).count();
        until("hardly anybody is left", || left() <= may_be_left).await;
        assert!(other_family.iter().all(|pid| runs(*pid)), "another child's family lives on");
        other.kill();
        assert_eq!(other.ended().await, Ok(Exit::Signal(9)));
        until("no process is left", || family.iter().chain(&other_family).all(|pid| !runs(*pid))).await;
    }
}

/// Lists itself, without any mark, and stays alive.
const UNMARKED: &str =
    r#"env -i PATH="$PATH" sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while :; do sleep 60; done' sh $1"#;

#[tokio::test]
async fn who_stays_in_the_group_needs_no_mark_to_end_with_it() {
    for (_, supervisor) in each_way().await {
        let folder = open_folder();
        // While another child lives, a process without a mark is not swept: only the control group tells whose it is.
        let _other = supervisor.spawn(script("sleep 600", &[])).await.expect("it starts");
        let wait = format!("{UNMARKED} & while [ ! -e $1/end ]; do sleep 0.01; done");
        let mut child = supervisor.spawn(script(&wait, &[text(folder.path())])).await.expect("it starts");
        until("the member is there", || pids(folder.path()).len() == 1).await;
        let member = pids(folder.path())[0];
        File::create(folder.path().join("end")).expect("a file");
        assert_eq!(child.ended().await, Ok(Exit::Code(0)));
        until("the member is gone", || !runs(member)).await;
    }
}

#[tokio::test]
async fn who_left_the_group_needs_no_mark_to_be_killed_under_its_parent() {
    for (_, supervisor) in each_way().await {
        let folder = open_folder();
        let _other = supervisor.spawn(script("sleep 600", &[])).await.expect("it starts");
        let family = format!("setsid {UNMARKED} & wait");
        let mut child = supervisor.spawn(script(&family, &[text(folder.path())])).await.expect("it starts");
        until("the member is there", || pids(folder.path()).len() == 1).await;
        let member = pids(folder.path())[0];
        child.kill();
        assert_eq!(child.ended().await, Ok(Exit::Signal(9)));
        until("the member is gone", || !runs(member)).await;
    }
}

#[tokio::test]
async fn a_child_born_while_its_family_dies_dies_too() {
    /// Each process leaves the group, starts the next, and exits: none is there for long.
    const RELAY: &str = r#"
        echo $$ > $1/.$$; mv $1/.$$ $1/last
        [ -e $1/end ] || exec setsid sh -c "$2" sh "$1" "$2" &
    "#;
    for (way, supervisor) in each_way().await {
        let folder = open_folder();
        let last = folder.path().join("last");
        let head = r#"setsid sh -c "$2" sh "$1" "$2" & while [ ! -e $1/last ]; do sleep 0.01; done"#;
        let mut child =
            supervisor.spawn(script(head, &[text(folder.path()), RELAY])).await.expect("it starts");
        assert_eq!(child.ended().await, Ok(Exit::Code(0)), "{way:?}");
        until("the relay has ended", || {
            let runner = std::fs::read_to_string(&last).ok().and_then(|pid| pid.trim().parse().ok());
            runner.is_some_and(|pid: u32| !runs(pid)) && children_of(supervisor.pid()) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn orphans_are_reaped_while_their_family_lives() {
    for (_, supervisor) in each_way().await {
        let folder = open_folder();
        let orphan =
            "(sh -c 'echo $$ > $1/.$$; mv $1/.$$ $1/$$; while [ ! -e $1/end ]; do sleep 0.01; done' sh $1 &)";
        let child = supervisor.spawn(script(&format!("{orphan}; sleep 600"), &[text(folder.path())])).await;
        let _child = child.expect("it starts");
        until("the orphan is there", || pids(folder.path()).len() == 1).await;
        let orphan = pids(folder.path())[0];
        until("it is the supervisor's", || parent(orphan) == Some(supervisor.pid())).await;
        File::create(folder.path().join("end")).expect("a file");
        until("it is gone, not a zombie", || state(orphan).is_none()).await;
    }
}

#[tokio::test]
async fn when_the_node_closes_no_child_survives_and_the_lock_is_held_until_then() {
    for (_, supervisor) in each_way().await {
        let folder = open_folder();
        let path = folder.path().join("lock");
        let lock = File::create(&path).expect("a file");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("the lock is free");
        ostler_exec::LivenessHolder::hold(&supervisor, lock.into()).await.expect("it holds it");
        let members = open_folder();
        let family = script(&format!("{FAMILY} wait"), &[text(members.path())]);
        let mut child = supervisor.spawn(family).await.expect("it starts");
        let family = family_of(members.path()).await;
        let again = File::open(&path).expect("it is there");
        assert!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err(), "the supervisor holds it");

        let pid = supervisor.pid();
        let stopped = supervisor.clone();
        tokio::spawn(async move { stopped.stop().await });
        let locked = tokio::task::spawn_blocking(move || flock(&again, FlockOperation::LockExclusive));
        tokio::time::timeout(SOON, locked).await.expect("in time").expect("no panic").expect("it is free");
        assert!(family.iter().all(|pid| !runs(*pid)), "the lock is free only when no process is left");
        assert_eq!(child.ended().await, Err(SupervisorGone));
        until("the supervisor is gone", || state(pid).is_none()).await;
        assert!(matches!(supervisor.spawn(script("true", &[])).await, Err(SpawnError::Gone(SupervisorGone))));
        assert!(cgroups_of(pid).is_empty(), "and its groups are removed");
    }
}

/// The folders of control groups that a supervisor made.
fn cgroups_of(supervisor: u32) -> Vec<PathBuf> {
    let found =
        Command::new("find").args(["/sys/fs/cgroup", "-name", &format!("ostler-{supervisor}-*")]).output();
    String::from_utf8_lossy(&found.expect("it can be run").stdout).lines().map(PathBuf::from).collect()
}

/// Not a test: a node with a family, which waits to be killed.
#[tokio::test]
#[ignore = "it is the node that is killed"]
async fn live_as_a_node() {
    let Some(role) = std::env::var(ROLE).ok() else { return };
    let Some((way, folder)) = role.split_once(' ') else { return };
    let way = Way::ALL.into_iter().find(|known| format!("{known:?}") == way).expect("a way");
    let supervisor = way.supervisor().await.expect("it was there before");
    let family = script(&format!("{FAMILY} wait"), &[folder]);
    let mut child = supervisor.spawn(family).await.expect("it starts");
    let _ = child.ended().await;
}

/// A node as a process of its own, with its family and its supervisor.
async fn node_with_family(way: Way, folder: &Path) -> (std::process::Child, Vec<u32>, u32) {
    let node = Command::new("/proc/self/exe")
        .args(["--exact", "containment::live_as_a_node", "--ignored", "--nocapture"])
        .env(ROLE, format!("{way:?} {}", text(folder)))
        .stdout(Stdio::null())
        .spawn()
        .expect("a node starts");
    let family = family_of(folder).await;
    let supervisor = family.iter().filter_map(|pid| parent(*pid)).find(|pid| parent(*pid) == Some(node.id()));
    (node, family, supervisor.expect("the supervisor is the parent of one of them"))
}

#[tokio::test]
async fn when_the_node_is_killed_no_child_survives() {
    for (way, _) in each_way().await {
        let folder = open_folder();
        let (mut node, family, supervisor) = node_with_family(way, folder.path()).await;
        node.kill().expect("it can be killed");
        node.wait().expect("it is gone");
        until("no process is left", || family.iter().all(|pid| !runs(*pid))).await;
        until("the supervisor is gone too", || !runs(supervisor)).await;
        assert!(cgroups_of(supervisor).is_empty(), "and its groups are removed");
    }
}

#[tokio::test]
async fn when_the_supervisor_is_killed_its_children_are_dead_and_every_handle_says_so() {
    for (_, supervisor) in each_way().await {
        let folder = open_folder();
        let family = script(&format!("{FAMILY} wait"), &[text(folder.path())]);
        let mut child = supervisor.spawn(family).await.expect("it starts");
        let mut other = supervisor.spawn(script("exec sleep 600", &[])).await.expect("it starts");
        let family = family_of(folder.path()).await;
        let direct = [child.pid(), other.pid()].map(|pid| u32::try_from(pid).expect("a pid"));
        assert!(direct.into_iter().all(runs));
        kill(supervisor.pid());
        for child in [&mut child, &mut other] {
            let ended = tokio::time::timeout(SOON, child.ended()).await.expect("it is seen");
            assert_eq!(ended, Err(SupervisorGone));
        }
        tokio::time::timeout(SOON, supervisor.gone()).await.expect("the node can know it");
        assert!(matches!(supervisor.spawn(script("true", &[])).await, Err(SpawnError::Gone(SupervisorGone))));
        assert_eq!(state(supervisor.pid()), None, "the supervisor is reaped");
        until("the children are dead", || !direct.into_iter().any(runs)).await;
        match supervisor.containment() {
            Contained::Cgroup => {
                until("so is everybody else", || !family.iter().any(|pid| runs(*pid))).await;
                assert!(cgroups_of(supervisor.pid()).is_empty(), "and the groups are removed");
            }
            // No process is left that could find them.
            Contained::Group => family.into_iter().filter(|pid| runs(*pid)).for_each(kill),
        }
    }
}

#[tokio::test]
async fn what_a_node_and_its_supervisor_left_that_were_killed_together_is_ended_by_the_next_supervisor() {
    if let Err(reason) = Way::Cgroup.supervisor().await {
        return println!("left out: they cannot be found without control groups: {reason}");
    }
    let folder = open_folder();
    let (mut node, family, supervisor) = node_with_family(Way::Cgroup, folder.path()).await;
    // The node must not notice its supervisor's death.
    let stopped = Command::new("kill").args(["-STOP", &node.id().to_string()]).status();
    assert!(stopped.expect("it is asked").success());
    kill(supervisor);
    node.kill().expect("it can be killed");
    node.wait().expect("it is gone");
    until("the supervisor is gone", || !runs(supervisor)).await;
    let _next = Way::Cgroup.supervisor().await.expect("it was there before");
    until("no process is left", || family.iter().all(|pid| !runs(*pid))).await;
    until("and their groups are removed", || cgroups_of(supervisor).is_empty()).await;
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.expect("it is asked").success());
}
