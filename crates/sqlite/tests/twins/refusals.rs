//! Refusals: a file that is not a store, or not one that this program may write, is refused with its own error kind and a
//! message that names the path. The file and everything next to it are left as they are, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ostler_sqlite::integrity;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Enqueued, Fenced};
use ostler_store::{Error, ErrorKind, Store, SystemClock};
use ostler_testkit::{Ids, TempStore, Twin, scratch};
use rusqlite::Connection;
use rustix::mount::{MountFlags, mount, mount_remount};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const APPLICATION_ID: i64 = 0x4f53_544c;

fn open(path: &Path) -> Result<Sqlite, Error> {
    Sqlite::open(path, Arc::new(SystemClock), Options::default())
}

/// A file's fingerprint, which changes if the file is touched.
#[derive(PartialEq, Eq)]
struct Print {
    bytes: Option<Vec<u8>>,
    mode: u32,
    modified: (i64, i64),
    inode: u64,
}

/// The fingerprints of all files in a folder. No store may be open in it: closing a file would free the store's locks.
fn prints(folder: &Path) -> BTreeMap<PathBuf, Print> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let print = |entry: std::fs::DirEntry| {
        let path = entry.path();
        let file = std::fs::symlink_metadata(&path).expect("it is there");
        let bytes = file.is_file().then(|| std::fs::read(&path).expect("it can be read"));
        let modified = (file.mtime(), file.mtime_nsec());
        (path, Print { bytes, mode: file.mode(), modified, inode: file.ino() })
    };
    entries.map(|entry| print(entry.expect("the folder can be read"))).collect()
}

/// Asserts that opening is refused with this kind, that the message names the path, and that nothing is touched.
fn refused(path: &Path, kind: ErrorKind, what: &str) -> String {
    let folder = path.parent().expect("it is in a folder");
    let before = prints(folder);
    let sentence = refused_somehow(path, kind, what);
    let after = prints(folder);
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let touched: Vec<_> = paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(touched.is_empty(), "{what}: was refused, but these were touched or made: {touched:?}");
    sentence
}

fn refused_somehow(path: &Path, kind: ErrorKind, what: &str) -> String {
    let error = open(path).err().unwrap_or_else(|| panic!("{what}: was opened, and should be refused"));
    assert_eq!(error.kind(), kind, "{what}: {error}");
    let sentence = error.to_string();
    assert!(sentence.contains(&path.display().to_string()), "{what}: \"{sentence}\" does not name the path");
    sentence
}

/// Creates a store with one task, and closes it.
async fn closed_store(path: &Path) {
    let store = open(path).expect("a new store");
    let tasks = Ids::new(1).new_tasks(100, "mail", "send");
    store.enqueue(tasks).await.expect("enqueue answers");
    drop(store);
}

/// Asserts that the task is still there.
async fn works(path: &Path) {
    let store = open(path).unwrap_or_else(|error| panic!("the store opens: {error}"));
    let task = Ids::new(1).new_task("mail", "send");
    let id = task.id;
    assert_eq!(store.enqueue(vec![task]).await, Ok(vec![Enqueued::Existing(id)]));
}

// ---- foreign ------------------------------------------------------------------------------------------

#[test]
fn a_text_and_noise_are_foreign() {
    let noise = Ids::new(7);
    let bytes = |count: usize| (0..count).map(|_| noise.below(256) as u8).collect();
    let files: [(&str, Vec<u8>); 5] = [
        ("a text", b"Dear diary, today I was nearly a database.\n".repeat(400)),
        ("one byte", b"x".to_vec()),
        ("a page of noise", bytes(4_096)),
        ("noise that is no whole page", bytes(100_001)),
        ("a file of zeros", vec![0; 8_192]),
    ];
    for (what, bytes) in files {
        let folder = scratch();
        let path = folder.path().join("ostler.db");
        std::fs::write(&path, bytes).expect("the file can be written");
        refused(&path, ErrorKind::Foreign, what);
    }
}

