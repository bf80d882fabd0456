//! `ostler schedule`, and schedules that a node adds and runs.

use std::time::{Duration, Instant};

use ostler_testkit::{MAX_WAIT, ProcessSignal};
use serde_json::{Value, json};

use crate::ostler::{Place, Running, ran};

const FIELDS: [&str; 13] = [
    "name",
    "state",
    "cron",
    "timezone",
    "every_ms",
    "at",
    "overlap",
    "missed",
    "next_at",
    "last_at",
    "last_task",
    "task",
    "upcoming",
];
const CONFIG: &str = "\
[pool.shell]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
";
/// Far enough in the past to be missed, and far enough ahead to stay there.
const PAST: &str = "2020-01-01T00:00:00Z";
const AHEAD: &str = "2999-01-01T00:00:00Z";
const LOOK: Duration = Duration::from_millis(20);

fn up(place: &Place) -> Running {
    let node = Running::start(place.command(["up"]));
    assert!(node.line().contains("ready"));
    node
}

fn down(node: Running) {
    node.signal(ProcessSignal::TERM);
    assert_eq!(node.end().0, Some(0));
}

/// Polls until it holds.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let last = Instant::now() + MAX_WAIT;
    let (_never, nothing) = std::sync::mpsc::channel::<()>();
    while !so() {
        assert!(Instant::now() < last, "{what}");
        let _ = nothing.recv_timeout(LOOK);
    }
}

fn fields(value: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    found.sort_unstable();
    found
}

