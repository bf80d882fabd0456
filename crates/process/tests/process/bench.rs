//! Test helpers: a supervisor, work for it, and a view of the processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ostler_core::{Failure, Id, Outcome, TaskId, WorkerId};
use ostler_exec::{AttemptResult, Control, EventReceiver, Executor, Work, event_channel};
use ostler_process::supervisor::{Launch, Socket, Stdin, Supervisor, SupervisorProgram, Variables};
use ostler_process::{Command, CommandPolicy};

/// The variable with the role in which this program is started again.
pub(crate) const ROLE: &str = "OSTLER_TEST_ROLE";
/// Timeout of operations that should be quick, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) fn program(test: &str, role: &str) -> SupervisorProgram {
    let mut program = SupervisorProgram::this(["--exact", test, "--ignored", "--nocapture"]);
    program.env.push((ROLE.into(), role.into()));
    program
}

pub(crate) fn supervisor_program() -> SupervisorProgram {
    program("serve_as_the_supervisor", "supervisor")
}

pub(crate) async fn supervisor() -> Supervisor {
    Supervisor::start(supervisor_program(), Vec::new()).await.expect("a supervisor starts")
}

/// A folder in which children can write, whatever their user.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    folder
}

/// A shell script with its arguments.
pub(crate) fn script(script: &str, args: &[&str]) -> Launch {
    let argv = ["sh", "-c", script, "sh"].iter().chain(args).map(|word| (*word).into()).collect();
    Launch {
        argv,
        folder: None,
        start: None,
        own: None,
        keep: vec!["PATH".into()],
        set: Variables::default(),
        stdin: Stdin::Nothing,
        socket: Socket::None,
        confinement: None,
    }
}

pub(crate) fn work(payload: impl Into<String>) -> Work {
    Work {
        task: TaskId(Id::from_bits(1)),
        token: 1,
        worker: WorkerId(Id::from_bits(2)),
        attempt: 1,
        queue: "q".into(),
        kind: "k".into(),
        payload: payload.into(),
        timeout: Duration::from_secs(60),
        grace: Duration::from_secs(2),
        folder: None,
        traceparent: None,
    }
}

/// Runs an attempt by this policy; returns the result and the notes.
pub(crate) async fn run(
    supervisor: &Supervisor,
    policy: CommandPolicy,
    work: Work,
) -> (AttemptResult, EventReceiver) {
    let (sender, notes) = event_channel();
    let control = Control::new(sender);
    let command = Command::new(supervisor.clone(), policy).expect("the policy is right");
    let ended = tokio::time::timeout(SOON * 3, command.run(work, control)).await.expect("an answer comes");
    (ended, notes)
}

pub(crate) fn failure(ended: AttemptResult) -> Failure {
    match ended.outcome {
        Outcome::Failed(failure) => failure,
        other @ (Outcome::Success | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled) => {
            panic!("it ended as {other:?}")
        }
    }
}

/// Polls until a condition holds, up to a timeout.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The pids that scripts have written into a folder, one file each.
pub(crate) fn pids(folder: &Path) -> Vec<u32> {
    let files = fs::read_dir(folder).expect("the folder is there");
    files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok()?.trim().parse().ok()).collect()
}

/// Whether a process runs. A zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// The state of a process, if it exists.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// The parent of a process, if it exists.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()
}

/// How many children a process has, zombies too.
pub(crate) fn children_of(supervisor: u32) -> usize {
    let pids = fs::read_dir("/proc").expect("there is /proc");
    let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| parent(*pid) == Some(supervisor)).count()
}
