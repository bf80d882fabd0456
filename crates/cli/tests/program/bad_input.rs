//! Bad input: a message, the right exit code, and no change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::hands::Hands;
use crate::ostler::{Place, ran};

const ID: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";

#[test]
fn what_is_wrong_is_named_with_what_would_be_right_and_no_store_is_made() {
    let submit = |words: &[&'static str]| [&["submit", "mail", "send"], words].concat();
    let place = Place::new();
    for (words, sentence) in [
        (submit(&["--in", "0s"]), "longer than zero"),
        (submit(&["--in=-5s"]), "cannot be negative"),
        (submit(&["--in", "5"]), "missing unit; write 5s"),
        (submit(&["--in", "99999999999999999999d"]), "the longest duration is 36500d"),
        (submit(&["--in", "5m", "--at", "2030-01-01T00:00:00Z"]), "cannot be used with"),
        (submit(&["--timeout", "0ms"]), "longer than zero"),
        (submit(&["--wait-timeout", "1s"]), "--wait"),
        (submit(&["--wait", "--wait-timeout", "0s"]), "longer than zero"),
        (submit(&["--at", "tomorrow"]), "such as 2026-08-01T03:00:00Z"),
        (submit(&["--not-after", "2030-01-01"]), "such as 2026-08-01T03:00:00Z"),
        (submit(&["--priority", "101"]), "from -100 to 100"),
        (submit(&["--priority", "-101"]), "from -100 to 100"),
        (submit(&["--attempts", "0"]), "from 1 to"),
        (submit(&["--attempts", "99999999999"]), "from 1 to"),
        (submit(&["--attempts", " 5"]), "from 1 to"),
        (submit(&["--priority", "5 "]), "from -100 to 100"),
        (submit(&["--folder", "no/such"]), "folder: no/such is not a folder"),
        (submit(&["--key", ""]), "unique key must not be empty"),
        (submit(&["--payload", "{"]), "payload: not JSON"),
        (submit(&["--payload", "hello"]), "a string needs quotes"),
        (submit(&["--payload", ""]), "payload: empty"),
        (submit(&["--payload", "[1]x"]), "payload: not JSON"),
        (submit(&["--payload", r#""\ud800""#]), "payload: not JSON"),
        (submit(&["--payload", r#"{"\udfff": 1}"#]), "payload: not JSON"),
        (submit(&["--payload", "[1e999]"]), "payload: not JSON"),
        (submit(&["--payload", "@no-such-file"]), "payload: cannot read the file no-such-file"),
        (submit(&["--payload", "@."]), "payload: "),
        (vec!["submit", "mail"], "<KIND>"),
        (vec!["submit", "", "send"], "queue must not be empty"),
        (vec!["submit", "ma\nil", "send"], "no control characters"),
        (vec!["show", "17"], "is not an id"),
        (vec!["show", "key:"], "a key must follow"),
        (vec!["cancel", "../../etc/passwd"], "is not an id"),
        (vec!["ls", "--state", "asleep"], "queued, claimed, running, completed, failed, cancelled"),
        (vec!["ls", "--class", "unlucky"], "transient, partial, timeout"),
        (vec!["ls", "--failed-since", "today"], "such as 2026-08-01T03:00:00Z"),
        (vec!["ls", "--limit", "0"], "from 1 to 1000"),
        (vec!["ls", "--limit", "1001"], "from 1 to 1000"),
        (vec!["ls", "--limit", "ten"], "from 1 to 1000"),
        (vec!["ls", "--cursor", "x"], "a cursor is"),
        (vec!["ls", "--where", "tenant=acme"], "payload.tenant=acme"),
        (vec!["ls", "--store", "redis://x"], "unknown store \"redis:\""),
        (vec!["ls", "--store", "postgres://u:secret@h/d?colour=red"], "unknown option `colour`"),
        (vec!["ls", "--store", "sqlite::memory:"], "outlives the program"),
        (vec!["db", "prune", "--failed-older", "0d"], "longer than zero"),
        (vec!["retry", ID, "--again", "--from-scratch"], "cannot be used with"),
        (vec!["submitt", "mail", "send"], "a similar subcommand exists: 'submit'"),
        (vec!["ls", "--stat", "queued"], "a similar argument exists: '--state'"),
        (vec!["config"], "--default"),
        (vec!["config", "--default", "--check"], "cannot be used with"),
        (vec!["completions", "tcsh"], "bash"),
    ] {
        place.refused(&words, 2, sentence);
    }
    let left: Vec<_> = std::fs::read_dir(place.folder()).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_payload_over_the_limit_is_refused_before_all_of_it_is_read() {
    let place = Place::new();
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    let ran = place.run_with(["submit", "mail", "send", "--payload", "-"], large.as_bytes());
    ran.is_refused(2, "payload: larger than the limit of 1048576 bytes");
    let most = format!("\"{}\"", "x".repeat((1 << 20) - 2));
    assert_eq!(place.run_with(["submit", "mail", "send", "--payload", "-"], most.as_bytes()).code, Some(0));
    assert_eq!(place.json(["stats"])["submitted"], 1);
    // An endless file is refused too.
    place.refused(["submit", "mail", "send", "--payload", "@/dev/zero"], 2, "payload: larger than");
}

#[test]
fn a_payload_that_is_too_deep_is_refused_plainly() {
    let place = Place::new();
    for depth in [121, 100_000] {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let ran = place.run_with(["submit", "mail", "send", "--payload", "-"], deep.as_bytes());
        ran.is_refused(2, "nested more than 120 levels deep");
    }
    let deep = "[".repeat(120) + &"]".repeat(120);
    let ran = place.run_with(["submit", "mail", "send", "--payload", "-"], deep.as_bytes());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // An accepted payload can be shown and listed, and a JSON parser with its own depth limit reads it.
    assert!(place.json(["show", ran.out.trim()])["payload"].is_array());
    assert_eq!(place.run(["ls", "--where", "payload.0=1"]).code, Some(0));
}

#[test]
fn bytes_that_are_no_text_are_refused_wherever_they_stand() {
    let place = Place::new();
    let bytes = OsStr::from_bytes(b"\"\xff\xfe\"");
    let word = OsStr::new;
    place.refused(
        [word("submit"), word("mail"), word("send"), word("--payload"), bytes],
        2,
        "payload: must be UTF-8 text",
    );
    place.refused([word("submit"), bytes, word("send")], 2, "not UTF-8 text");
    place.refused([word("ls"), word("--text"), bytes], 2, "not UTF-8 text");
    place.refused([word("show"), bytes], 2, "not UTF-8 text");
    for input in [&b"\"\xc3\x28\""[..], b"\"a\0b\"", b"\0"] {
        place.run_with(["submit", "mail", "send", "--payload", "-"], input).is_refused(2, "payload: ");
    }
    assert!(!place.store().exists());
    ran(place.bare().env("OSTLER_STORE", bytes).arg("ls")).is_refused(2, "OSTLER_STORE must be UTF-8");
}

#[test]
fn ids_that_lead_nowhere_are_not_found() {
    let place = Place::new();
    place.done(["submit", "mail", "send"]);
    for words in [
        &["show", ID][..],
        &["logs", ID],
        &["logs", "-f", ID],
        &["cancel", ID],
        &["retry", ID],
        &["dead", "show", ID],
        &["dead", "replay", ID],
        &["dead", "drop", ID],
        &["show", "key:k"],
        &["retry", "--again", ID],
        &["drain", "missing"],
    ] {
        let ran = place.run(words);
        ran.is_refused(
            4,
            if words[0] == "drain" { "no node \"missing\" is running" } else { "there is no task" },
        );
    }
}

#[test]
fn a_store_that_is_none_is_refused() {
    let place = Place::new();
    let folder = place.folder().to_owned();
    std::fs::create_dir(folder.join("sub")).expect("a folder");
    place.write("diary.txt", "Dear diary\n".repeat(500));
    for (store, sentence) in [
        ("sub", "is a folder; a store is a file"),
        ("diary.txt", "is not an Ostler store"),
        ("missing.db", "there is no store at missing.db"),
        ("no/such/folder/x.db", "there is no store at"),
        ("/dev/null/x.db", ""),
    ] {
        place.refused(["ls", "--store", store], 3, sentence);
    }
    for store in ["sub", "diary.txt", "no/such/folder/x.db", "/dev/null/x.db"] {
        place.refused(["submit", "mail", "send", "--store", store], 3, "");
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 2);
}

#[test]
fn a_store_that_may_not_be_written_is_refused() {
    let place = Place::new();
    place.done(["submit", "mail", "send"]);
    let mode = |mode| {
        std::fs::set_permissions(place.store(), std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(0o400);
    place.refused(["submit", "mail", "send"], 3, "is marked read-only (mode 0400)");
    place.refused(["submit", "mail", "send"], 3, "chmod u+w");
    mode(0o600);
    assert_eq!(place.json(["stats"])["submitted"], 1);
}

#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let place = Place::new();
    let file = place.write("home", "a file, and no folder");
    let mut command = place.bare();
    command.env("HOME", file).args(["submit", "mail", "send"]);
    ran(&mut command).is_refused(3, "cannot create the folder");
}

#[test]
fn without_a_home_a_store_must_be_named() {
    let place = Place::new();
    ran(place.bare().args(["submit", "mail", "send"])).is_refused(2, "--store");
    ran(place.bare().env("HOME", "").args(["ls"])).is_refused(2, "OSTLER_STORE");
}

#[test]
fn a_refused_action_changes_nothing() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    hands.fail("mail", "no");
    let before = place.done(["show", &id, "--json"]);
    for words in [
        &["retry", &id, "--payload", "{"][..],
        &["retry", &id, "--kind", "send", "--yes"],
        &["dead", "replay", "--text", "no"],
        &["cancel", &id],
        &["dead", "drop", "--queue", "mail"],
    ] {
        place.refused(words, 2, "");
    }
    assert_eq!(place.done(["show", &id, "--json"]), before);
}
