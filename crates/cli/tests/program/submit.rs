//! `ostler submit`.

use std::time::Duration;

use ostler_core::{Outcome, Readiness, State, Timestamp};
use ostler_store::Store as _;
use ostler_store::calls::QueueChange;
use ostler_store::views::TaskRef;

use crate::hands::Hands;
use crate::ostler::{Place, Running};

#[test]
fn a_task_is_enqueued_and_its_id_printed() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send", "--payload", r#"{"to":"anna"}"#]);
    let task = place.json(["show", id.trim()]);
    assert_eq!(task["id"], id.trim());
    assert_eq!(
        (&task["queue"], &task["kind"], &task["state"]),
        (&"mail".into(), &"send".into(), &"queued".into())
    );
    assert_eq!(task["payload"]["to"], "anna");
}

#[test]
fn everything_that_is_said_is_kept() {
    let place = Place::new();
    let words = [
        "submit",
        "mail",
        "send",
        "--priority",
        "-7",
        "--at",
        "2999-01-02T03:04:05Z",
        "--key",
        "k",
        "--timeout",
        "90s",
        "--attempts",
        "9",
        "--folder",
        ".",
        "--not-after",
        "3000-01-01T00:00:00+01:00",
        "--limit-key",
        "acme",
    ];
    let id = place.done(words);
    let hands = Hands::join(&place);
    let which = TaskRef::Id(id.trim().parse().expect("an id"));
    let task = hands.wait(hands.store.show(which)).expect("it answers").expect("it is there").task;
    let run_at = Timestamp::from_millis(32_472_241_445_000);
    assert!(
        matches!(task.state, State::Queued { readiness: Readiness::Waiting, run_at: at, .. } if at == run_at)
    );
    assert_eq!((task.priority.points(), task.payload.as_str()), (-7, "null"));
    assert_eq!((task.unique_key.as_deref(), task.limit_key.as_deref()), (Some("k"), Some("acme")));
    assert_eq!((task.overrides.attempts, task.overrides.timeout), (Some(9), Some(Duration::from_secs(90))));
    assert_eq!(task.not_after, Some(Timestamp::from_millis(32_503_676_400_000)));
    let folder = place.folder().canonicalize().expect("the folder");
    let kept = std::path::PathBuf::from(task.folder.expect("a folder"));
    assert!(kept.is_absolute() && kept.canonicalize().expect("it is there") == folder, "{kept:?}");
}

#[test]
fn an_id_of_the_callers_own_is_taken_once() {
    const ID: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";
    let place = Place::new();
    let submit = |kind: &'static str, payload: &'static str| {
        ["submit", "mail", kind, "--payload", payload, "--id", ID]
    };
    place.refused(["submit", "mail", "send", "--id", "order-17"], 2, "26 letters and digits");
    assert!(!place.store().exists(), "what is refused makes no store");
    let first = place.json(submit("send", "[1]"));
    assert_eq!((&first["id"], &first["result"]), (&ID.into(), &"created".into()));
    let again = place.json(submit("send", "[1]"));
    assert_eq!((&again["id"], &again["result"]), (&ID.into(), &"existing".into()));
    for (kind, payload) in [("send", "[2]"), ("sort", "[1]")] {
        place.refused(submit(kind, payload), 2, "belongs to another task");
    }
    assert_eq!(place.json(["show", ID])["payload"][0], 1);
    assert_eq!(place.json(["stats"])["submitted"], 1);
}

#[test]
fn a_delay_is_waited_for() {
    let place = Place::new();
    let id = place.done(["submit", "mail", "send", "--in", "1h30m"]);
    let task = place.json(["show", id.trim()]);
    assert_eq!(task["waits_for"], "scheduled");
    assert!(task["run_at"].as_str() > task["created_at"].as_str(), "{task}");
}

#[test]
fn a_repeat_of_a_key_answers_with_the_task_that_is_there() {
    let place = Place::new();
    let first = place.done(["submit", "mail", "send", "--key", "welcome"]);
    let again = place.run(["submit", "mail", "send", "--key", "welcome"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), first.as_str()));
    assert!(again.err.contains("already exists"), "{again:?}");
    assert_ne!(place.done(["submit", "other", "send", "--key", "welcome"]), first);
    assert_eq!(place.json(["show", "key:welcome", "--queue", "mail"])["id"], first.trim());
}

#[test]
fn a_payload_comes_from_a_file_or_standard_input_as_it_is() {
    let place = Place::new();
    let written = " {\"b\": 1.10,\n \"a\": 12345678901234567890123, \"nul\": \"\\u0000\"}\n";
    place.write("p.json", written);
    let from_file = place.run(["submit", "mail", "send", "--payload", "@p.json"]);
    let from_input = place.run_with(["submit", "mail", "send", "--payload", "-"], written.as_bytes());
    for ran in [from_file, from_input] {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let shown = place.done(["show", ran.out.trim(), "--json"]);
        assert!(shown.contains(&format!("\"payload\":{}", written.trim())), "{shown}");
    }
}

#[test]
fn a_full_queue_has_a_code_of_its_own() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.wait(hands.store.configure("mail", vec![QueueChange::Limit(Some(1))])).expect("it is set");
    place.done(["submit", "mail", "send"]);
    place.refused(["submit", "mail", "send"], 5, "the queue \"mail\" is full: 1 tasks");
}

#[test]
fn a_caller_that_waits_gets_the_output() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let waiting = Running::start(place.command(["submit", "mail", "send", "--wait"]));
    hands.complete("mail", r#"{"sent":true}"#);
    assert_eq!(waiting.end(), (Some(0), vec![r#"{"sent":true}"#.to_owned()]));
}

#[test]
fn a_caller_that_waits_hears_of_a_failure_and_of_a_cancel() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let waiting = Running::start(place.command(["submit", "mail", "send", "--wait"]));
    hands.fail("mail", "no such address");
    waiting.says("failed: no such address");
    assert_eq!(waiting.end(), (Some(1), vec![]));

    let waiting = Running::start(place.command(["submit", "mail", "send", "--wait", "--json"]));
    hands.end(hands.begin("mail"), Outcome::Cancelled, None);
    let line: serde_json::Value = serde_json::from_str(&waiting.line()).expect("JSON");
    assert_eq!((&line["state"], waiting.end().0), (&"cancelled".into(), Some(1)));
}

#[test]
fn a_wait_has_an_end_and_the_task_goes_on() {
    let place = Place::new();
    place.refused(
        ["submit", "mail", "send", "--wait", "--wait-timeout", "20ms"],
        1,
        "has not finished in time",
    );
    assert_eq!(place.json(["ls"])[0]["state"], "queued");
}
