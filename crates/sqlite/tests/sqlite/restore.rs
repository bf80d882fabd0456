//! Restore: a log belongs to one file. Next to any other file it is detected before a checkpoint, and a backup is put in
//! place as a whole.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ostler_core::TaskId;
use ostler_sqlite::integrity::{self, Restored};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::views::Filter;
use ostler_store::{Error, ErrorKind, Store, SystemClock};
use ostler_testkit::{Ids, scratch};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Result<Sqlite, Error> {
    Sqlite::open(path, Arc::new(SystemClock), Options::default())
}

fn opened(path: &Path) -> Sqlite {
    open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

async fn add(store: &Sqlite, ids: &Ids, count: usize) -> BTreeSet<TaskId> {
    let tasks = ids.new_tasks(count, "mail", "send");
    let made = tasks.iter().map(|task| task.id).collect();
    store.enqueue(tasks).await.expect("enqueue answers");
    made
}

async fn tasks(store: &Sqlite) -> BTreeSet<TaskId> {
    let page = store.list(Filter::default(), None, 1_000).await.expect("list answers");
    page.tasks.iter().map(|task| task.id).collect()
}

/// Copies the file and its log, as a crash would leave them, into their own folder.
fn crash(path: &Path) -> (TempDir, PathBuf) {
    let folder = scratch();
    for end in ["", "-wal"] {
        let from = beside(path, end);
        if from.exists() {
            std::fs::copy(from, folder.path().join(format!("ostler.db{end}"))).expect("a copy");
        }
    }
    let path = folder.path().join("ostler.db");
    (folder, path)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("its bytes")
}

/// Asserts that opening and inspecting the store report the problem and change nothing.
fn refused(path: &Path, what: &str) {
    let log = beside(path, "-wal");
    let before = (bytes(path), bytes(&log));
    let looks = [open(path).err(), integrity::check(path).err(), integrity::versions(path).err()];
    for error in looks {
        let error = error.unwrap_or_else(|| panic!("{what}: was accepted"));
        assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
        let sentence = error.to_string();
        assert!(
            sentence.contains("ostler db restore") && sentence.contains("ostler.db-wal"),
            "{what}: {sentence}"
        );
    }
    assert_eq!((bytes(path), bytes(&log)), before, "{what}: it is as it was");
}

/// The schema version.
const VERSION: i64 = 10;

#[tokio::test]
async fn a_log_of_another_file_is_noticed_and_not_folded_in() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    let (path, ids) = (at("ostler.db"), Ids::new(1));
    drop(opened(&path));
    std::fs::copy(&path, at("before.db")).expect("a copy of the closed file");
    // Another log, so that the copy is older than the file that the last log belongs to.
    add(&opened(&path), &ids, 5).await;
    let store = opened(&path);
    let early = add(&store, &ids, 50).await;
    integrity::backup(&path, at("backup.db")).expect("a backup");
    Connection::open(&path)
        .and_then(|conn| conn.execute("VACUUM INTO ?1", [at("vacuum.db").to_str()]))
        .expect("a copy");
    add(&opened(&at("foreign.db")), &Ids::new(2), 60).await;
    let late = add(&store, &ids, 50).await;

    let (_folder, crashed) = crash(&path);
    let all = tasks(&opened(&crashed)).await;
    assert!(
        all.len() == 105 && all.is_superset(&early) && all.is_superset(&late),
        "its own log is folded in"
    );
    for what in ["backup.db", "vacuum.db", "foreign.db", "before.db"] {
        let (_folder, crashed) = crash(&path);
        std::fs::copy(at(what), &crashed).expect("it is copied over the file");
        refused(&crashed, what);
        // Moved, and so with another inode.
        std::fs::remove_file(&crashed).expect("the file goes");
        std::fs::copy(at(what), &crashed).expect("another one comes");
        refused(&crashed, what);
        std::fs::rename(beside(&crashed, "-wal"), beside(&crashed, "-away")).expect("the log is moved away");
        drop(opened(&crashed));
    }
}

#[tokio::test]
async fn every_crash_leaves_a_log_that_belongs_to_its_file() {
    let folder = scratch();
    let (path, ids) = (folder.path().join("ostler.db"), Ids::new(1));
    let mut all = BTreeSet::new();
    for round in 0..6 {
        let store = opened(&path);
        for _ in 0..3 {
            all.extend(add(&store, &ids, 3).await);
            let (_folder, crashed) = crash(&path);
            assert_eq!(tasks(&opened(&crashed)).await, all, "round {round}");
            // Once more, since the copy was checkpointed and has started its own log.
            let again = opened(&crashed);
            add(&again, &Ids::new(100 + round), 1).await;
            let (_folder, crashed) = crash(&crashed);
            assert_eq!(tasks(&opened(&crashed)).await.len(), all.len() + 1);
        }
        // Checkpoints the whole log while the store stays open: the next write starts a new log.
        let conn = Connection::open(&path).expect("the file opens");
        conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).expect("the log is folded");
        all.extend(add(&store, &ids, 3).await);
        let (_folder, crashed) = crash(&path);
        assert_eq!(tasks(&opened(&crashed)).await, all, "round {round}, in a new log");
    }
}

