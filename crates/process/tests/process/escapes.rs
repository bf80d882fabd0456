//! Sandbox escapes that Landlock leaves open: each is tried by a program that may do it elsewhere, and is denied.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use ostler_process::CommandPolicy;
use ostler_process::sandbox::{Attributes, Network, Sandbox};

use crate::bench::supervisor;
use crate::sandbox::{PYTHON, SECRET, Scene, as_unprivileged_user, text};

/// Tries everything on the files of a scene and on the process with the given pid, and prints what worked.
const TRIES: &str = r#"
import ctypes, os, resource, socket, sys
scene, pid = sys.argv[1], int(sys.argv[2])
outside, store = scene + "/outside", scene + "/store.db"
libc = ctypes.CDLL(None, use_errno=True)
keyctl = {"x86_64": 250}.get(os.uname().machine, 219)
made = []

def attempt(name, what):
    try:
        if what() is not False:
            made.append(name)
    except OSError:
        pass

def by_descriptor():
    os.chmod("/proc/self/fd/%d" % os.open(outside, os.O_PATH), 0o666)

def datagram(kind):
    one, _ = socket.socketpair(socket.AF_UNIX, kind)
    one.sendto(b"out", scene + "/datagrams")

def ipc(get, control):
    number = get()
    if number < 0:
        return False
    control(number)

attempt("chmod", lambda: os.chmod(outside, 0o666))
attempt("chmod-at", lambda: os.chmod("outside", 0o666, dir_fd=os.open(scene, os.O_PATH)))
attempt("chmod-proc", by_descriptor)
attempt("chmod-folder", lambda: os.chmod(scene, 0o777))
attempt("chmod-store", lambda: os.chmod(store, 0o444))
attempt("chown", lambda: os.chown(outside, os.getuid(), os.getgid()))
attempt("lchown", lambda: os.lchown(outside, os.getuid(), os.getgid()))
attempt("utime", lambda: os.utime(outside, (1, 1)))
attempt("touch", lambda: os.utime(outside))
attempt("setxattr", lambda: os.setxattr(outside, "user.x", b"x"))
attempt("getxattr", lambda: os.getxattr(outside, "user.x"))
attempt("listxattr", lambda: os.listxattr(outside))
attempt("prlimit", lambda: resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE)))
attempt("nice", lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid)))
attempt("affinity", lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid)))
attempt("datagram", lambda: datagram(socket.SOCK_DGRAM))
attempt("raw-datagram", lambda: datagram(socket.SOCK_RAW))
attempt("shm", lambda: ipc(lambda: libc.shmget(0, 4096, 0o600), lambda number: libc.shmctl(number, 0, None)))
attempt("msg", lambda: ipc(lambda: libc.msgget(0, 0o600), lambda number: libc.msgctl(number, 0, None)))
attempt("sem", lambda: ipc(lambda: libc.semget(0, 1, 0o600), lambda number: libc.semctl(number, 0, 0)))
attempt("mq", lambda: libc.mq_open(b"/ostler-%d" % os.getpid(), 66, 0o600, None) >= 0 and libc.mq_unlink(b"/ostler-%d" % os.getpid()) == 0)
attempt("keyring", lambda: libc.syscall(keyctl, 0, -4, 0) >= 0)
attempt("unshare", lambda: libc.unshare(0x10000000) == 0)
print(" ".join(made), end="")
"#;

/// Works everywhere for the owner of the files and the process.
const ALWAYS: [&str; 12] = [
    "chmod",
    "chmod-at",
    "chmod-proc",
    "chmod-folder",
    "chmod-store",
    "chown",
    "lchown",
    "utime",
    "prlimit",
    "nice",
    "datagram",
    "raw-datagram",
];

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[tokio::test]
async fn what_belongs_to_its_user_outside_cannot_be_changed_or_talked_to() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let outside = scene.path("outside");
    std::fs::write(&outside, "outside").expect("a file");
    let datagrams = UnixDatagram::bind(scene.path("datagrams")).expect("a socket");
    datagrams.set_nonblocking(true).expect("it is ours");
    let tries = || CommandPolicy::new([PYTHON, "-c", TRIES, &scene.text(""), &supervisor.pid().to_string()]);
    let mut buffer = [0; 8];

    let free = text(&supervisor, tries(), scene.task()).await;
    let free: Vec<&str> = free.trim_matches('"').split(' ').collect();
    for name in ALWAYS {
        assert!(free.contains(&name), "{name} works without a sandbox: {free:?}");
    }
    assert_eq!(datagrams.recv(&mut buffer).ok(), Some(3));
    assert_eq!(datagrams.recv(&mut buffer).ok(), Some(3));

    for (file, mode) in [(outside.clone(), 0o600), (scene.path(SECRET), 0o644), (scene.path(""), 0o700)] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let changed = || std::fs::metadata(&outside).expect("it is there").modified().expect("it has one");
    let before = changed();
    let confined = CommandPolicy { sandbox: Some(scene.sandbox()), ..tries() };
    assert_eq!(text(&supervisor, confined, scene.task()).await.trim_matches('"'), "");
    assert_eq!((mode(&outside), mode(&scene.path(SECRET)), mode(&scene.path(""))), (0o600, 0o644, 0o700));
    assert_eq!(changed(), before);
    assert!(datagrams.recv(&mut buffer).is_err(), "nothing came out");

    // Opening the network, or the attributes of files, opens nothing else.
    let open = Sandbox { network: Network::Open, ..scene.sandbox() };
    let confined = CommandPolicy { sandbox: Some(open), ..tries() };
    assert_eq!(text(&supervisor, confined, scene.task()).await.trim_matches('"'), "datagram raw-datagram");
    let changeable = Sandbox { attributes: Attributes::Changeable, ..scene.sandbox() };
    let confined = CommandPolicy { sandbox: Some(changeable), ..tries() };
    let printed = text(&supervisor, confined, scene.task()).await;
    let printed: Vec<&str> = printed.trim_matches('"').split(' ').collect();
    let files = |name: &&str| name.starts_with("ch") || name.ends_with("attr");
    let others: Vec<_> = printed.iter().filter(|name| !files(name)).collect();
    assert_eq!(others, [&"lchown", &"utime", &"touch"], "{printed:?}");
}

