//! Sandbox: what a child in it can and cannot do, as the user who runs the tests and as a user without rights.

use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use ostler_core::{ErrorClass, Outcome};
use ostler_exec::{AttemptResult, Executor as _, Work};
use ostler_process::sandbox::{Network, Sandbox, SelfTestFailed, probe, prove};
use ostler_process::supervisor::{Containment, Supervisor};
use ostler_process::{Command, CommandPolicy, Environment, Folders, PolicyError};

use crate::bench::{ROLE, SOON, failure, run, runs, supervisor, supervisor_program, until, work};
use crate::containment::{FAMILY, family_of};
use crate::desk::{Desk, output, policy as workers, task};

/// The system's own: one in a home directory is not visible in a sandbox.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// The file that a sandbox hides.
pub(crate) const SECRET: &str = "store.db";

/// A folder with a store and a folder for tasks in it.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(SECRET), "secret").expect("a file");
        std::fs::create_dir(folder.path().join("work")).expect("a folder");
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("the path is text").to_owned()
    }

    pub(crate) fn sandbox(&self) -> Sandbox {
        Sandbox { hidden: vec![self.path(SECRET)], ..Sandbox::default() }
    }

    pub(crate) fn shell(&self, sandbox: Sandbox, script: &str) -> CommandPolicy {
        CommandPolicy {
            sandbox: Some(sandbox),
            ..CommandPolicy::new(["sh", "-c", script, "sh", "{{ payload }}"])
        }
    }

    /// A task in the folder for tasks. Its payload is the scene's folder.
    pub(crate) fn task(&self) -> Work {
        Work { folder: Some(self.text("work")), ..work(format!("\"{}\"", self.text(""))) }
    }
}

pub(crate) async fn text(supervisor: &Supervisor, policy: CommandPolicy, work: Work) -> String {
    let (ended, notes) = run(supervisor, policy, work).await;
    assert_eq!(ended.outcome, Outcome::Success, "{:?}", crate::desk::lines(&notes));
    ended.output.unwrap_or_default()
}

/// Runs a test of this file again as a user without rights. Prints a message if it cannot.
pub(crate) fn as_unprivileged_user(test: &str) {
    if !rustix::process::geteuid().is_root() {
        return println!("left out: only root can become another user");
    }
    let this = std::env::current_exe().expect("this program");
    let ran = Program::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(this)
        .args(["--exact", test, "--nocapture"])
        .env("HOME", "/")
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[tokio::test]
async fn only_what_is_listed_can_be_read_and_only_its_own_folders_changed() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    std::fs::create_dir(scene.path("given")).expect("a folder");
    std::fs::write(scene.path("given/file"), "given").expect("a file");
    std::fs::write(scene.path("other"), "other").expect("a file");
    let sandbox = Sandbox { read: vec![scene.path("given")], ..scene.sandbox() };
    let script = r#"
        cd "$1" || echo no cd
        cat given/file; echo
        for file in store.db other /etc/shadow /proc/1/cmdline; do cat "$file" >/dev/null 2>&1 && echo "read $file"; done
        ls "$1" >/dev/null 2>&1 && echo listed
        for file in new store.db given/file given/new /tmp/ostler-new /var/tmp/new; do
            ( echo x >> "$file" ) 2>/dev/null && echo "wrote $file"
        done
        rm -f given/file 2>/dev/null; mv other work/other 2>/dev/null; ln other work/link 2>/dev/null
        truncate -s 0 other 2>/dev/null
        echo mine > work/mine && cat work/mine
        echo private > "$TMPDIR/file" && cat "$TMPDIR/file" && rm "$TMPDIR/file"
        mkdir work/deep && ln -s /etc/shadow work/deep/link && cat work/deep/link 2>/dev/null
        echo end
    "#;
    let printed = text(&supervisor, scene.shell(sandbox, script), scene.task()).await;
    assert_eq!(printed, "\"given\\nmine\\nprivate\\nend\"");
    assert_eq!(std::fs::read_to_string(scene.path("given/file")).ok().as_deref(), Some("given"));
    assert_eq!(std::fs::read_to_string(scene.path("other")).ok().as_deref(), Some("other"));
    assert_eq!(std::fs::read_to_string(scene.path(SECRET)).ok().as_deref(), Some("secret"));
}

