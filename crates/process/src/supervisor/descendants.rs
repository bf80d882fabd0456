//! Descendants of a process: finds them in /proc, and kills them without ever hitting a reused pid.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::gettid;

/// The environment variable that marks the descendants of a child.
pub(super) const MARK: &str = "OSTLER_CHILD";
/// Bytes per read of the list of children.
const LIST_BYTES: usize = 4 * 1024;

/// One process, as read from /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: i32,
    parent: i32,
    started: u64,
}

/// How descendants are found.
#[derive(Debug)]
pub(super) enum Finder {
    /// By the kernel's lists of children, one for each thread. These are the supervisor's own: orphans are reparented to
    /// its main thread, and a started process is the child of the thread that starts it.
    Lists(Vec<File>),
    /// By scanning all processes: not every kernel is built with those lists.
    Walk,
}

impl Finder {
    /// For this process, all of whose children are started by this thread.
    pub(super) fn new(me: i32) -> Self {
        let this = gettid().as_raw_pid();
        let threads = if this == me { vec![me] } else { vec![me, this] };
        let open = |thread: i32| File::open(format!("/proc/self/task/{thread}/children"));
        threads.into_iter().map(open).collect::<Result<_, _>>().map_or(Self::Walk, Self::Lists)
    }

    /// The supervisor's own children. The lists are complete, because only this thread reaps.
    pub(super) fn own(&self, me: i32) -> Vec<i32> {
        match self {
            Self::Lists(lists) => lists
                .iter()
                .map(numbers)
                .collect::<Result<Vec<_>, _>>()
                .map_or_else(|_| walked(me), |lists| lists.concat()),
            Self::Walk => walked(me),
        }
    }

    /// A process and all its descendants, with those that are reparented to `me` during the search because their parent died.
    pub(super) fn family(&self, root: i32, me: i32) -> Vec<ProcessInfo> {
        let all = match self {
            Self::Lists(_) => Vec::new(),
            Self::Walk => all(),
        };
        let mut found: Vec<_> = look(root).into_iter().collect();
        let mut seen = HashSet::from([root]);
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let parent = process.pid;
            let children: Vec<_> = match self {
                Self::Lists(_) => {
                    listed(parent).filter(|child| [parent, me].contains(&child.parent)).collect()
                }
                Self::Walk => children_of(parent, &all).collect(),
            };
            found.extend(children.into_iter().filter(|child| seen.insert(child.pid)));
            next += 1;
        }
        found
    }
}

impl ProcessInfo {
    /// Kills the process. Its pid may have been reused, so a pidfd is opened first and the start time checked again.
    pub(super) fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if look(self.pid).is_some_and(|now| now.started == self.started) {
            // It may be dead already, or we may lack the right to kill it: nothing else can be done then.
            let _ = pidfd_send_signal(held, Signal::KILL);
        }
    }
}

/// A process and all its descendants, as far as their parents live.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    family(root).into_iter().map(|(pid, _)| pid).collect()
}

/// The same, each with its parent.
pub(crate) fn family(root: i32) -> Vec<(i32, i32)> {
    let has_lists = fs::exists("/proc/thread-self/children").unwrap_or(false);
    let finder = if has_lists { Finder::Lists(Vec::new()) } else { Finder::Walk };
    finder.family(root, root).into_iter().map(|process| (process.pid, process.parent)).collect()
}

/// The mark of a process. It cannot be read if the process cleared its environment or belongs to another user.
pub(super) fn mark(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(mark.to_vec()).ok()
}

/// A snapshot of all processes.
fn all() -> Vec<ProcessInfo> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(look).collect()
}

fn walked(parent: i32) -> Vec<i32> {
    children_of(parent, &all()).map(|process| process.pid).collect()
}

fn children_of(parent: i32, all: &[ProcessInfo]) -> impl Iterator<Item = ProcessInfo> {
    all.iter().copied().filter(move |process| process.parent == parent)
}

/// The children of every thread of a process, by the kernel's lists.
fn listed(parent: i32) -> impl Iterator<Item = ProcessInfo> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
    let lists = threads.filter_map(|thread| File::open(thread.ok()?.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list).unwrap_or_default()).filter_map(look)
}