#[test]
fn what_belongs_to_its_user_outside_cannot_be_changed_or_talked_to_as_an_unprivileged_user() {
    as_unprivileged_user("escapes::what_belongs_to_its_user_outside_cannot_be_changed_or_talked_to");
}

/// Everyday operations of programs: none is denied.
const WORK: &str = r#"
set -e
mkdir -p a/b && echo one > a/b/one && cp a/b/one two && cp -r a c && mv two three && ln -s three four && ln three five
touch three six && test six -nt a/b/one -o -e six && rm -r c && find . -name one | grep -q b/one
tar cf all.tar a && tar tf all.tar | grep -q one && gzip -c all.tar > all.gz && gzip -dc all.gz | cmp - all.tar
sort three | sed s/one/1/ | grep -q 1
( ulimit -n 100; test "$(ulimit -n)" = 100 ) && nice -n 1 true && sleep 0 & wait $!
kill -0 $$ && ls -la . > /dev/null && stat three > /dev/null && mktemp > /dev/null && mktemp -d > /dev/null
if command -v git > /dev/null; then
    export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
    git init -q repo && cd repo && echo x > x && git add x
    git -c user.name=a -c user.email=a@b commit -q -m x && git clone -q . ../again && test -e ../again/x
fi
echo ok
"#;

/// The same for a program with threads, children and pipes.
const PYTHON_WORK: &str = r#"
import concurrent.futures, os, shutil, socket, sqlite3, subprocess, tempfile, threading
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(lambda x: x * x, range(10))) == 285
assert subprocess.run(["sh", "-c", "echo x"], capture_output=True).stdout == b"x\n"
if os.fork() == 0:
    os._exit(0)
assert os.wait()[1] == 0
one, two = socket.socketpair()
one.send(b"x"), two.recv(1)
open("source", "w").write("x")
shutil.copyfile("source", "copy")
os.rename("copy", "moved")
with sqlite3.connect("my.db") as db:
    db.execute("create table t (x)")
with tempfile.TemporaryDirectory() as folder:
    open(folder + "/x", "w").close()
os.nice(1), os.sched_setaffinity(0, os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0)
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("ok")
"#;

/// The same for a program that creates its own threads.
const NODE_WORK: &str = r#"
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
const fs = require('fs');
if (execFileSync('sh', ['-c', 'echo x']).toString() !== 'x\n') throw new Error('no child');
fs.writeFileSync('n', 'n'); fs.renameSync('n', 'm'); fs.rmSync('m');
new Worker("require('worker_threads').parentPort.postMessage('ok')", { eval: true }).on('message', (said) => console.log(said));
"#;

#[tokio::test]
async fn ordinary_work_is_not_denied() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    for argv in [["sh", "-c", WORK], [PYTHON, "-c", PYTHON_WORK], ["/usr/bin/node", "-e", NODE_WORK]] {
        let policy = CommandPolicy { sandbox: Some(scene.sandbox()), ..CommandPolicy::new(argv) };
        assert_eq!(text(&supervisor, policy, scene.task()).await, "\"ok\"", "{}", argv[0]);
    }
}

#[test]
fn ordinary_work_is_not_denied_to_an_unprivileged_user() {
    as_unprivileged_user("escapes::ordinary_work_is_not_denied");
}

#[tokio::test]
async fn modes_and_times_of_its_own_files_change_only_where_the_pool_says_so() {
    let (supervisor, scene) = (supervisor().await, Scene::new());
    let script =
        "echo x > x; chmod 700 x && cp -p x y && touch -d @1 y && test -x y && echo changed || echo kept";
    let printed = text(&supervisor, scene.shell(scene.sandbox(), script), scene.task()).await;
    assert_eq!(printed, "\"kept\"");
    let changeable = Sandbox { attributes: Attributes::Changeable, ..scene.sandbox() };
    assert_eq!(text(&supervisor, scene.shell(changeable, script), scene.task()).await, "\"changed\"");
}
