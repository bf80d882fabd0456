//! Rules about the store's file: its disk, file system and permissions, and whether it could be examined.

use ostler_store::{Error, ErrorKind};

use super::{Finding, about};
use crate::doctor::facts::{DiskSpace, DoctorFacts, SiteFacts, StoreLook};

/// With less free space than this, a write may fail at any time.
const FULL_BYTES: u64 = 8 << 20;
/// With less free space than this a warning is due, whatever the size of the disk.
const TIGHT_BYTES: u64 = 256 << 20;
/// With more free space than this, its share does not matter.
const AMPLE_BYTES: u64 = 5 << 30;
/// Less than one part in this many of a disk is little.
const TIGHT_SHARE: u64 = 20;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_READ: u32 = 0o004;
/// In such a folder, others may not remove files that are not theirs.
const STICKY: u32 = 0o1000;

pub(super) fn findings(place: &SiteFacts, facts: &DoctorFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(room(place));
    found.extend(network(place, &facts.look));
    found.extend(writable(place));
    found.extend(permissions(place, &facts.look));
    found.extend(locks(place));
    found.extend(look(place, &facts.look));
    found
}

fn room(place: &SiteFacts) -> Option<Finding> {
    let DiskSpace { free_bytes, total_bytes, free_files } = place.room?;
    let folder = place.folder.display();
    let advice = "Free some space: ostler db prune removes finished tasks. Nothing is lost: writes that fail are not \
                  acknowledged";
    if free_bytes < FULL_BYTES {
        let sentence = format!("The disk of {folder} is full: {} KiB are left", free_bytes >> 10);
        return Some(Finding::error("disk-full", sentence, advice));
    }
    if free_files == Some(0) {
        let sentence = format!("The disk of {folder} is full: it has space, but no free inodes");
        return Some(Finding::error(
            "disk-full",
            sentence,
            "Remove files that are not needed, or use another disk",
        ));
    }
    let small_share = free_bytes < total_bytes / TIGHT_SHARE && free_bytes < AMPLE_BYTES;
    (free_bytes < TIGHT_BYTES || small_share).then(|| {
        let (free_mib, total_mib) = (free_bytes >> 20, total_bytes >> 20);
        let sentence =
            format!("The disk of {folder} is nearly full: {free_mib} MiB of {total_mib} MiB are free");
        Finding::warning("disk-nearly-full", sentence, advice)
    })
}

/// The store refuses file systems that are known to be unsafe. Others depend on how they are mounted.
fn network(place: &SiteFacts, look: &StoreLook) -> Option<Finding> {
    let (name, folder) = (place.remote?, place.folder.display());
    let advice = "Put the store on a local disk: --store sqlite:PATH";
    Some(match look {
        StoreLook::Refused(_) => Finding::error(
            "network-file-system",
            format!(
                "{folder} is on a network file system ({name}), where locks are not safe: no node can start here"
            ),
            advice,
        ),
        StoreLook::Unnamed
        | StoreLook::Absent
        | StoreLook::Silent(_)
        | StoreLook::Outdated { .. }
        | StoreLook::Seen(_) => Finding::warning(
            "network-file-system",
            format!(
                "{folder} is on a file system ({name}) where locks may not be safe: two nodes could run the same task"
            ),
            advice,
        ),
    })
}

fn writable(place: &SiteFacts) -> Option<Finding> {
    let (path, why) = place.not_writable.first()?;
    let sentence = format!("{} is not writable for this user ({why})", path.display());
    Some(Finding::error("store-not-writable", sentence, WRITE_ADVICE))
}

const WRITE_ADVICE: &str = "The store's file and its folder must be writable: check their owner and mode (ls -la), and whether \
                            the disk is mounted read-only";

