//! `ostler db`.

use std::io::{Seek as _, Write as _};

use crate::hands::Hands;
use crate::ostler::Place;

#[test]
fn a_whole_store_passes_and_a_damaged_one_does_not() {
    let place = Place::new();
    let hands = Hands::join(&place);
    for at in 0..400 {
        hands.enqueue("mail", "send", &format!("\"{at:0>300}\""));
    }
    drop(hands);
    assert!(place.done(["db", "check"]).contains("is whole"));
    let health = place.json(["db", "check"]);
    assert_eq!((&health["ok"], &health["version"]), (&true.into(), &health["newest"]));
    let mut file = std::fs::OpenOptions::new().write(true).open(place.store()).expect("the file");
    let middle = file.metadata().expect("its size").len() / 2 / 4096 * 4096;
    file.seek(std::io::SeekFrom::Start(middle))
        .and_then(|_| file.write_all(&[0x5a; 16 * 4096]))
        .expect("damage");
    drop(file);
    let ran = place.run(["db", "check"]);
    ran.is_refused(1, "is not whole");
    assert!(!ran.out.is_empty(), "it says what is wrong: {ran:?}");
}

#[test]
fn a_backup_is_a_store_and_overwrites_nothing() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send"]);
    let made = place.json(["db", "backup", "copy.db"]);
    assert_eq!((&made["file"], made["bytes"].as_u64() > Some(0)), (&"copy.db".into(), true));
    assert!(place.done(["db", "check", "--store", "sqlite:copy.db"]).contains("is whole"));
    assert_eq!(place.json(["show", id.trim(), "--store", "copy.db"])["id"], id.trim());
    let before = std::fs::read(place.folder().join("copy.db")).expect("the copy");
    place.refused(["db", "backup", "copy.db"], 2, "is there already");
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
    // It is older than a millisecond as soon as the clock has moved on by one; a run of the program takes longer.
    let removed = (0..1_000).find_map(|_| {
        place.json(["db", "prune", "--completed-older", "1ms"])["tasks"].as_u64().filter(|n| *n > 0)
    });
    assert_eq!(removed, Some(1));
    place.refused(["show", &done], 4, "there is no task");
    assert_eq!(place.json(["show", &failed])["state"], "failed");
    assert_eq!(place.json(["show", &waiting])["state"], "queued");
}
