//! Resource limits (`ulimit`): a process that hits one reports it, and loses nothing.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::ostler::{Place, Running, ran};
use crate::up::{appears, configured, is_gone, script, up};

/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// The program, started by a shell that sets a limit first.
fn limited(place: &Place, limit: &str, words: &[&str]) -> Command {
    let ostler = place.command(words);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(ostler.get_program());
    shell.args(ostler.get_args()).env_clear().current_dir(place.folder());
    shell.envs(ostler.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// Sets the file size limit of a process.
fn let_write(pid: Pid, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(pid), Resource::Fsize, limit).expect("a limit is set");
}

/// Polls until it holds.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    while !so() {
        assert!(Instant::now() < until, "not in time: {what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

#[test]
fn a_command_that_may_not_write_so_much_says_so_and_is_not_killed() {
    let place = Place::new();
    place.done(["submit", "mail", "send"]);
    // Blocks of 512 bytes, or of 1024: less than a log that contains such a payload.
    let payload = format!("\"{}\"", "x".repeat(400_000));
    let file = place.write("payload.json", payload);
    let file = format!("@{}", file.display());
    let words = ["submit", "mail", "send", "--payload", &file];
    let ended = limited(&place, "-f 200", &words).output().expect("it runs");
    assert_eq!(ended.status.signal(), None, "it was not killed");
    ran(&mut limited(&place, "-f 200", &words)).is_refused(3, "ulimit -f");
    assert_eq!(place.json(["ls"]).as_array().map(Vec::len), Some(1), "what was refused was not enqueued");
    place.done(words);
    assert!(place.done(["db", "check"]).contains("is intact"));
}

#[test]
fn a_node_that_may_not_write_any_more_lives_and_goes_on_when_it_may() {
    let place = configured();
    let node = up(&place, &[]);
    let at = |name: &str| place.folder().join(name);
    let (began, gate) = (at("began"), at("gate"));
    // The signal kills a child as usual: it inherits no handler from its node.
    let killed = place.run([
        "submit",
        "shell",
        "run",
        "--payload",
        &script("kill -XFSZ $$"),
        "--attempts",
        "1",
        "--wait",
    ]);
    killed.is_refused(1, "SIGXFSZ");
    let text = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; echo done",
        began.display(),
        gate.display()
    );
    let id = place.done(["submit", "shell", "run", "--payload", &script(&text)]).trim().to_owned();
    let child = appears(&began);
    let pid = place.json(["nodes"])[0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(Pid::from_raw).expect("it is listed");
    // Enough for a heartbeat, and not for a write to the store.
    let_write(pid, Some(4_096));
    std::fs::write(&gate, "").expect("the gate opens");
    is_gone(&child);
    let other = place.done(["submit", "shell", "run", "--payload", &script("echo other")]).trim().to_owned();
    let_write(pid, None);
    let completed = |id: &str| place.json(["show", id])["state"] == "completed";
    until("both are done", || completed(&id) && completed(&other));
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_small_stack_is_enough() {
    let place = configured();
    place.done(["submit", "shell", "run", "--payload", &script("echo hi")]);
    let shown = ran(&mut limited(&place, "-s 64", &["ls", "--json"]));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let node = Running::start(limited(&place, "-s 64", &["up"]));
    assert!(node.line().contains("ready"));
    let done = place.run(["submit", "shell", "run", "--payload", &script("echo hello"), "--wait"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"hello\"\n"), "{done:?}");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}