/// A file that is not a store has no secrets.
fn permissions(place: &SiteFacts, look: &StoreLook) -> Vec<Finding> {
    match look {
        StoreLook::Unnamed | StoreLook::Absent | StoreLook::Refused(_) => return Vec::new(),
        StoreLook::Silent(_) | StoreLook::Outdated { .. } | StoreLook::Seen(_) => {}
    }
    let (path, folder) = (place.path.display(), place.folder.display());
    let mut found = Vec::new();
    let mode = place.file_mode.unwrap_or(0);
    let advice = format!("Keep others out: chmod 600 {path}");
    if mode & OTHERS_WRITE != 0 {
        let sentence = format!("Every user of this machine may write {path}, and change or remove any task");
        found.push(Finding::error("store-open-to-others", sentence, advice));
    } else if mode & OTHERS_READ != 0 {
        let sentence = format!("Every user of this machine may read {path}, and every payload in it");
        found.push(Finding::warning("store-open-to-others", sentence, advice));
    }
    let folder_mode = place.folder_mode.unwrap_or(0);
    if folder_mode & OTHERS_WRITE != 0 && folder_mode & STICKY == 0 {
        let sentence =
            format!("Every user of this machine may create files in {folder}, and replace the store");
        found.push(Finding::warning(
            "folder-open-to-others",
            sentence,
            format!("Keep others out: chmod o-w {folder}"),
        ));
    }
    found
}

/// This user's nodes cannot notice at once that a node behind such a lock has died.
fn locks(place: &SiteFacts) -> Option<Finding> {
    let sentence = place.locked_out.clone()?;
    let advice =
        "Run all nodes of a store as one user. The lock file of a node that no longer runs can be removed";
    Some(Finding::warning("lock-not-readable", sentence, advice))
}

fn look(place: &SiteFacts, look: &StoreLook) -> Option<Finding> {
    let path = place.path.display();
    match look {
        StoreLook::Absent => Some(Finding::warning(
            "store-missing",
            format!("There is no store at {path}"),
            "Is it the right path? To use another one: --store. A store is created when a node starts or a task is submitted",
        )),
        StoreLook::Refused(why) => refused(place, why),
        StoreLook::Silent(waited) => Some(Finding::error(
            "store-busy",
            format!("The store {path} did not answer within {}: another process holds it", about(*waited)),
            "Look for a suspended or hanging process (ostler nodes lists them), or for a database \
             tool that has the file open",
        )),
        StoreLook::Outdated { found, newest } => Some(Finding::warning(
            "store-outdated",
            format!(
                "{path} was created by an older version (schema {found}, this version has {newest}), and was not examined"
            ),
            "Migrate it: ostler db migrate",
        )),
        StoreLook::Unnamed | StoreLook::Seen(_) => None,
    }
}

/// Why it could not be opened, unless another finding explains it.
fn refused(place: &SiteFacts, why: &Error) -> Option<Finding> {
    let sentence = || why.to_string();
    match why.kind() {
        ErrorKind::ReadOnly | ErrorKind::Unavailable if !place.not_writable.is_empty() => None,
        ErrorKind::ReadOnly => Some(Finding::error("store-not-writable", sentence(), WRITE_ADVICE)),
        ErrorKind::Invalid if place.remote.is_some() => None,
        ErrorKind::Invalid => Some(Finding::error("store-unusable", sentence(), "Use another file: --store")),
        ErrorKind::Full => Some(Finding::error(
            "disk-full",
            sentence(),
            "Free some space on the disk; the store then recovers by itself",
        )),
        ErrorKind::Busy => Some(Finding::error(
            "store-busy",
            sentence(),
            "Look for a database tool that has the file open, and close it",
        )),
        ErrorKind::Foreign => Some(Finding::error(
            "store-foreign",
            sentence(),
            "Use the right file: --store; this one was not changed",
        )),
        ErrorKind::TooNew => Some(Finding::error(
            "store-too-new",
            sentence(),
            "Use the newer version that created it; a store cannot be downgraded",
        )),
        ErrorKind::Damaged | ErrorKind::BadRow | ErrorKind::Replaced => Some(Finding::error(
            "store-damaged",
            sentence(),
            "Stop the nodes and restore a backup: ostler db restore BACKUP (it keeps the current file). For details: ostler db check",
        )),
        ErrorKind::Unavailable => Some(Finding::error(
            "store-unavailable",
            sentence(),
            "Check that the path is right and that its folder can be entered",
        )),
        ErrorKind::Moving => Some(Finding::error(
            "store-moving",
            sentence(),
            "Wait until the move has finished; if it was interrupted, run ostler db move again, or abandon it with --abandon",
        )),
        ErrorKind::Moved => Some(Finding::error(
            "store-moved",
            sentence(),
            "Use the new store: --store, OSTLER_STORE or ostler.toml",
        )),
        ErrorKind::Closed | ErrorKind::Internal => Some(Finding::info(
            "doctor-failed",
            sentence(),
            "This is a bug in Ostler: please report it with this message",
        )),
    }
}