fn sorted(names: &[&'static str]) -> Vec<&'static str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[test]
fn a_schedule_is_added_shown_paused_and_removed() {
    let place = Place::new();
    let said = place.done(["schedule", "add", "nightly", "shell", "run", "--cron", "0 3 * * *"]);
    assert!(said.starts_with("nightly is created; next run: ") && said.contains("T03:00:00.000Z"), "{said}");
    let list = place.done(["schedule", "ls"]);
    assert!(list.contains("nightly  0 3 * * * UTC  shell  run   active  in "), "{list}");
    assert!(place.done(["schedule", "show", "nightly"]).contains("when          0 3 * * * UTC\n"));
    assert!(place.done(["schedule", "pause", "nightly"]).contains("nightly is paused"));
    let shown = place.json(["schedule", "show", "nightly"]);
    assert_eq!(
        (&shown["state"], &shown["next_at"], &shown["upcoming"]),
        (&json!("paused"), &Value::Null, &json!([]))
    );
    // Adding it again does not resume it.
    place.done(["schedule", "add", "nightly", "shell", "run", "--every", "1h"]);
    assert_eq!(place.json(["schedule", "show", "nightly"])["state"], "paused");
    assert_eq!(place.done(["schedule", "resume", "nightly"]), "nightly is resumed\n");
    assert_eq!(place.json(["schedule", "show", "nightly"])["state"], "active");
    assert_eq!(place.done(["schedule", "rm", "nightly"]), "nightly is removed\n");
    assert!(place.done(["schedule", "ls"]).contains("no schedules yet"));
    for verb in ["show", "rm", "pause", "resume"] {
        place.refused(["schedule", verb, "nightly"], 4, "there is no schedule \"nightly\"");
    }
}

#[test]
fn everything_that_is_said_of_a_schedule_is_kept() {
    let place = Place::new();
    place.done([
        "schedule",
        "add",
        "s",
        "shell",
        "run",
        "--cron",
        "30 2 * * 1-5",
        "--timezone",
        "europe/berlin",
        "--payload",
        "{\"a\":1.10}",
        "--priority",
        "-7",
        "--overlap",
        "replace",
        "--missed",
        "all",
        "--attempts",
        "9",
        "--timeout",
        "90s",
    ]);
    let shown = place.json(["schedule", "show", "s"]);
    assert_eq!(fields(&shown), sorted(&FIELDS));
    assert_eq!(
        fields(&shown["task"]),
        sorted(&["queue", "kind", "payload", "priority", "attempts", "timeout_ms"])
    );
    assert_eq!((&shown["cron"], &shown["timezone"]), (&json!("30 2 * * 1-5"), &json!("Europe/Berlin")));
    assert_eq!((&shown["overlap"], &shown["missed"]), (&json!("replace"), &json!("all")));
    let task = &shown["task"];
    assert_eq!(
        (&task["priority"], &task["attempts"], &task["timeout_ms"]),
        (&json!(-7), &json!(9), &json!(90_000))
    );
    assert!(place.done(["schedule", "show", "s", "--json"]).contains("\"payload\":{\"a\":1.10}"));
    assert_eq!(shown["upcoming"].as_array().map(Vec::len), Some(5));
    assert_eq!(shown["upcoming"][0], shown["next_at"]);
    let list = place.json(["schedule", "ls"]);
    assert_eq!(fields(&list[0]), sorted(&FIELDS[..12]));

    let added = place.json(["schedule", "add", "s", "shell", "run", "--every", "1h30m"]);
    assert_eq!(
        (fields(&added), &added["result"]),
        (vec!["next_at", "result", "schedule", "timezone"], &json!("replaced"))
    );
    assert_eq!(place.json(["schedule", "show", "s"])["every_ms"], 5_400_000);
    place.done(["schedule", "add", "s", "shell", "run", "--at", AHEAD]);
    let shown = place.json(["schedule", "show", "s"]);
    assert_eq!(
        (&shown["at"], &shown["upcoming"]),
        (&json!("2999-01-01T00:00:00.000Z"), &json!([shown["at"]]))
    );
    assert_eq!((&shown["cron"], &shown["every_ms"]), (&Value::Null, &Value::Null));
}

#[test]
fn what_is_no_schedule_is_refused_and_makes_no_store() {
    let place = Place::new();
    let add = ["schedule", "add", "s", "shell", "run"];
    for (words, sentence) in [
        (&[][..], "--cron"),
        (&["--cron", "@daily", "--every", "1h"], "cannot be used with"),
        (
            &["--cron", "0 25 * * *"],
            "is not a cron expression: the hour 25 is not in 0-23; it has five fields",
        ),
        (&["--cron", "1,,2 * * * *"], "is not a cron expression: nothing before or after a comma"),
        (&["--cron", "0 ,3 * * *"], "nothing before or after a comma"),
        (&["--cron", "0 3, * * *"], "nothing before or after a comma"),
        (&["--cron", "0 3 * *"], "is not a cron expression: it has 4 fields"),
        (&["--cron", "0 0 30 2 *"], "a day that never comes"),
        (&["--cron", "@daily", "--timezone", "Berlin"], "\"Berlin\" is not a time zone"),
        (&["--every", "1h", "--timezone", "UTC"], "cannot be used with"),
        (&["--every", "10ms"], "it must be from 1s to 36500d"),
        (&["--at", "tomorrow"], "2026-08-01T03:00:00Z"),
        (&["--every", "1h", "--overlap", "wait"], "one of skip, queue, replace"),
        (&["--every", "1h", "--missed", "none"], "one of skip, one, all"),
        (&["--every", "1h", "--payload", "x"], "not JSON"),
    ] {
        place.refused(add.iter().chain(words), 2, sentence);
    }
    let large = format!("\"{}\"", "x".repeat(65_536));
    let words = add.iter().chain(&["--every", "1h", "--payload", "-"]);
    place.run_with(words, large.as_bytes()).is_refused(2, "at most 65536");
    assert!(!place.store().exists());
    place.refused(["schedule", "ls"], 3, "there is no store");
}

#[test]
fn a_node_brings_the_schedules_of_its_config_and_fires_them() {
    let place = Place::new();
    let schedules = format!(
        "[schedule.often]\nevery = \"1s\"\ntask = {{ queue = \"shell\", kind = \"run\", payload = \"echo tick\" }}\n\
         [schedule.later]\nat = \"{AHEAD}\"\ntask = {{ queue = \"shell\", kind = \"run\", payload = \"true\" }}\n"
    );
    place.write("ostler.toml", format!("{CONFIG}{schedules}"));
    assert!(place.done(["config", "--check"]).contains("schedules: later, often"));
    let node = up(&place);
    let runs = |place: &Place| place.json(["ls", "--state", "completed"]).as_array().map_or(0, Vec::len);
    until("it runs twice", || runs(&place) >= 2);
    let often = place.json(["schedule", "show", "often"]);
    assert!(often["last_task"].is_string() && often["last_at"].is_string(), "{often}");
    place.done(["schedule", "pause", "often"]);
    place.done(["schedule", "rm", "later"]);
    down(node);
    // Another start adds what was removed, and does not resume what is paused.
    let node = up(&place);
    let list = place.json(["schedule", "ls"]);
    let states: Vec<(&Value, &Value)> =
        list.as_array().expect("a list").iter().map(|one| (&one["name"], &one["state"])).collect();
    assert_eq!(states, [(&json!("later"), &json!("active")), (&json!("often"), &json!("paused"))]);
    down(node);
}

#[test]
fn two_nodes_fire_a_moment_once_and_it_is_over_then() {
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    let nodes = [up(&place), up(&place)];
    let names: Vec<String> = (0..5).map(|number| format!("once-{number}")).collect();
    for name in &names {
        place.done(["schedule", "add", name, "shell", "run", "--at", PAST, "--payload", "\"echo done\""]);
    }
    until("all of them run", || {
        place.json(["ls", "--state", "completed"]).as_array().map(Vec::len) >= Some(names.len())
    });
    for node in nodes {
        down(node);
    }
    assert_eq!(place.json(["stats"])["submitted"], names.len());
    for name in &names {
        assert_eq!(place.json(["schedule", "show", name])["state"], "over");
    }
    let again = place.done(["schedule", "add", "once-0", "shell", "run", "--at", PAST]);
    assert!(again.contains("is replaced, but its time has passed"), "{again}");
}

#[test]
fn the_time_zone_is_that_of_the_machine_that_adds_it_and_stays() {
    let place = Place::new();
    let words = ["schedule", "add", "nightly", "shell", "run", "--cron", "0 3 * * *"];
    let added = ran(place.command(words).env("TZ", "Asia/Tokyo"));
    assert!(added.out.contains("T18:00:00.000Z (time zone: Asia/Tokyo)\n"), "{added:?}");
    let moved =
        ran(place.command(["schedule", "show", "nightly", "--json"]).env("TZ", "Europe/Berlin")).json();
    assert_eq!(moved["timezone"], "Asia/Tokyo");
    assert!(place.done(["schedule", "ls"]).contains("0 3 * * * Asia/Tokyo"));
    let given =
        ran(place.command(words).args(["--timezone", "Europe/Berlin", "--json"]).env("TZ", "Asia/Tokyo"));
    assert_eq!(given.json()["timezone"], "Europe/Berlin");
    let unknown = ran(place.command(words).arg("--json").env("TZ", "Nowhere/Land"));
    assert_eq!(unknown.json()["timezone"], "UTC");
}

#[test]
fn the_task_of_a_schedule_runs_now_and_the_schedule_goes_on() {
    let place = Place::new();
    let add =
        ["schedule", "add", "nightly", "shell", "run", "--at", AHEAD, "--payload", "[1]", "--priority", "7"];
    place.done(add);
    let id = place.done(["schedule", "run", "nightly"]).trim().to_owned();
    let task = place.json(["show", &id]);
    assert_eq!(
        (&task["queue"], &task["kind"], &task["payload"], &task["priority"]),
        (&json!("shell"), &json!("run"), &json!([1]), &json!(7))
    );
    assert_eq!(place.json(["schedule", "show", "nightly"])["last_task"], Value::Null);
    place.refused(["schedule", "run", "missing"], 4, "there is no schedule");
}
