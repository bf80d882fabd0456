//! Accounts: shown, held and released by hand, and brought by the config of a node.

use std::time::{Duration, Instant};

use ostler_core::{AccountReading, ErrorClass, Failure, Outcome};
use ostler_store::Store as _;
use ostler_store::calls::Report;
use ostler_testkit::MAX_WAIT;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::json::has_exactly;
use crate::ostler::Place;
use crate::up::{script, up};

const ACCOUNT: [&str; 7] = ["account", "queues", "running", "concurrency", "most", "held", "usage"];
const CONFIG: &str = "\
[account.claude]
concurrency = 3
[pool.reviews]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
account = \"claude\"
[pool.letters]
executor = \"command\"
command = [\"sh\", \"-c\", \"{{ payload }}\"]
account = \"claude\"
[pool.other]
executor = \"command\"
command = [\"true\"]
";

/// Two pools that share an account, and one that has none.
fn configured() -> Place {
    let place = Place::new();
    place.write("ostler.toml", CONFIG);
    place
}

fn state(place: &Place, id: &str) -> Value {
    place.json(["show", id])["state"].clone()
}

fn completes(place: &Place, id: &str) {
    let deadline = Instant::now() + MAX_WAIT;
    while state(place, id) != "completed" {
        assert!(Instant::now() < deadline, "{id} does not complete");
    }
}

#[test]
fn a_usage_limit_stops_both_queues_until_the_account_is_released() {
    let place = configured();
    let node = up(&place, &[]);
    let shown = place.json(["account", "show", "claude"]);
    has_exactly(&shown, &ACCOUNT);
    assert_eq!((&shown["queues"], &shown["concurrency"]), (&json!(["letters", "reviews"]), &json!(3)));
    assert_eq!(place.json(["queue", "show", "reviews"])["account"], "claude");
    place.done(["account", "cap", "claude", "none"]);
    drop(node);
    let hands = Hands::join(&place);
    let refused = hands.enqueue("reviews", "run", &script("true")).to_string();
    let task = hands.begin("reviews");
    let hour = Some(Duration::from_secs(3_600));
    let failure = Failure::new(ErrorClass::UsageLimit, "5-hour limit reached");
    hands.end(task, Outcome::Failed(Failure { retry_after: hour, ..failure }), None);

    let _node = up(&place, &[]);
    let waiting = hands.enqueue("letters", "run", &script("true")).to_string();
    // A task of another pool of the node completes first, so the node had every opportunity.
    place.done(["submit", "other", "run", "--wait"]);
    for id in [&refused, &waiting] {
        let task = place.json(["show", id]);
        assert_eq!((&task["state"], &task["failures"]), (&json!("queued"), &json!(0)));
        assert_eq!(task["held"]["waits_for"], "usage_limit");
    }
    let listed = place.done(["account", "ls"]);
    assert!(listed.contains("claude") && listed.contains("5-hour limit reached: until 2"), "{listed}");
    assert!(place.done(["queue", "ls"]).contains("usage_limit until 2"));
    assert!(place.done(["doctor"]).contains("Account \"claude\" is on hold for another 59m"));
    assert_eq!(place.done(["account", "release", "claude"]), "claude is no longer on hold\n");
    for id in [&refused, &waiting] {
        completes(&place, id);
    }
    assert_eq!(place.json(["account", "show", "claude"])["concurrency"], 3, "the config's again");
}

#[test]
fn an_account_is_held_and_released_by_hand() {
    let place = configured();
    place.refused(["account", "ls"], 3, "there is no store");
    let node = up(&place, &[]);
    place.refused(["account", "hold", "claud"], 4, "there is no account \"claud\"; see: ostler account ls");
    let held = place.json(["account", "hold", "claude", "--reason", "enough for today"]);
    assert_eq!(held["held"], json!({"until": null, "reason": "enough for today"}));
    let shown = place.done(["account", "show", "claude"]);
    assert!(shown.contains("enough for today: until it is released"), "{shown}");
    let id = place.done(["submit", "letters", "run", "--payload", &script("true")]);
    place.done(["submit", "other", "run", "--wait"]);
    assert_eq!(state(&place, id.trim()), "queued");
    place.done(["account", "release", "claude"]);
    completes(&place, id.trim());
    assert_eq!(place.done(["account", "release", "claude"]), "claude was not on hold\n");
    let until = place.json(["account", "hold", "claude", "--until", "2030-01-01T00:00:00Z"]);
    assert!(until["held"]["until"].as_str().is_some_and(|time| time.starts_with("2030-01-01")), "{until}");
    place.refused(
        ["account", "hold", "claude", "--for", "1h", "--until", "2030-01-01T00:00:00Z"],
        2,
        "--until",
    );
    place.refused(["account", "cap", "claude", "0"], 2, "from 1 to 1000000");
    assert_eq!(place.json(["account", "cap", "claude", "none"])["concurrency"], Value::Null);
    drop(node);
}

#[test]
fn an_account_that_is_close_to_its_limit_is_shown() {
    let place = configured();
    drop(up(&place, &[]));
    let hands = Hands::join(&place);
    hands.enqueue("reviews", "run", &script("true"));
    let reading =
        AccountReading { window: "five_hour".to_owned(), utilization_permille: 930, resets_at: None };
    let lease = hands.begin("reviews").lease;
    let report = Report { lease, ran: None, outcome: Outcome::Success, output: None, reading: Some(reading) };
    hands.wait(hands.store.finish(vec![report])).expect("it is finished");
    let usage = &place.json(["account", "ls"])[0]["usage"];
    let expected = json!({"window": "five_hour", "used": 0.93, "resets_at": null, "near_limit": true});
    assert_eq!(*usage, expected);
    assert!(place.done(["account", "ls"]).contains("93 %"));
    assert!(
        place.run(["doctor"]).out.contains("Account \"claude\" has used 93 % of its allowance \"five_hour\"")
    );
}