#[test]
fn only_what_is_listed_can_be_read_and_only_its_own_folders_changed_by_an_unprivileged_user() {
    as_unprivileged_user("sandbox::only_what_is_listed_can_be_read_and_only_its_own_folders_changed");
}

/// Tries sockets, and prints which ones can be created.
const SOCKETS: &str = r#"
import os, socket, sys, ctypes
made = []
for name in ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_VSOCK", "AF_ALG", "AF_PACKET"]:
    for sort in [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW]:
        try:
            socket.socket(getattr(socket, name), sort).close()
            made.append(name)
        except PermissionError:
            pass
        except OSError:
            made.append(name + "?")
one, two = socket.socketpair()
one.send(b"x"), two.recv(1)
ring = ctypes.CDLL(None, use_errno=True).syscall(425, 1, ctypes.create_string_buffer(120))
print(" ".join(sorted(set(made))), "ring" if ring >= 0 else "", end="")
"#;

#[tokio::test]
async fn a_child_without_network_makes_no_socket_of_any_sort() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let python = |network| CommandPolicy {
        sandbox: Some(Sandbox { network, ..scene.sandbox() }),
        ..CommandPolicy::new([PYTHON, "-c", SOCKETS])
    };
    assert_eq!(text(&supervisor, python(Network::None), scene.task()).await.trim_matches(['"', ' ']), "");
    assert_eq!(
        text(&supervisor, python(Network::Unix), scene.task()).await.trim_matches(['"', ' ']),
        "AF_UNIX"
    );
    let open = text(&supervisor, python(Network::Open), scene.task()).await;
    assert!(open.contains("AF_INET "), "{open}");
}

#[test]
fn a_child_without_network_makes_no_socket_of_any_sort_as_an_unprivileged_user() {
    as_unprivileged_user("sandbox::a_child_without_network_makes_no_socket_of_any_sort");
}

#[tokio::test]
async fn a_child_has_no_privileges_and_cannot_signal_or_look_into_others() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let sandbox = Sandbox { read: vec!["/proc".into()], ..scene.sandbox() };
    let script = format!(
        "grep -E '^(Cap(Prm|Eff|Inh|Amb)|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\n\\t' '  '; \
         kill -0 {0} 2>/dev/null && echo signalled; \
         cat /proc/{0}/environ /proc/{0}/maps >/dev/null 2>&1 && echo looked; \
         mount -t tmpfs none /mnt 2>/dev/null && echo mounted; echo end",
        supervisor.pid()
    );
    let printed = text(&supervisor, scene.shell(sandbox, &script), scene.task()).await;
    let none = "0000000000000000";
    let expected = format!(
        "\"CapInh: {none} CapPrm: {none} CapEff: {none} CapAmb: {none} NoNewPrivs: 1 Seccomp: 2 end\""
    );
    assert_eq!(printed, expected);
}

#[test]
fn a_child_has_no_privileges_and_cannot_signal_or_look_into_others_as_an_unprivileged_user() {
    as_unprivileged_user("sandbox::a_child_has_no_privileges_and_cannot_signal_or_look_into_others");
}

#[tokio::test]
async fn processor_time_open_files_and_the_size_of_files_are_limited() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let sandbox = |change: fn(&mut Sandbox)| {
        let mut sandbox = scene.sandbox();
        change(&mut sandbox);
        sandbox
    };
    let cpu = sandbox(|sandbox| sandbox.cpu = Some(Duration::from_millis(100)));
    let (ended, _) = run(&supervisor, scene.shell(cpu, "while :; do :; done"), scene.task()).await;
    let spent = failure(ended);
    assert_eq!((spent.class, spent.message.contains("SIGXCPU")), (ErrorClass::Crash, true), "{spent:?}");
    assert!(spent.hint.as_ref().is_some_and(|hint| hint.contains("CPU time")), "{spent:?}");

    let size = sandbox(|sandbox| sandbox.file_bytes = Some(4096));
    let (ended, _) =
        run(&supervisor, scene.shell(size, "exec head -c 8192 /dev/zero > big"), scene.task()).await;
    let large = failure(ended);
    assert!(large.message.contains("SIGXFSZ") && large.hint.is_some(), "{large:?}");
    assert_eq!(std::fs::metadata(scene.path("work/big")).map(|file| file.len()).ok(), Some(4096));

    let files = sandbox(|sandbox| sandbox.open_files = Some(20));
    let printed =
        text(&supervisor, scene.shell(files, "ulimit -n; ulimit -Hn; ulimit -c"), scene.task()).await;
    assert_eq!(printed, "\"20\\n20\\n0\"");
}

