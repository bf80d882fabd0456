//! Tables and times on a terminal, and the same for programs.

use crate::hands::Hands;
use crate::ostler::{Place, Terminal};

/// What a terminal of this width shows.
fn on_terminal(place: &Place, columns: u16, zone: &str, words: &[&str]) -> String {
    let terminal = Terminal::open();
    terminal.columns(columns);
    let mut command = place.command(words);
    command.env("TZ", zone).env("NO_COLOR", "1").stdout(terminal.end()).stderr(terminal.end());
    let mut child = command.spawn().expect("it starts");
    drop(command);
    let shown = terminal.screen();
    child.wait().expect("it ends");
    shown.replace('\r', "")
}

#[test]
fn a_table_fits_the_terminal_and_has_short_ids_that_are_accepted() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let long = format!("{{\"script\":\"echo {}\"}}", "x".repeat(300));
    let id = hands.enqueue("mail", "send", &long).to_string();
    hands.fail("mail", &"no route to the host; ".repeat(20));
    let shown = on_terminal(&place, 80, "UTC", &["ls"]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let row = shown.lines().nth(1).expect("a row");
    assert!(row.starts_with(&id[18..]) && row.contains("echo xx") && row.contains('…'), "{shown}");
    assert!(on_terminal(&place, 80, "UTC", &["show", &id[18..]]).contains(&id));
    // For programs nothing is cut.
    let piped = place.done(["ls"]);
    assert!(piped.contains(&id) && !piped.lines().nth(1).expect("a row").ends_with('…'), "{piped}");
    for words in [&["workers"][..], &["nodes"], &["queue", "ls"], &["show", &id[18..]], &["status"]] {
        let table = on_terminal(&place, 80, "UTC", words);
        let head = table.lines().filter(|line| line.contains("  ") && line.to_uppercase() == **line);
        assert!(head.into_iter().all(|line| line.chars().count() <= 80), "{table}");
    }
}

#[test]
fn a_terminal_lists_twenty_tasks_without_items_of_jobs_and_says_what_they_are_about() {
    let place = Place::new();
    place.done(["map", "-q", "true {}", ":::", "an item"]);
    let hands = Hands::join(&place);
    hands.enqueue_many(30, "mail", "send", r#"{"to":"anna"}"#);
    let shown = on_terminal(&place, 120, "UTC", &["ls"]);
    assert_eq!(shown.matches(r#"{"to":"anna"}"#).count(), 20, "{shown}");
    let piped = place.done(["ls"]);
    assert_eq!((piped.lines().count(), piped.contains("an item")), (31, false), "{piped}");
    let items = place.done(["ls", "--items"]);
    assert!(items.lines().count() == 32 && items.contains("an item"), "{items}");
    let job = place.json(["job", "ls"])[0]["queue"].as_str().expect("a queue").to_owned();
    assert!(place.done(["ls", "--queue", &job]).contains("an item"));
    assert_eq!(place.json(["ls", "--items", "--queue", &job])[0]["about"], "an item");
    assert_eq!(place.json(["ls"]).as_array().map(Vec::len), Some(30));
}

#[test]
fn times_are_local_on_a_terminal_and_utc_for_programs() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send", "--at", "2999-08-01T03:00:00Z"]);
    let zone = "<+0330>-3:30";
    let shown = on_terminal(&place, 120, zone, &["show", id.trim()]);
    assert!(shown.contains("not before    2999-08-01 06:30:00 +0330 (in "), "{shown}");
    assert!(place.done(["show", id.trim()]).contains("not before    2999-08-01T03:00:00.000Z (in "));
    assert_eq!(place.json(["show", id.trim()])["run_at"], "2999-08-01T03:00:00.000Z");
}