/// The pids in such a list.
fn numbers(list: &File) -> io::Result<Vec<i32>> {
    let mut text = Vec::new();
    let mut piece = [0; LIST_BYTES];
    loop {
        match list.read_at(&mut piece, text.len() as u64) {
            Ok(0) => break,
            Ok(read) => text.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let words = text.split(|byte| *byte == b' ');
    Ok(words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect())
}

fn look(pid: i32) -> Option<ProcessInfo> {
    // The name is in parentheses and may contain anything, parentheses too: the fields follow the last one.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    const FIELDS_BETWEEN: usize = 17;
    let started = fields.nth(FIELDS_BETWEEN)?.parse().ok()?;
    Some(ProcessInfo { pid, parent, started })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn lists_and_the_walk_find_the_same_family() {
        let me = rustix::process::getpid().as_raw_pid();
        // One child, one grandchild, and one more below it.
        let script = "sh -c 'sleep 600 & echo there; wait' & wait";
        let mut head =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let mut output = BufReader::new(head.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("the family is complete");
        let root = i32::try_from(head.id()).expect("a pid");

        let lists = Finder::new(me);
        assert!(
            matches!(lists, Finder::Lists(_)),
            "the kernel has lists of children, so the test can compare"
        );
        for finder in [&lists, &Finder::Walk] {
            assert!(finder.own(me).contains(&root), "{finder:?}");
        }
        let family = |finder: &Finder| -> BTreeSet<_> {
            finder.family(root, me).into_iter().map(|process| process.pid).collect()
        };
        assert_eq!(family(&lists).len(), 3);
        assert_eq!(family(&lists), family(&Finder::Walk));

        let members = lists.family(root, me);
        members.iter().for_each(ProcessInfo::kill);
        head.wait().expect("it is dead");
        // The pipe ends when no process holds it any more.
        assert_eq!(output.read_line(&mut line).expect("it ends"), 0);
    }

    /// Not a test: reuses the pid of a process, in a namespace where the next pid can be set.
    #[test]
    #[ignore = "it is the process in a namespace of its own"]
    fn use_a_pid_again() {
        if std::env::var_os("OSTLER_TEST_ROLE").is_none_or(|role| role != "pids") {
            return;
        }
        let start =
            || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let pid = |child: &std::process::Child| i32::try_from(child.id()).expect("a pid");
        let end = |mut child: std::process::Child| {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        };
        let first = start();
        let seen = look(pid(&first)).expect("it runs");
        end(first);
        // Until the start time, by which processes are distinguished, has moved on, and the pid is obtained.
        const MAX_TRIES: u32 = 10_000;
        let again = |_| {
            let last = (seen.pid - 1).to_string();
            fs::write("/proc/sys/kernel/ns_last_pid", last).expect("it can be said");
            let next = start();
            match look(pid(&next)) {
                Some(now) if now.pid == seen.pid && now.started != seen.started => Some(next),
                Some(_) | None => {
                    end(next);
                    None
                }
            }
        };
        let mut stranger = (0..MAX_TRIES).find_map(again).expect("the pid can be had");
        seen.kill();
        // A process that is about to be killed would not reply.
        let (mut to, from) =
            (stranger.stdin.take().expect("a pipe"), stranger.stdout.take().expect("a pipe"));
        writeln!(to, "still there").expect("a stranger was not killed");
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line).expect("it answers");
        assert_eq!(line, "still there\n", "a stranger was killed");
        look(seen.pid).expect("it runs").kill();
        stranger.wait().expect("this time it was meant");
    }

    #[test]
    fn a_process_that_took_the_pid_of_another_is_not_killed_for_it() {
        if !rustix::process::geteuid().is_root() {
            return println!("left out: only root can have a namespace of pids");
        }
        let status = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", "supervisor::descendants::tests::use_a_pid_again", "--ignored", "--nocapture"])
            .env("OSTLER_TEST_ROLE", "pids")
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("it starts").success());
    }
}