#[tokio::test]
async fn the_private_folder_is_gone_with_its_child_and_the_rest_with_the_supervisor() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let policy = scene.shell(scene.sandbox(), "echo x > $TMPDIR/x; printf %s $TMPDIR");
    let command = Command::new(supervisor.clone(), policy).expect("the policy is right");
    let (sender, _heard) = ostler_exec::event_channel();
    let ended = command.run(scene.task(), ostler_exec::Control::new(sender)).await;
    let private = PathBuf::from(output(ended).trim_matches('"'));
    let all = private.parent().expect("it is in another").to_owned();
    until("it is gone", || !private.exists()).await;
    assert!(all.exists(), "the next child gets one there too");
    std::fs::write(all.join("left"), "behind").expect("a file");
    tokio::time::timeout(SOON, supervisor.stop()).await.expect("it ends");
    assert!(!all.exists(), "whatever became of the node");
}

#[tokio::test]
async fn the_store_cannot_be_had_by_listing_it() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    for list in [scene.path(""), scene.path(SECRET), "/".into()] {
        for sandbox in [
            Sandbox { read: vec![list.clone()], ..scene.sandbox() },
            Sandbox { write: vec![list.clone()], ..scene.sandbox() },
        ] {
            let refused =
                Command::new(supervisor.clone(), scene.shell(sandbox, "true")).expect_err("it is listed");
            assert!(matches!(refused, PolicyError::Sandbox(_)), "{refused}");
            assert!(refused.to_string().contains(SECRET), "{refused}");
        }
    }
    let named =
        CommandPolicy { argv: vec!["cat".into(), scene.text(SECRET)], ..scene.shell(scene.sandbox(), "") };
    let refused = Command::new(supervisor.clone(), named).expect_err("the command names it");
    assert!(refused.to_string().contains(SECRET), "{refused}");
    let nowhere = Sandbox { read: vec!["/no/such".into()], ..scene.sandbox() };
    let refused =
        Command::new(supervisor.clone(), scene.shell(nowhere, "true")).expect_err("it is not there");
    assert!(refused.to_string().contains("\"/no/such\" does not exist"), "{refused}");

    let beside = Work { folder: Some(scene.text("")), ..scene.task() };
    let failure = failure(run(&supervisor, scene.shell(scene.sandbox(), "true"), beside).await.0);
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains(SECRET), "{}", failure.message);
}

/// Not a test: the child that tries out a sandbox.
#[test]
#[ignore = "it is the child that tries out a sandbox"]
fn try_it_out() {
    if std::env::var_os(ROLE).is_some_and(|role| role == "probe") {
        let trial = std::env::args().next_back().expect("there is a trial");
        probe(&trial).expect("it can be tried");
    }
}

/// Not a test: a child that reports that nothing is denied.
#[test]
#[ignore = "it is a child that breaks out"]
fn break_out() {
    println!("\nbreach: the moon can be reached\ntried");
}

async fn proved(supervisor: &Supervisor, sandbox: &Sandbox, test: &str) -> Result<(), SelfTestFailed> {
    let words = ["--exact", test, "--ignored", "--nocapture", "--skip"];
    prove(supervisor, sandbox, &words, &[(ROLE, "probe")]).await
}

#[tokio::test]
async fn a_sandbox_proves_itself() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    for network in [Network::None, Network::Unix, Network::Open] {
        let sandbox = Sandbox { network, ..scene.sandbox() };
        proved(&supervisor, &sandbox, "sandbox::try_it_out").await.expect("it holds");
    }
    let left: Vec<_> =
        std::fs::read_dir(scene.path("")).expect("a folder").flatten().map(|file| file.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left of the proof: {left:?}");
}