#[test]
fn another_programs_database_is_foreign_whatever_its_journal() {
    for (what, journal) in [("with a rollback journal", "delete"), ("with a write-ahead log", "wal")] {
        for application in [0, APPLICATION_ID + 1] {
            let folder = scratch();
            let path = folder.path().join("music.db");
            let conn = Connection::open(&path).expect("a database");
            conn.pragma_update_and_check(None, "journal_mode", journal, |_| Ok(())).expect("its journal");
            conn.execute_batch("CREATE TABLE song(title); INSERT INTO song VALUES('Lo, how a rose')")
                .expect("a song");
            conn.pragma_update(None, "application_id", application).expect("its mark");
            drop(conn);
            refused(&path, ErrorKind::Foreign, what);
        }
    }
}

#[test]
fn another_programs_open_database_is_foreign_and_its_log_stays() {
    let folder = scratch();
    let path = folder.path().join("music.db");
    let conn = Connection::open(&path).expect("a database");
    conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).expect("its journal");
    conn.execute_batch("CREATE TABLE song(title); INSERT INTO song VALUES('Lo, how a rose')")
        .expect("a song");
    // Copied while it is open, as a crash would leave it: with a log that holds everything.
    let crashed = scratch();
    for name in ["music.db", "music.db-wal"] {
        std::fs::copy(folder.path().join(name), crashed.path().join(name)).expect("a copy");
    }
    refused(&crashed.path().join("music.db"), ErrorKind::Foreign, "a database with a log");
}

// ---- newer, damaged, cut short ------------------------------------------------------------------------

#[tokio::test]
async fn a_newer_schema_is_too_new_also_when_only_the_log_says_so() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    closed_store(&path).await;
    let conn = Connection::open(&path).expect("the file opens");
    let known = integrity::versions(&path).expect("it is a store").newest;
    conn.pragma_update(None, "user_version", known + 1).expect("its version");
    let crashed = scratch();
    for name in ["ostler.db", "ostler.db-wal"] {
        std::fs::copy(folder.path().join(name), crashed.path().join(name)).expect("a copy");
    }
    drop(conn);
    let sentence = refused(&path, ErrorKind::TooNew, "a newer store");
    assert!(sentence.contains("upgrade"), "{sentence}");

    let path = crashed.path().join("ostler.db");
    let log = crashed.path().join("ostler.db-wal");
    let before = (std::fs::read(&path).expect("its bytes"), std::fs::read(&log).expect("its log"));
    refused_somehow(&path, ErrorKind::TooNew, "a newer store with a log");
    assert_eq!((std::fs::read(&path).expect("its bytes"), std::fs::read(&log).expect("its log")), before);
}

#[tokio::test]
async fn a_file_that_is_cut_short_is_damaged() {
    let folder = scratch();
    let whole = folder.path().join("whole.db");
    closed_store(&whole).await;
    let bytes = std::fs::read(&whole).expect("its bytes");
    let pages = bytes.len() / 4_096;
    assert!(pages > 8, "there is something to cut");
    let mut lengths: Vec<usize> = (1..pages).map(|page| page * 4_096).collect();
    lengths.extend([512, 1_000, 4_095, 4_097, bytes.len() / 2 + 7, bytes.len() - 1]);
    for length in lengths {
        let folder = scratch();
        let path = folder.path().join("ostler.db");
        std::fs::write(&path, &bytes[..length]).expect("the file can be written");
        refused(&path, ErrorKind::Damaged, &format!("{length} of {} bytes", bytes.len()));
    }
    // A file shorter than a header cannot be recognised.
    for length in [1, 15, 99] {
        let folder = scratch();
        let path = folder.path().join("ostler.db");
        std::fs::write(&path, &bytes[..length]).expect("the file can be written");
        let error = open(&path).err().expect("it is refused");
        assert!(matches!(error.kind(), ErrorKind::Foreign | ErrorKind::Damaged), "{length} bytes: {error}");
        assert_eq!(std::fs::read(&path).expect("its bytes"), bytes[..length]);
    }
}

