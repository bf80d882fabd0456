//! cgroup controllers: resource limits of a control group, by the files of `memory` and `pids`.
//!
//! A controller works in a group only if the parent group enables it, and a group with processes of its own cannot enable any,
//! unless it is the root. So a node whose children are to be limited runs in a subgroup of a group that was delegated to it
//! (systemd: `Delegate=yes` and `DelegateSubgroup=node`); the children's groups are then created next to its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::sandbox::Limits;

/// The controllers available in a group.
const THERE: &str = "cgroup.controllers";
/// The controllers enabled for its subgroups.
const HANDED_ON: &str = "cgroup.subtree_control";
/// Extended attributes by which systemd marks a delegated group.
const GIVEN: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// No limit.
const ANY: &str = "max";

/// Where the groups of children are created: next to the node's own if the parent group was delegated to the node, otherwise in it.
pub(super) fn place_for_groups(own: PathBuf) -> PathBuf {
    match own.parent() {
        Some(above) if !is_given(&own) && is_given(above) => above.to_owned(),
        Some(_) | None => own,
    }
}

fn is_given(group: &Path) -> bool {
    let mut value = [0; 1];
    GIVEN.iter().any(|mark| {
        let length = rustix::fs::getxattr(group, *mark, &mut value);
        matches!(length, Ok(1)) && value == *b"1"
    })
}

/// Enables the controllers that the groups of a folder need, from the top down.
pub(super) fn hand_on(folder: &Path, limits: &Limits) -> io::Result<()> {
    let wanted = [("memory", limits.memory_bytes.is_some()), ("pids", limits.processes.is_some())];
    for (controller, _) in wanted.into_iter().filter(|(_, is_wanted)| *is_wanted) {
        for group in folder.parent().into_iter().chain([folder]) {
            hand_on_one(group, controller)?;
        }
    }
    Ok(())
}

fn hand_on_one(group: &Path, controller: &str) -> io::Result<()> {
    let there = fs::read_to_string(group.join(THERE))?;
    if !there.split_ascii_whitespace().any(|there| there == controller) {
        let shown = group.display();
        return Err(io::Error::other(format!("the control group {shown} has no {controller} controller")));
    }
    fs::write(group.join(HANDED_ON), format!("+{controller}")).map_err(|error| {
        let reason = if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            "processes run in it; with systemd, set Delegate=yes and DelegateSubgroup=node".to_owned()
        } else {
            error.to_string()
        };
        let shown = group.display();
        io::Error::other(format!(
            "the control group {shown} cannot hand on its {controller} controller: {reason}"
        ))
    })
}

/// Sets the limits of a group, or removes those of an earlier child.
pub(super) fn limit(group: &Path, limits: &Limits) -> io::Result<()> {
    let memory = limits.memory_bytes.map(|bytes| bytes.to_string());
    let no_swap = limits.memory_bytes.map(|_| "0".to_owned());
    let processes = limits.processes.map(|most| most.to_string());
    for (file, most) in [("memory.max", memory), ("memory.swap.max", no_swap), ("pids.max", processes)] {
        let path = group.join(file);
        match most {
            Some(most) if file == "memory.swap.max" && !path.exists() => {
                // Without swap there is no such file, and nothing to limit.
                drop(most);
            }
            Some(most) => fs::write(path, most)?,
            None if path.exists() => fs::write(path, ANY)?,
            None => {}
        }
    }
    // On out-of-memory, kill the whole child: half of one is of no use.
    let whole = group.join("memory.oom.group");
    if limits.memory_bytes.is_some() && whole.exists() {
        fs::write(whole, "1")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    #[test]
    fn groups_are_made_beside_the_own_one_only_in_a_group_that_was_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("node");
        fs::create_dir(&own).expect("a folder");
        assert_eq!(place_for_groups(own.clone()), own);
        if setxattr(folder.path(), GIVEN[0], b"1", XattrFlags::empty()).is_err() {
            return println!("left out: no such marks can be made here");
        }
        assert_eq!(place_for_groups(own.clone()), folder.path());
        setxattr(&own, GIVEN[0], b"1", XattrFlags::empty()).expect("it could be made above");
        assert_eq!(place_for_groups(own.clone()), own, "it was given itself");
    }

    #[test]
    fn a_controller_that_is_missing_or_cannot_be_handed_on_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let groups = folder.path().join("ostler-1-0");
        fs::create_dir(&groups).expect("a folder");
        for group in [folder.path(), &groups] {
            fs::write(group.join(THERE), "cpu pids\n").expect("a file");
            fs::write(group.join(HANDED_ON), "").expect("a file");
        }
        let limits = Limits { processes: Some(7), ..Limits::default() };
        hand_on(&groups, &limits).expect("it is there");
        assert_eq!(fs::read_to_string(groups.join(HANDED_ON)).expect("a file"), "+pids");
        let limits = Limits { memory_bytes: Some(7), ..limits };
        let error = hand_on(&groups, &limits).expect_err("there is none").to_string();
        assert!(error.contains("no memory controller"), "{error}");
    }

    #[test]
    fn limits_are_written_and_taken_away_again() {
        let group = tempfile::tempdir().expect("a folder");
        let read = |file: &str| fs::read_to_string(group.path().join(file)).expect("a file");
        for file in ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"] {
            fs::write(group.path().join(file), "").expect("a file");
        }
        let limits = Limits { memory_bytes: Some(1 << 20), processes: Some(5), ..Limits::default() };
        limit(group.path(), &limits).expect("it can be written");
        assert_eq!(
            ["memory.max", "memory.swap.max", "memory.oom.group", "pids.max"].map(read),
            ["1048576", "0", "1", "5"]
        );
        limit(group.path(), &Limits::default()).expect("it can be written");
        let read = |file: &str| fs::read_to_string(group.path().join(file)).expect("a file");
        assert_eq!(["memory.max", "memory.swap.max", "pids.max"].map(read), ["max"; 3]);
    }
}
