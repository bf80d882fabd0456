//! Launches a child from a spawn request: builds its program paths, arguments and environment.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::io::Errno;
use rustix::process::{Pid, Rlimit};

use super::descendants::MARK;
use super::frame::{About, Spawn};
use super::spawn::{SpawnPlan, start};
use crate::sandbox::ChildRuleset;

/// The search path for programs without `PATH`.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// The folders of a child, as open descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFolders<'a> {
    /// The working directory, whatever the request names.
    pub(super) start: Option<BorrowedFd<'a>>,
    /// The folder that the child may change.
    pub(super) own: Option<BorrowedFd<'a>>,
}

/// Starts a child with this descriptor limit and these descriptors for stdin, stdout and stderr, with this socket and in this
/// control group if there is one.
pub(super) fn launch(
    spawn: Spawn,
    mark: &str,
    descriptors: Rlimit,
    stdio: &[OwnedFd; 3],
    socket: Option<BorrowedFd<'_>>,
    cgroup: Option<BorrowedFd<'_>>,
    folders: OpenFolders<'_>,
) -> Result<Pid, (About, io::Error)> {
    let ruleset =
        spawn.confinement.as_ref().map(|confinement| ChildRuleset::new(confinement, folders.own)).transpose();
    let ruleset = ruleset.map_err(|error| (About::Sandbox, error))?;
    let Some(program) = spawn.argv.first() else { return Err((About::Program, Errno::INVAL.into())) };
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    variables.extend(
        spawn.keep.into_iter().filter_map(|name| Some((name.clone().into(), std::env::var_os(name)?))),
    );
    variables.extend(spawn.set.0.into_iter().map(|(name, value)| (name.into(), value.into())));
    variables.insert(MARK.into(), mark.into());

    let programs = texts(places(&program.0, variables.get(OsStr::new("PATH")).map(OsString::as_os_str)))?;
    let env = texts(variables.into_iter().map(|(name, value)| joined(name, b'=', value.as_bytes())))?;
    let argv = texts(spawn.argv.into_iter().map(|word| word.0))?;
    let folder =
        spawn.folder.map(CString::new).transpose().map_err(|_| (About::Folder, Errno::INVAL.into()))?;
    let stdio = stdio.each_ref().map(AsFd::as_fd);
    start(&SpawnPlan {
        programs: &programs,
        argv: &argv,
        env: &env,
        folder: folder.as_deref(),
        start: folders.start,
        descriptors,
        stdio,
        socket,
        cgroup,
        ruleset: ruleset.as_ref(),
    })
}

/// The candidate paths of a program, in the order in which they are tried. An empty `PATH` entry is the child's working directory.
fn places(program: &[u8], path: Option<&OsStr>) -> Vec<Vec<u8>> {
    if program.contains(&b'/') {
        return vec![program.into()];
    }
    let path = path.unwrap_or(OsStr::new(USUAL_PATH)).as_bytes();
    let place = |place: &[u8]| match place {
        [] => program.into(),
        place => joined(OsString::from_vec(place.to_vec()), b'/', program),
    };
    path.split(|byte| *byte == b':').map(place).collect()
}

fn joined(first: OsString, between: u8, last: &[u8]) -> Vec<u8> {
    let mut text = first.into_vec();
    text.push(between);
    text.extend_from_slice(last);
    text
}

/// Converts to C strings: none may contain NUL.
fn texts(texts: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<CString>, (About, io::Error)> {
    let texts = texts.into_iter().map(CString::new).collect::<Result<_, _>>();
    texts.map_err(|_| (About::Program, Errno::INVAL.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(program: &str, path: Option<&str>) -> Vec<String> {
        let places = places(program.as_bytes(), path.map(OsStr::new)).into_iter();
        places.map(|place| String::from_utf8(place).expect("text")).collect()
    }

    #[test]
    fn a_name_is_looked_for_in_each_place_and_a_path_is_itself() {
        assert_eq!(tried("tool", Some("/a:/b/c::")), ["/a/tool", "/b/c/tool", "tool", "tool"]);
        assert_eq!(tried("tool", None), ["/bin/tool", "/usr/bin/tool"]);
        assert_eq!(tried("./tool", Some("/a")), ["./tool"]);
        assert_eq!(tried("/x/tool", Some("/a")), ["/x/tool"]);
    }
}