#[tokio::test]
async fn a_store_of_an_older_program_goes_on_and_is_guarded_from_then_on() {
    let folder = scratch();
    let (path, ids) = (folder.path().join("ostler.db"), Ids::new(1));
    let mut all = add(&opened(&path), &ids, 3).await;
    // As an older program left it: a version, and no epoch.
    let conn = Connection::open(&path).expect("the file opens");
    conn.pragma_update(None, "user_version", VERSION).expect("its version");
    drop(conn);
    let old = folder.path().join("old.db");
    std::fs::copy(&path, &old).expect("a copy");
    assert_eq!(integrity::versions(&path).expect("it is a store").found, Some(VERSION));
    for _ in 0..3 {
        let store = opened(&path);
        all.extend(add(&store, &ids, 2).await);
        let (_folder, crashed) = crash(&path);
        assert_eq!(tasks(&opened(&crashed)).await, all);
        assert_eq!(integrity::versions(&path).expect("it is a store").found, Some(VERSION));
    }
    let store = opened(&path);
    add(&store, &ids, 2).await;
    let (_folder, crashed) = crash(&path);
    std::fs::copy(&old, &crashed).expect("it is copied over the file");
    refused(&crashed, "a copy that an older program made");
}

#[tokio::test]
async fn a_restored_store_has_what_the_backup_has_and_the_former_one_is_kept() {
    let folder = scratch();
    let (path, backup) = (folder.path().join("ostler.db"), folder.path().join("backup.db"));
    let ids = Ids::new(1);
    let store = opened(&path);
    let early = add(&store, &ids, 20).await;
    integrity::backup(&path, &backup).expect("a backup");
    let late = add(&store, &ids, 20).await;
    let kept = bytes(&backup);
    let (_folder, crashed) = crash(&path);
    for (former, holds) in [(".former", 40), (".former-2", 20)] {
        let Restored { version, bytes: size, former: named } =
            integrity::restore(&backup, &crashed).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((version, named), (VERSION, Some(beside(&crashed, former))));
        assert_eq!(size, std::fs::metadata(&crashed).expect("it is there").len());
        assert_eq!(integrity::check(&crashed).expect("it can be read").problems, Vec::<String>::new());
        assert_eq!(tasks(&opened(&crashed)).await, early, "exactly what the backup has");
        let before = tasks(&opened(&beside(&crashed, former))).await;
        assert_eq!(before.len(), holds, "with its log, the former one is whole");
        assert_eq!(before.is_superset(&late), holds == 40);
    }
    assert_eq!(bytes(&backup), kept, "the backup was only read");
    let left: Vec<PathBuf> = std::fs::read_dir(crashed.parent().expect("a folder"))
        .expect("it can be read")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.display().to_string().contains("partial"))
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "nothing is left of the copy");
}

#[tokio::test]
async fn a_backup_with_a_log_of_its_own_is_restored_with_it() {
    let folder = scratch();
    let path = folder.path().join("ostler.db");
    let store = opened(&path);
    let all = add(&store, &Ids::new(1), 20).await;
    let (_folder, copied) = crash(&path);
    let new = folder.path().join("new.db");
    let restored = integrity::restore(&copied, &new).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(restored.former, None, "there was none");
    assert_eq!(tasks(&opened(&new)).await, all);
}

#[tokio::test]
async fn what_is_no_whole_store_is_not_restored_and_the_store_stays_as_it_is() {
    let folder = scratch();
    let at = |name: &str| folder.path().join(name);
    let path = at("ostler.db");
    add(&opened(&path), &Ids::new(1), 100).await;
    let whole = bytes(&path);
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2 / 4_096 * 4_096;
    damaged[middle..middle + 3 * 4_096].fill(0x5a);
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    for (name, content, kind) in [
        ("text", b"not a store, but a text of some length".to_vec(), ErrorKind::Foreign),
        ("empty", Vec::new(), ErrorKind::Foreign),
        ("cut", whole[..whole.len() / 2].to_vec(), ErrorKind::Damaged),
        ("damaged", damaged, ErrorKind::Damaged),
        ("newer", newer, ErrorKind::TooNew),
    ] {
        std::fs::write(at(name), content).expect("a file");
        let error =
            integrity::restore(at(name), &path).err().unwrap_or_else(|| panic!("{name}: was restored"));
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().contains(&at(name).display().to_string()), "{name}: {error}");
        assert!(!error.to_string().contains("partial"), "{name}: {error}");
        assert_eq!(bytes(&path), whole, "{name}: the store is as it was");
        assert!(!beside(&path, ".former").exists(), "{name}");
    }
    for (what, backup) in
        [("nothing", at("nothing")), ("a folder", folder.path().to_owned()), ("itself", path.clone())]
    {
        let error = integrity::restore(backup, &path).err().unwrap_or_else(|| panic!("{what}: was restored"));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
    }
}
