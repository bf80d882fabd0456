//! Starts a child.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::Pid;

use super::frame::{About, Spawn};
use super::kin::MARK;

/// Starts it, on three descriptors, as the head of a group of its own.
pub(super) fn launch(spawn: Spawn, mark: &str, stdio: [OwnedFd; 3]) -> Result<Pid, (About, io::Error)> {
    let program = |errno: Errno| (About::Program, io::Error::from(errno));
    let (first, rest) = spawn.argv.split_first().ok_or_else(|| program(Errno::INVAL))?;
    let mut command = Command::new(first);
    command.args(rest).env_clear().process_group(0);
    command.envs(spawn.keep.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(spawn.set).env(MARK, mark);
    let [stdin, stdout, stderr] = stdio.map(Stdio::from);
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    if let Some(folder) = spawn.folder {
        // The system does not say whether the program or the folder is missing.
        let found = fs::metadata(&folder).map_err(|error| (About::Folder, error))?;
        if !found.is_dir() {
            return Err((About::Folder, Errno::NOTDIR.into()));
        }
        command.current_dir(folder);
    }
    let child = command.spawn().map_err(|error| (About::Program, error))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(pid.expect("the kernel's pids are positive and fit"))
}
