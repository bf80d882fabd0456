//! `ostler db`.

use std::io::{Seek as _, Write as _};
use std::sync::Arc;

use ostler_sqlite::{Options, Sqlite};
use ostler_store::SystemClock;
use ostler_testkit::ProcessSignal;

use crate::hands::Hands;
use crate::ostler::Place;
use crate::up::{configured, script, up};

#[test]
fn a_whole_store_passes_and_a_damaged_one_does_not() {
    let place = Place::new();
    let hands = Hands::join(&place);
    for at in 0..400 {
        hands.enqueue("mail", "send", &format!("\"{at:0>300}\""));
    }
    drop(hands);
    assert!(place.done(["db", "check"]).contains("is intact"));
    let health = place.json(["db", "check"]);
    assert_eq!((&health["ok"], &health["version"]), (&true.into(), &health["newest"]));
    let mut file = std::fs::OpenOptions::new().write(true).open(place.store()).expect("the file");
    // Behind the schema: among the rows.
    let rows = file.metadata().expect("its size").len() / 4 * 3 / 4096 * 4096;
    file.seek(std::io::SeekFrom::Start(rows))
        .and_then(|_| file.write_all(&[0x5a; 16 * 4096]))
        .expect("damage");
    drop(file);
    let ran = place.run(["db", "check"]);
    ran.is_refused(1, "is damaged");
    assert!(!ran.out.is_empty(), "it says what is wrong: {ran:?}");
}

#[test]
fn a_backup_is_a_store_and_overwrites_nothing() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send"]);
    let made = place.json(["db", "backup", "copy.db"]);
    assert_eq!((&made["file"], made["bytes"].as_u64() > Some(0)), (&"copy.db".into(), true));
    assert!(place.done(["db", "check", "--store", "sqlite:copy.db"]).contains("is intact"));
    assert_eq!(place.json(["show", id.trim(), "--store", "copy.db"])["id"], id.trim());
    let before = std::fs::read(place.folder().join("copy.db")).expect("the copy");
    place.refused(["db", "backup", "copy.db"], 2, "already exists");
    assert_eq!(std::fs::read(place.folder().join("copy.db")).expect("the copy"), before);
    place.refused(["db", "backup", "no/such/folder/copy.db"], 3, "no/such/folder");
}

#[test]
fn a_version_is_told_and_only_a_migration_writes() {
    let place = Place::new();
    let look = place.json(["db", "migrate", "--check"]);
    assert_eq!((&look["from"], &look["pending"]), (&serde_json::Value::Null, &true.into()));
    assert!(!place.store().exists());
    assert_eq!(place.json(["db", "migrate"])["from"], serde_json::Value::Null);
    let look = place.json(["db", "migrate", "--check"]);
    assert_eq!((&look["from"], &look["pending"]), (&look["to"], &false.into()));
}

#[test]
fn old_ended_tasks_are_removed_and_others_stay() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let done = hands.enqueue("mail", "send", "1").to_string();
    hands.complete("mail", "1");
    hands.enqueue("mail", "send", "2");
    let failed = hands.fail("mail", "no").to_string();
    let waiting = hands.enqueue("mail", "send", "3").to_string();
    assert_eq!(place.json(["db", "prune"])["tasks"], 0);
    // It is older than a millisecond as soon as the clock has advanced by one; a run of the program takes longer.
    let removed = (0..1_000).find_map(|_| {
        place.json(["db", "prune", "--completed-older", "1ms"])["tasks"].as_u64().filter(|n| *n > 0)
    });
    assert_eq!(removed, Some(1));
    place.refused(["show", &done], 4, "there is no task");
    assert_eq!(place.json(["show", &failed])["state"], "failed");
    assert_eq!(place.json(["show", &waiting])["state"], "queued");
}

/// The ids of all tasks.
fn tasks(place: &Place) -> Vec<String> {
    let listed = place.json(["ls", "--limit", "1000"]);
    let id = |task: &serde_json::Value| task["id"].as_str().expect("an id").to_owned();
    listed.as_array().expect("a list").iter().map(id).collect()
}

#[test]
fn after_a_crash_a_backup_that_was_copied_over_the_store_is_refused_and_a_restored_one_is_used() {
    let place = configured();
    let node = up(&place, &[]);
    // Enough for a log of some size.
    for at in 0..5 {
        place.done(["submit", "other", "run", "--payload", &at.to_string()]);
    }
    place.done(["db", "backup", "backup.db"]);
    let kept = tasks(&place);
    for at in 0..5 {
        place.done(["submit", "other", "run", "--payload", &at.to_string()]);
    }
    place.refused(["db", "restore", "backup.db"], 3, "a node is running on");
    node.signal(ProcessSignal::KILL);
    node.end();
    let log = place.folder().join("ostler.db-wal");
    assert!(std::fs::metadata(&log).expect("the log stays").len() > 0);

    std::fs::copy(place.folder().join("backup.db"), place.store()).expect("it is copied over the store");
    let before = std::fs::read(place.store()).expect("its bytes");
    for command in
        [&["ls"][..], &["submit", "other", "run"], &["db", "check"], &["db", "backup", "b.db"], &["up"]]
    {
        place.refused(command, 3, "ostler db restore");
    }
    assert_eq!(std::fs::read(place.store()).expect("its bytes"), before, "nothing was folded in");

    let restored = place.json(["db", "restore", "backup.db"]);
    assert!(
        restored["former"].as_str().is_some_and(|former| former.ends_with("ostler.db.former")),
        "{restored}"
    );
    assert!(!log.exists() && place.folder().join("ostler.db.former-wal").exists());
    assert_eq!(tasks(&place), kept);
    assert!(place.done(["db", "check"]).contains("is intact"));
    let node = up(&place, &[]);
    let done = place.run(["submit", "shell", "run", "--payload", &script("echo again"), "--wait"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "\"again\"\n"), "{done:?}");
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_store_that_another_process_has_open_is_not_replaced() {
    let place = Place::new();
    place.done(["submit", "mail", "send"]);
    place.done(["db", "backup", "backup.db"]);
    // It has the store open, and is not a node.
    let store = Sqlite::open(place.store(), Arc::new(SystemClock), Options::default()).expect("it opens");
    place.refused(["db", "restore", "backup.db"], 3, "another process has");
    drop(store);
    place.done(["db", "restore", "backup.db"]);
    place.refused(["db", "restore", "nothing.db"], 2, "there is no backup");
}