#[test]
fn a_log_without_its_file_is_damaged() {
    for (what, file) in [("no file", None), ("an empty file", Some(b""))] {
        let folder = scratch();
        let path = folder.path().join("ostler.db");
        std::fs::write(folder.path().join("ostler.db-wal"), [7; 4_152]).expect("a log");
        if let Some(bytes) = file {
            std::fs::write(&path, bytes).expect("a file");
        }
        refused(&path, ErrorKind::Damaged, what);
    }
}

// ---- not a file, or not writable ----------------------------------------------------------------------

#[test]
fn a_folder_and_a_pipe_are_no_stores() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    std::fs::create_dir(&path).expect("a folder");
    refused(&path, ErrorKind::Invalid, "a folder");

    let folder = scratch();
    let path = folder.path().join("ostler.db");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .expect("a pipe");
    refused(&path, ErrorKind::Invalid, "a pipe");
    assert!(std::fs::metadata(&path).expect("it is there").file_type().is_fifo());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = scratch();
    let path = folder.path().join("missing").join("ostler.db");
    let error = open(&path).err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(!folder.path().join("missing").exists(), "no folder was made");
}

#[tokio::test]
async fn a_file_that_is_marked_read_only_is_refused_for_everybody() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    closed_store(&path).await;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).expect("its mode");
    refused(&path, ErrorKind::ReadOnly, "a read-only file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    works(&path).await;
}

#[test]
fn a_file_system_that_may_not_be_written_is_refused() {
    let folder = scratch();
    let mut twin =
        Twin::start_apart("refusals::read_only_file_system", &[(FOLDER, folder.path().as_os_str())]);
    twin.expect("refused");
    twin.succeed();
}

#[tokio::test]
#[ignore = "the other process of the test above"]
async fn read_only_file_system() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    mount("tmpfs", folder, "tmpfs", MountFlags::empty(), None).expect("a file system of one's own");
    let path = folder.join("ostler.db");
    closed_store(&path).await;
    mount_remount(folder, MountFlags::RDONLY, "").expect("it can be made read-only");
    refused_somehow(&path, ErrorKind::ReadOnly, "a store that may not be written");
    refused_somehow(&folder.join("new.db"), ErrorKind::ReadOnly, "a new store that may not be written");
    mount_remount(folder, MountFlags::empty(), "").expect("it can be made writable");
    works(&path).await;
    ostler_testkit::Voice::say("refused");
}

// ---- accepted -----------------------------------------------------------------------------------------

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    std::fs::write(&path, b"").expect("the file can be written");
    drop(open(&path).expect("the store opens"));
    let conn = Connection::open(&path).expect("the file opens");
    let mark: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0)).expect("its mark");
    assert_eq!(mark, APPLICATION_ID);
}

#[tokio::test]
async fn a_new_store_is_for_its_owner_only() {
    let store = TempStore::real();
    store.store().enqueue(Ids::new(1).new_tasks(1, "mail", "send")).await.expect("enqueue answers");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!(mode(&store.path()), 0o600, "the file");
    assert_eq!(mode(&store.folder().join("ostler.db-wal")), 0o600, "its log");
    assert_eq!(mode(&store.folder().join("ostler.db-shm")), 0o600, "its index");
    assert_eq!(mode(&store.folder().join("ostler.db.nodes")), 0o700, "the folder of locks");
}

#[tokio::test]
async fn a_link_to_a_store_is_that_store() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    closed_store(&path).await;
    let link = folder.path().join("link.db");
    symlink(&path, &link).expect("a link");
    works(&link).await;

    // Both names refer to one store: the same locks, the same nodes.
    let (by_name, by_link) = (open(&path).expect("by its name"), open(&link).expect("by the link"));
    let ids = Ids::new(3);
    let node = ids.new_session("here", Duration::from_secs(60));
    assert_eq!(by_name.join(node.clone()).await, Ok(Fenced::Recorded));
    let expired = by_link.expire(10).await.expect("expire answers");
    assert_eq!(expired.sessions, [], "the node is alive, by whatever name one asks");
    let mut wakeups = by_link.wakeups();
    wakeups.arm();
    by_name.enqueue(ids.new_tasks(1, "mail", "send")).await.expect("enqueue answers");
    tokio::time::timeout(ostler_testkit::MAX_WAIT, wakeups.wait()).await.expect("the wake-up arrives");
}

