//! Symbolic links: opens folders and resolves paths without following links that a sandboxed child may have made.
//!
//! The node may do more than such a child. So a link that the child made must not decide which folder the node opens, passes on
//! or lists to the next child. Links elsewhere are the administrator's, and are followed.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::sandbox::real;

/// Links in one path, at most; the same limit as the kernel's.
const MAX_LINKS: usize = 40;
/// A location in the file system, opened for neither reading nor writing.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const FOLDER: OFlags = PLACE.union(OFlags::DIRECTORY);

/// Why a path could not be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unresolved {
    /// A link that a child may have made.
    #[error(
        "\"{0}\" is a symbolic link, in a folder that children in a sandbox may change: it is not followed"
    )]
    Link(String),
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Opens a folder, following links.
pub(crate) fn folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, FOLDER, Mode::empty())?)
}

/// Opens a folder by its name in another one. A link is refused.
pub(crate) fn folder_in(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Opens a folder whose path has no link in it.
pub(crate) fn folder_without_links(path: &Path) -> io::Result<OwnedFd> {
    without_links(path, FOLDER)
}

/// Opens a file or a folder whose path has no link in it.
pub(crate) fn place_without_links(path: &Path) -> io::Result<OwnedFd> {
    without_links(path, PLACE)
}

fn without_links(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(CWD, path, flags, Mode::empty(), no_links)?)
}

/// The path of an open file or folder, without links.
pub(crate) fn path_of(opened: impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd()))
}

/// Resolves a path to one without links. A link in or below a guarded path is an error.
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

/// Pushes the components of a path, the first one last.
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
        std::fs::create_dir_all(at("pool/task/deep")).expect("a folder");
        std::fs::create_dir(at("secret")).expect("a folder");
        for (target, link) in [("pool", "alias"), ("../pool/task", "secret/up"), ("secret", "elsewhere")] {
            symlink(target, at(link)).expect("a link");
        }
        symlink(at("secret"), at("pool/swapped")).expect("a link");
        symlink("loop", at("loop")).expect("a link");
        symlink("alias/swapped", at("around")).expect("a link");
        let guarded = [at("alias")];
        let resolved = |name: &str| resolve(&at(name), &guarded);
        for (name, leads) in [
            ("pool/task/deep", "pool/task/deep"),
            ("alias/task", "pool/task"),
            ("secret/up/deep", "pool/task/deep"),
            ("elsewhere/up/../task", "pool/task"),
        ] {
            assert_eq!(resolved(name).expect("it leads somewhere"), at(leads), "{name}");
        }
        for name in ["pool/swapped", "alias/swapped", "around", "secret/up/../swapped"] {
            let refused = resolved(name).expect_err("a child may have made it");
            assert!(matches!(refused, Unresolved::Link(_)), "{name}: {refused}");
        }
        assert_eq!(resolve(&at("pool/swapped"), &[]).expect("it is allowed"), at("secret"));
        for name in ["loop", "no/such"] {
            assert!(matches!(resolved(name), Err(Unresolved::System(_))), "{name}");
        }
        assert!(folder_without_links(&at("alias/task")).is_err());
        let open = folder_without_links(&at("pool/task")).expect("it has no links");
        assert_eq!(path_of(&open).expect("it has a path"), at("pool/task"));
        assert!(folder_in(folder(&at("alias")).expect("a folder"), "swapped").is_err());
    }
}