#[test]
fn a_sandbox_proves_itself_to_an_unprivileged_user() {
    as_unprivileged_user("sandbox::a_sandbox_proves_itself");
}

#[tokio::test]
async fn a_sandbox_that_does_not_hold_or_cannot_be_tried_is_refused() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let broken =
        proved(&supervisor, &scene.sandbox(), "sandbox::break_out").await.expect_err("it does not hold");
    assert!(broken.to_string().contains("the moon can be reached"), "{broken}");
    let silent =
        proved(&supervisor, &scene.sandbox(), "sandbox::no_such_test").await.expect_err("no call was tried");
    assert!(matches!(silent, SelfTestFailed::Silent(_)), "{silent}");
    let listed = Sandbox { read: vec![scene.path("")], ..scene.sandbox() };
    let wrong = proved(&supervisor, &listed, "sandbox::try_it_out").await.expect_err("the store is in it");
    assert!(matches!(wrong, SelfTestFailed::Wrong(_)), "{wrong}");
}

#[tokio::test]
async fn a_sandbox_without_a_store_that_is_a_file_proves_itself_too() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    // The second may see the files that the self-test creates.
    for write in [vec![scene.path("work")], vec![std::env::temp_dir()]] {
        let sandbox = Sandbox { write, ..Sandbox::default() };
        proved(&supervisor, &sandbox, "sandbox::try_it_out").await.expect("it holds");
    }
    let broken = proved(&supervisor, &Sandbox::default(), "sandbox::break_out").await;
    assert!(matches!(broken, Err(SelfTestFailed::Broken(_))), "{broken:?}");
}

#[tokio::test]
async fn memory_and_processes_are_limited_by_control_groups_or_the_sandbox_is_refused() {
    let scene = Scene::new();
    let limited = Sandbox { memory_bytes: Some(64 << 20), processes: Some(8), ..scene.sandbox() };
    let mut program = supervisor_program();
    program.containment = Containment::Group;
    let without = Supervisor::start(program, Vec::new()).await.expect("a supervisor starts");
    let refused = proved(&without, &limited, "sandbox::try_it_out").await.expect_err("there are no groups");
    assert!(matches!(refused, SelfTestFailed::Unable(_)), "{refused}");
    assert!(refused.to_string().contains("control groups"), "{refused}");

    let supervisor = supervisor().await;
    if let Err(refused) = proved(&supervisor, &limited, "sandbox::try_it_out").await {
        assert!(matches!(refused, SelfTestFailed::Unable(_)), "{refused}");
        return println!("left out: {refused}");
    }
    let hungry = CommandPolicy {
        sandbox: Some(limited.clone()),
        ..CommandPolicy::new([PYTHON, "-c", "x = bytearray(256 << 20); print(len(x))"])
    };
    let killed = failure(run(&supervisor, hungry, scene.task()).await.0);
    assert!(killed.message.contains("SIGKILL"), "{killed:?}");
    let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done 2>/dev/null; wait";
    let (ended, _) = run(&supervisor, scene.shell(limited, many), scene.task()).await;
    assert!(matches!(ended.outcome, Outcome::Failed(_)), "{ended:?}");
    // The next child in the same group is not limited.
    let printed = text(
        &supervisor,
        CommandPolicy::new([PYTHON, "-c", "print(len(bytearray(256 << 20)))"]),
        scene.task(),
    )
    .await;
    assert_eq!(printed, (256 << 20).to_string());
}

#[tokio::test]
async fn programs_of_every_sort_start_in_a_sandbox() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    for argv in [
        vec![PYTHON, "-c", "import json, ssl, sqlite3, tempfile; tempfile.NamedTemporaryFile(); print('ok')"],
        vec!["/usr/bin/node", "-e", "setTimeout(() => console.log('ok'), 1)"],
        vec!["bash", "-c", "cat <(echo ok) | grep ok"],
        vec!["perl", "-e", "print 'ok'"],
    ] {
        let policy = CommandPolicy { sandbox: Some(scene.sandbox()), ..CommandPolicy::new(argv.clone()) };
        let (ended, notes) = run(&supervisor, policy, scene.task()).await;
        let AttemptResult { outcome: Outcome::Success, output, .. } = ended else {
            panic!("{argv:?}: {ended:?} {:?}", crate::desk::lines(&notes))
        };
        assert_eq!(output.as_deref(), Some("\"ok\""), "{argv:?}");
    }
}

