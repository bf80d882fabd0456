//! Opens folders and resolves paths without being led astray by symbolic links that a child in a sandbox may have made.
//!
//! The node may do more than such a child. So a link that the child made must not decide which folder the node opens, hands on
//! or lists to the next child. Links elsewhere belong to whoever set the machine up, and are followed.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::sandbox::real;

/// Links that one path may have in it, as for the kernel.
const MAX_LINKS: usize = 40;
/// A place in the file system: it can be named, and neither read nor written.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const FOLDER: OFlags = PLACE.union(OFlags::DIRECTORY);

/// A path resolved, up to a link that must not be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unresolved {
    /// A child may have made this link.
    #[error(
        "\"{0}\" is a symbolic link, in a folder that children in a sandbox may change: it is not followed"
    )]
    Link(String),
    /// The system says no.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A folder, wherever its path leads.
pub(crate) fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, FOLDER, Mode::empty())?)
}

/// A folder by one name in another one. A link is none.
pub(crate) fn folder_in(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?)
}

/// A folder whose path has no link in it.
pub(crate) fn folder_without_links(path: &Path) -> io::Result<OwnedFd> {
    without_links(path, FOLDER)
}

/// A file or a folder whose path has no link in it.
pub(crate) fn place_without_links(path: &Path) -> io::Result<OwnedFd> {
    without_links(path, PLACE)
}

fn without_links(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(CWD, path, flags, Mode::empty(), no_links)?)
}

/// The path of something that is open, without links.
pub(crate) fn path_of(opened: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// The path without links. One in these places, or below, is not followed.
pub(crate) fn resolve(path: &Path, guarded: &[PathBuf]) -> Result<PathBuf, Unresolved> {
    let guarded: Vec<PathBuf> = guarded.iter().map(|place| real(place)).collect();
    let mut rest = Vec::new();
    push_parts(&mut rest, &std::path::absolute(path)?);
    let (mut resolved, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = rest.pop() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let next = resolved.join(&part);
        if !std::fs::symlink_metadata(&next)?.is_symlink() {
            resolved = next;
            continue;
        }
        links += 1;
        if guarded.iter().any(|place| resolved.starts_with(place)) {
            return Err(Unresolved::Link(next.display().to_string()));
        }
        if links > MAX_LINKS {
            return Err(io::Error::from(rustix::io::Errno::LOOP).into());
        }
        let target = std::fs::read_link(&next)?;
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        push_parts(&mut rest, &target);
    }
    Ok(resolved)
}

/// The parts of a path, the first one last.
fn push_parts(rest: &mut Vec<OsString>, path: &Path) {
    let part = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    let parts: Vec<OsString> = path.components().filter_map(part).collect();
    rest.extend(parts.into_iter().rev());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_unless_a_child_may_have_made_them() {
        let scratch = tempfile::tempdir().expect("a folder");
        let top = scratch.path().canonicalize().expect("it is there");
        let at = |name: &str| top.join(name);
        std::fs::create_dir_all(at("work/task/deep")).expect("a folder");
        std::fs::create_dir(at("secret")).expect("a folder");
        for (target, link) in [("work", "alias"), ("../work/task", "secret/up"), ("secret", "elsewhere")] {
            symlink(target, at(link)).expect("a link");
        }
        symlink(at("secret"), at("work/swapped")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        symlink("alias/swapped", at("around")).expect("a link");
        let guarded = [at("alias")];
        let resolved = |name: &str| resolve(&at(name), &guarded);
        for (name, leads) in [
            ("work/task/deep", "work/task/deep"),
            ("alias/task", "work/task"),
            ("secret/up/deep", "work/task/deep"),
            ("elsewhere/up/../task", "work/task"),
        ] {
            assert_eq!(resolved(name).expect("it leads somewhere"), at(leads), "{name}");
        }
        for name in ["work/swapped", "alias/swapped", "around", "secret/up/../swapped"] {
            let refused = resolved(name).expect_err("a child may have made it");
            assert!(matches!(refused, Unresolved::Link(_)), "{name}: {refused}");
        }
        assert_eq!(resolve(&at("work/swapped"), &[]).expect("nobody minds"), at("secret"));
        for name in ["loop", "no/such"] {
            assert!(matches!(resolved(name), Err(Unresolved::System(_))), "{name}");
        }
        assert!(folder_without_links(&at("alias/task")).is_err());
        let open = folder_without_links(&at("work/task")).expect("it has no links");
        assert_eq!(path_of(&open).expect("it has a path"), at("work/task"));
        assert!(folder_in(folder(&at("alias")).expect("a folder"), "swapped").is_err());
    }
}
