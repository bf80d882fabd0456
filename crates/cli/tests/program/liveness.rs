//! A live node is not declared dead by a node that cannot open its lock file.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, Resource, Rlimit, geteuid, prlimit};
use serde_json::Value;

use crate::ostler::{Place, Running};
use crate::up::{appears, configured, is_gone, script, up};

/// The polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// A task that runs long enough for a wrong verdict about its node to be acted on, several times.
fn long_task(place: &Place) -> (String, std::path::PathBuf) {
    let began = place.folder().join("began");
    let text = format!("echo begun >> {}; sleep 4; echo done", began.display());
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]).trim().to_owned();
    appears(&began);
    (id, began)
}

/// Waits for its outcome, which must be that of its first attempt.
fn ends_once(place: &Place, id: &str, began: &Path) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    loop {
        let task = place.json(["show", id]);
        assert_eq!(std::fs::read_to_string(began).expect("it has begun"), "begun\n", "it began once: {task}");
        if task["state"] == "completed" {
            assert_eq!((&task["runs"], &task["output"]), (&1.into(), &"done".into()), "{task}");
            return;
        }
        assert!(task["state"] != "failed" && Instant::now() < until, "it does not end well: {task}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

#[test]
fn a_node_without_descriptors_takes_no_living_node_for_dead() {
    let place = configured();
    let works = up(&place, &["--name", "works"]);
    let (id, began) = long_task(&place);
    let _blind = up(&place, &["--name", "blind"]);
    let nodes = place.json(["nodes"]);
    let blind = nodes.as_array().expect("a list").iter().find(|node| node["name"] == "blind");
    let pid = blind.and_then(|node| node["pid"].as_i64()).and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw).expect("it is listed");
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) })
        .expect("a limit is set");
    ends_once(&place, &id, &began);
    works.signal(ProcessSignal::TERM);
    assert_eq!(works.end().0, Some(0));
}

/// The supervisor of a node: the child with the supervisor's name as its first argument.
fn supervisor_of(node: &str) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{node}/task/{node}/children"));
    let threads = std::fs::read_dir(format!("/proc/{node}/task")).expect("the node runs");
    let of_threads =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<String> = children.into_iter().chain(of_threads).collect();
    let is_supervisor = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("ostler-supervisor"))
    };
    let found = all.iter().flat_map(|list| list.split_ascii_whitespace()).find(is_supervisor);
    found.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).expect("a node has a supervisor")
}

#[test]
fn a_supervisor_without_descriptors_still_ends_what_children_left() {
    let place = configured();
    let node = up(&place, &[]);
    let left = place.folder().join("left");
    // It leaves its parent's group and session, and its parent does not wait for it.
    let text = format!("setsid sh -c 'echo $$ > {}; exec sleep 600' & sleep 600", left.display());
    place.done(["submit", "shell", "run", "--payload", &script(&text)]);
    let pid = appears(&left);
    let listed = place.json(["nodes"]);
    let supervisor = supervisor_of(&listed[0]["pid"].to_string());
    prlimit(Some(supervisor), Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) })
        .expect("a limit is set");
    node.signal(ProcessSignal::KILL);
    is_gone(&pid);
}

/// The program without the right to open files of other users: root has it, unless it is taken away.
fn without_privilege(command: Command) -> Command {
    if !geteuid().is_root() {
        return command;
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-dac_override"]);
    setpriv.arg(command.get_program()).args(command.get_args()).env_clear();
    setpriv.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    setpriv.current_dir(command.get_current_dir().expect("the folder of the place"));
    setpriv
}

#[test]
fn a_node_whose_lock_file_cannot_be_opened_is_not_taken_for_dead_and_this_is_said() {
    let place = configured();
    let works = up(&place, &[]);
    let session = place.json(["nodes"])[0]["id"].as_str().expect("an id").to_owned();
    let lock = place.folder().join(format!("ostler.db.nodes/{session}.node"));
    std::fs::set_permissions(&lock, Permissions::from_mode(0o0)).expect("its mode is set");
    let (id, began) = long_task(&place);
    let blind = Running::start(without_privilege(place.command(["up"])));
    let ready: Value = serde_json::from_str(&blind.line()).expect("a line of JSON");
    assert_eq!(ready["event"], "ready");
    let warning = blind.says("cannot be opened by this user");
    assert!(warning.contains(&lock.display().to_string()), "{warning}");
    let doctor = without_privilege(place.command(["doctor", "--json"])).output().expect("the doctor runs");
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("lock-not-readable") && said.contains(&session), "{said}");
    ends_once(&place, &id, &began);
    for node in [works, blind] {
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}
