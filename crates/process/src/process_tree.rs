//! The process tree of a worker, for people: what its process has started, with names and memory.

use std::collections::HashMap;
use std::fs::read;

use ostler_core::TreeProcess;

use crate::memory::resident_bytes;
use crate::supervisor::family;

/// A process and its descendants, each below its parent, at most `most` of them. Orphans are missing. Empty if the process is gone.
#[must_use]
pub fn process_tree(root: u32, most: usize) -> Vec<TreeProcess> {
    let Ok(root) = i32::try_from(root) else { return Vec::new() };
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in family(root) {
        if pid != root {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut tree = Vec::new();
    let mut open = vec![(root, 0)];
    while let Some((pid, depth)) = open.pop() {
        if tree.len() == most {
            break;
        }
        tree.extend(look(pid, depth));
        let mut below = children.remove(&pid).unwrap_or_default();
        below.sort_unstable_by(|one, other| other.cmp(one));
        open.extend(below.into_iter().map(|child| (child, depth + 1)));
    }
    tree
}

fn look(pid: i32, depth: usize) -> Option<TreeProcess> {
    let name = read(format!("/proc/{pid}/comm")).ok()?;
    Some(TreeProcess {
        pid: u32::try_from(pid).ok()?,
        depth,
        name: String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned(),
        memory_bytes: resident_bytes(pid)?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn each_process_stands_below_its_parent() {
        // Processes in the background have no input to wait for.
        let script = "sleep 600 & sh -c 'echo there; exec sleep 600' & wait";
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says so");
        let tree = process_tree(shell.id(), 50);
        assert_eq!((tree[0].pid, tree[0].depth, tree[0].name.as_str()), (shell.id(), 0, "sh"));
        assert!(tree[0].memory_bytes > 0, "{tree:?}");
        assert!(tree[1..].iter().all(|process| process.depth == 1) && tree.len() == 3, "{tree:?}");
        assert_eq!(process_tree(shell.id(), 1).len(), 1, "no more than were asked for");
        for process in tree.iter().skip(1) {
            let pid = rustix::process::Pid::from_raw(process.pid as i32).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.kill().and_then(|()| shell.wait()).expect("it ends");
        assert_eq!(process_tree(shell.id(), 50), Vec::new());
    }
}