#[tokio::test]
async fn the_files_that_the_command_names_can_be_read_and_those_of_the_task_cannot() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let home = scene.path("home");
    std::fs::create_dir(&home).expect("a folder");
    std::fs::write(home.join("tool"), "#!/bin/sh\nfor file; do cat $file 2>/dev/null; done; echo end\n")
        .expect("a file");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.join("tool"), open).expect("it is ours");
    std::fs::write(home.join("named"), "named ").expect("a file");
    std::fs::write(home.join("asked"), "asked ").expect("a file");
    let environment = Environment {
        keep: Vec::new(),
        set: vec![("PATH".into(), format!("{}:/bin:/usr/bin", home.display()))],
    };
    let policy = CommandPolicy {
        sandbox: Some(scene.sandbox()),
        environment,
        ..CommandPolicy::new([
            "tool".to_owned(),
            home.join("named").display().to_string(),
            "{{ payload }}".to_owned(),
        ])
    };
    let asked = Work { payload: format!("{:?}", home.join("asked")), ..scene.task() };
    assert_eq!(text(&supervisor, policy, asked).await, "\"named end\"");
}

pub(crate) fn python(policy: ostler_process::ProcessPolicy) -> ostler_process::ProcessPolicy {
    let mut policy = policy;
    PYTHON.clone_into(&mut policy.argv[0]);
    policy
}

#[tokio::test]
async fn long_lived_workers_are_in_a_sandbox_too() {
    let scene = Scene::new();
    let folders = Folders { start: None, each: Some(scene.path("tasks")), ..Folders::default() };
    let policy =
        ostler_process::ProcessPolicy { sandbox: Some(scene.sandbox()), folders, ..python(workers("well")) };
    let desk = Desk::of(policy).await;
    let worker = desk.open().await;
    let write = |path: &Path| {
        let how = format!("{{\"path\":{:?},\"text\":\"x\"}}", path.display().to_string());
        task("write", &how)
    };
    for closed in [scene.path(SECRET), scene.path("new"), "/tmp/ostler-new".into()] {
        let refused = failure(desk.run(worker, write(&closed)).await.0);
        assert!(refused.message.contains("Permission denied"), "{refused:?}");
    }
    let own = scene.path("tasks").join("free");
    output(desk.run(worker, write(&own)).await.0);
    assert_eq!(std::fs::read_to_string(&own).ok().as_deref(), Some("x"));

    let elsewhere = Work { folder: Some(scene.text("work")), ..write(&own) };
    let refused = failure(desk.run(worker, elsewhere).await.0);
    assert_eq!(refused.class, ErrorClass::Permanent);
    assert!(refused.message.contains("\"folders\""), "{refused:?}");
    desk.still_works(worker).await;
    desk.process.close(worker).await;
}

#[test]
fn long_lived_workers_are_in_a_sandbox_too_as_an_unprivileged_user() {
    as_unprivileged_user("sandbox::long_lived_workers_are_in_a_sandbox_too");
}

#[tokio::test]
async fn a_family_in_a_sandbox_ends_like_any_other() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let policy = scene.shell(scene.sandbox(), &format!("set -- .; {FAMILY} wait"));
    let hung = Work { timeout: Duration::from_secs(3), grace: Duration::from_millis(200), ..scene.task() };
    let attempt = {
        let supervisor = supervisor.clone();
        tokio::spawn(async move { run(&supervisor, policy, hung).await.0 })
    };
    let family = family_of(&scene.path("work")).await;
    let late = failure(attempt.await.expect("no panic"));
    assert_eq!(late.class, ErrorClass::Timeout);
    until("no process is left", || family.iter().all(|pid| !runs(*pid))).await;
}

#[test]
fn a_family_in_a_sandbox_ends_like_any_other_as_an_unprivileged_user() {
    as_unprivileged_user("sandbox::a_family_in_a_sandbox_ends_like_any_other");
}