/// A crash while a store is created leaves the first pages of the file, and the journal that rolls them back.
#[tokio::test]
async fn a_store_that_was_half_made_is_made_anew() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    closed_store(&path).await;
    let mut pages = std::fs::read(&path).expect("its bytes");
    pages.truncate(3 * 4_096);
    // Not in WAL mode yet.
    pages[18..20].copy_from_slice(&[1, 1]);
    std::fs::write(&path, pages).expect("the file can be written");
    std::fs::write(folder.path().join("ostler.db-journal"), journal_of_an_empty_file()).expect("a journal");
    let store = open(&path).unwrap_or_else(|error| panic!("the store opens: {error}"));
    let task = Ids::new(1).new_task("mail", "send");
    let id = task.id;
    assert_eq!(store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]), "it begins empty");
}

/// A rollback journal which says that the file had no pages
/// (<https://www.sqlite.org/fileformat2.html#the_rollback_journal>).
fn journal_of_an_empty_file() -> Vec<u8> {
    let mut header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7".to_vec();
    for number in [0u32, 0x0517, 0, 512, 4_096] {
        header.extend(number.to_be_bytes());
    }
    header.resize(512, 0);
    header
}

#[test]
fn a_link_that_leads_nowhere_is_named() {
    let folder = scratch();
    let link = folder.path().join("ostler.db");
    symlink(folder.path().join("gone.db"), &link).expect("a link");
    refused(&link, ErrorKind::Unavailable, "a link that leads nowhere");
}

// ---- the lock folder ----------------------------------------------------------------------------------

#[test]
fn a_folder_of_locks_that_others_made_or_may_write_is_refused() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    let locks = folder.path().join("ostler.db.nodes");
    std::fs::create_dir(&locks).expect("a folder");
    for mode in [0o777, 0o1777, 0o703] {
        std::fs::set_permissions(&locks, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
        let sentence = refused(&path, ErrorKind::Invalid, "everybody may write it");
        assert!(sentence.contains("chmod o-w"), "{sentence}");
    }
    std::fs::set_permissions(&locks, std::fs::Permissions::from_mode(0o700)).expect("its mode is set");
    // Only root can change the owner of a folder.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&locks, Some(65_533), None).expect("root gives it away");
        let sentence = refused(&path, ErrorKind::Invalid, "a stranger made it");
        assert!(sentence.contains("belongs to another user (uid 65533)"), "{sentence}");
        // The owner of the store is trusted: root may work on a user's store.
        std::fs::write(&path, "").expect("an empty file");
        std::os::unix::fs::chown(&path, Some(65_533), None).expect("root gives it away");
    }
    drop(open(&path).expect("it is taken now"));
}

#[test]
fn a_link_in_place_of_a_lock_or_of_their_folder_is_refused_and_not_followed() {
    for name in ["main.lock", "next.lock"] {
        let folder = scratch();
        let path = folder.path().join("ostler.db");
        let locks = folder.path().join("ostler.db.nodes");
        std::fs::create_dir(&locks).expect("a folder");
        let target = folder.path().join("target");
        symlink(&target, locks.join(name)).expect("a link");
        let error = open(&path).err().unwrap_or_else(|| panic!("{name}: a link is refused"));
        assert!(error.to_string().contains("is a link"), "{name}: {error}");
        assert!(!target.exists(), "{name}: nothing was made where it leads");
        assert!(!path.exists(), "{name}: no store was made");
    }
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    symlink(&elsewhere, folder.path().join("ostler.db.nodes")).expect("a link");
    refused(&path, ErrorKind::Invalid, "the folder is a link");
}
