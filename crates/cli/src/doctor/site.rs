//! The site of the store's file: its disk, file system and permissions.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ostler_ops::doctor::facts::{DiskSpace, SiteFacts};
use ostler_sqlite::integrity;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::store_location::unopenable_sentence;

/// Network and FUSE file systems, by their magic numbers.
const REMOTE: [(u64, &str); 9] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
];

/// The name of a file system that SQLite should not be on.
pub(crate) fn remote_name(number: u64) -> Option<&'static str> {
    REMOTE.iter().find(|(known, _)| *known == number & 0xffff_ffff).map(|(_, name)| *name)
}

/// Examines the site. Facts that cannot be determined are left out.
pub(crate) fn look(path: &Path) -> SiteFacts {
    // A symbolic link is resolved.
    let path = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let mode = |path: &Path| std::fs::metadata(path).ok().map(|found| found.permissions().mode() & 0o7777);
    let (file_mode, folder_mode) = (mode(&path), mode(&folder));
    let not_writable =
        [&path, &folder].into_iter().filter_map(|at| Some((at.clone(), why_not_writable(at)?)));
    let not_writable = not_writable.collect();
    let system = rustix::fs::statfs(&folder).ok();
    let remote = system.and_then(|system| remote_name(system.f_type as u64));
    let room = rustix::fs::statvfs(&folder).ok().map(|disk| DiskSpace {
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_files: (disk.f_files > 0).then_some(disk.f_favail),
    });
    // A folder that cannot be read makes opening the store fail, which is reported.
    let locked_out = unopenable_sentence(&integrity::unopenable_locks(&path).unwrap_or_default());
    SiteFacts { path, folder, file_mode, folder_mode, not_writable, locked_out, room, remote }
}

/// Why this is not writable; `None` if it is, or does not exist, or cannot be determined.
fn why_not_writable(path: &Path) -> Option<String> {
    let asked = rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    let refusals = [Errno::ACCESS, Errno::ROFS, Errno::PERM];
    let error = asked.err().filter(|error| refusals.contains(error))?;
    Some(std::io::Error::from(error).kind().to_string())
}
