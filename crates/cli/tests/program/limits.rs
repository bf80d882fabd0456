//! Limits set, shown and lifted by hand. No node is needed for that.

use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Outcome};
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::json::has_exactly;
use crate::ostler::Place;

const QUEUE: [&str; 20] = [
    "queue",
    "paused",
    "tasks",
    "queue_limit",
    "concurrency",
    "key_concurrency",
    "key",
    "cost",
    "priority",
    "key_until",
    "rate",
    "key_rate",
    "breaker",
    "breaker_state",
    "held",
    "keys",
    "subscribers",
    "account",
    "budget",
    "pool",
];
const BREAKER: [&str; 6] = ["queue", "key", "state", "until", "breaker", "call"];
const RULE: [&str; 6] = ["failures", "share", "window_ms", "at_least", "reset_ms", "per"];
const HELD: [&str; 4] = ["queue", "key", "waits_for", "until"];
const KEY: [&str; 5] = ["key", "waits_for", "until", "held_until", "breaker_state"];

/// The next task of the queue gets "too many requests" for an hour.
fn told_to_wait(hands: &Hands) {
    let failure = Failure::new(ErrorClass::RateLimited, "too many requests");
    let hour = Some(Duration::from_secs(3_600));
    let task = hands.begin("mail");
    hands.end(task, Outcome::Failed(Failure { retry_after: hour, ..failure }), None);
}

#[test]
fn limits_are_set_shown_and_lifted() {
    let place = Place::new();
    let set = place.json([
        "queue",
        "set",
        "mail",
        "--rate",
        "60/m",
        "--rate",
        "1000/d,burst=5",
        "--key-rate",
        "5/s",
        "--concurrency",
        "8",
        "--key-concurrency",
        "2",
        "--queue-limit",
        "100",
        "--key",
        "payload.tenant",
        "--cost",
        "payload.tokens",
        "--breaker",
        "share=0.5,window=1m,at_least=20,reset=5m,per=key",
    ]);
    has_exactly(&set, &QUEUE);
    assert_eq!(
        set["rate"],
        json!([{"amount": 60, "per_ms": 60_000, "burst": 6}, {"amount": 1000, "per_ms": 86_400_000, "burst": 5}])
    );
    assert_eq!(set["key_rate"], json!([{"amount": 5, "per_ms": 1_000, "burst": 1}]));
    let numbers = ["concurrency", "key_concurrency", "queue_limit"].map(|field| set[field].clone());
    assert_eq!(numbers, [json!(8), json!(2), json!(100)]);
    assert_eq!((&set["key"], &set["cost"]), (&json!("payload.tenant"), &json!("payload.tokens")));
    has_exactly(&set["breaker"], &RULE);
    let rule = json!({"failures": null, "share": 0.5, "window_ms": 60_000, "at_least": 20, "reset_ms": 300_000, "per": "key"});
    assert_eq!(set["breaker"], rule);
    assert_eq!((&set["breaker_state"], &set["held"], &set["keys"]), (&Value::Null, &Value::Null, &json!([])));
    assert_eq!(place.json(["queue", "show", "mail"]), set);
    assert_eq!(place.json(["queue", "ls"]), json!([set]));
    let shown = place.done(["queue", "show", "mail"]);
    for words in [
        "60 per 1m, burst 6",
        "8 at once",
        "at most 100 waiting tasks",
        "payload.tenant",
        "50 % of at least 20",
    ] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    // Options left out change nothing, and each limit can be lifted.
    let changed = place.json(["queue", "set", "mail", "--rate", "none", "--breaker", "failures=3,reset=1s"]);
    assert_eq!((&changed["rate"], &changed["key_rate"]), (&json!([]), &set["key_rate"]));
    assert_eq!(
        (&changed["breaker"]["failures"], &changed["breaker_state"]["state"]),
        (&json!(3), &json!("closed"))
    );
    let words =
        ["--key-rate", "--concurrency", "--key-concurrency", "--queue-limit", "--key", "--cost", "--breaker"];
    let lift = ["queue", "set", "mail"].into_iter().chain(words.into_iter().flat_map(|word| [word, "none"]));
    let lifted = place.json(lift.collect::<Vec<_>>());
    for field in ["queue_limit", "concurrency", "key_concurrency", "key", "cost", "breaker", "breaker_state"]
    {
        assert_eq!(lifted[field], Value::Null, "{field}");
    }
}

#[test]
fn nonsense_is_refused_and_makes_no_store() {
    let place = Place::new();
    let set = |words: &[&'static str]| [&["queue", "set", "mail"], words].concat();
    for (words, sentence) in [
        (set(&[]), "nothing to set"),
        (set(&["--rate", "60"]), "a rate looks like 60/m"),
        (set(&["--rate", "0/m"]), "rate must be at least 1"),
        (set(&["--rate", "1/0s"]), "from 1 ms to 366 days"),
        (set(&["--rate", "1/m,burst=0"]), "burst is 0"),
        (set(&["--rate", "none", "--rate", "1/s"]), "cannot be combined"),
        (set(&["--key-rate", "x"]), "a rate looks like 60/m"),
        (set(&["--concurrency", "0"]), "from 1 to 1000000, or none"),
        (set(&["--key-concurrency", "-1"]), ""),
        (set(&["--queue-limit", "0"]), "from 1 to 1000000000, or none"),
        (set(&["--key", "tenant"]), "it looks like payload.tenant"),
        (set(&["--cost", "payload."]), "it looks like payload.tenant"),
        (set(&["--breaker", "failures=5"]), "a breaker looks like"),
        (set(&["--breaker", "failures=5,reset=0s"]), "longer than zero"),
        (set(&["--breaker", "failures=5,reset=367d"]), "366 days"),
        (vec!["queue", "set", ""], "queue must not be empty"),
        (vec!["queue", "release", "mail", "--key", ""], "limit key must not be empty"),
        (vec!["breaker", "open", "mail", "--for", "0s"], "longer than zero"),
        (vec!["breaker", "reset", "mail", "--key", ""], "limit key must not be empty"),
        (vec!["submit", "mail", "send", "--cost", "0"], "a cost is a whole number from 1"),
        (vec!["submit", "mail", "send", "--limit-key", ""], "limit key must not be empty"),
    ] {
        place.refused(&words, 2, sentence);
    }
    assert!(!place.store().exists());
    place.refused(["queue", "ls"], 3, "there is no store");
    place.done(["submit", "mail", "send"]);
    for words in [
        &["queue", "show", "male"][..],
        &["queue", "release", "male"],
        &["breaker", "open", "male"],
        &["breaker", "reset", "male", "--key", "k"],
    ] {
        place.refused(words, 4, "there is no queue \"male\"");
    }
    assert_eq!(place.json(["queue", "ls"]).as_array().map(Vec::len), Some(1), "none was made");
}

#[test]
fn keys_and_costs_come_from_the_payload_unless_they_are_given() {
    let place = Place::new();
    place.done(["queue", "set", "mail", "--key", "payload.tenant", "--cost", "payload.tokens"]);
    let payload = r#"{"tenant":"acme","tokens":7}"#;
    let id = place.done(["submit", "mail", "send", "--payload", payload]);
    let task = place.json(["show", id.trim()]);
    assert_eq!((&task["limit_key"], &task["cost"], &task["held"]), (&json!("acme"), &json!(7), &Value::Null));
    let id =
        place.done(["submit", "mail", "send", "--payload", payload, "--limit-key", "mine", "--cost", "2"]);
    let task = place.json(["show", id.trim()]);
    assert_eq!((&task["limit_key"], &task["cost"]), (&json!("mine"), &json!(2)));
    assert!(place.done(["show", id.trim()]).contains("cost          2"));
}

#[test]
fn a_hold_is_seen_everywhere_and_can_be_ended() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", "1");
    told_to_wait(&hands);
    let id = hands.enqueue("mail", "send", "2").to_string();
    let task = place.json(["show", &id]);
    has_exactly(&task["held"], &HELD);
    assert_eq!(
        (&task["held"]["waits_for"], &task["held"]["key"], &task["state"]),
        (&json!("rate_limited"), &Value::Null, &json!("queued"))
    );
    assert!(place.done(["show", &id]).contains("its queue: rate_limited until 2"));
    assert_eq!(place.json(["stats"])["held"], json!([task["held"]]));
    assert!(place.done(["stats"]).contains("throttled  mail: rate_limited until 2"));
    assert_eq!(place.json(["stats", "--queue", "parcels"])["held"], json!([]));
    assert!(place.done(["queue", "ls"]).contains("rate_limited until 2"));
    assert!(place.done(["doctor"]).contains("ostler queue release mail"));
    assert_eq!(place.done(["queue", "release", "mail"]), "mail is no longer on hold\n");
    assert_eq!(place.done(["queue", "release", "mail"]), "mail was not on hold\n");
    assert_eq!(place.json(["show", &id])["held"], Value::Null);
    assert_eq!(hands.complete("mail", "null").to_string(), id);
}

#[test]
fn a_key_that_is_held_holds_nobody_else() {
    let place = Place::new();
    place.done(["queue", "set", "mail", "--key", "payload.tenant"]);
    let hands = Hands::join(&place);
    hands.enqueue("mail", "send", r#"{"tenant":"a"}"#);
    told_to_wait(&hands);
    let waits = hands.enqueue("mail", "send", r#"{"tenant":"a"}"#).to_string();
    let goes = hands.enqueue("mail", "send", r#"{"tenant":"b"}"#).to_string();
    assert_eq!(hands.complete("mail", "null").to_string(), goes);
    let task = place.json(["show", &waits]);
    assert_eq!((&task["waits_for"], &task["held"]["key"]), (&json!("rate_limited"), &json!("a")));
    assert!(place.done(["show", &waits]).contains("its limit key: rate_limited until 2"));
    let queue = place.json(["queue", "show", "mail"]);
    assert_eq!((&queue["held"], &queue["keys"][0]["key"]), (&Value::Null, &json!("a")));
    has_exactly(&queue["keys"][0], &KEY);
    assert!(place.done(["stats"]).contains("throttled  mail, key a: rate_limited until 2"));
    assert!(
        place.done(["queue", "release", "mail", "--key", "a"]).starts_with("a of mail is no longer on hold")
    );
    assert_eq!(hands.complete("mail", "null").to_string(), waits);
}

#[test]
fn breakers_are_listed_opened_and_reset_by_hand() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    assert_eq!(place.json(["breaker", "ls"]), json!([]));
    assert_eq!(place.done(["breaker", "ls"]), "there are no breakers\n");
    let open = place.json(["breaker", "open", "mail", "--for", "1h"]);
    has_exactly(&open, &BREAKER);
    assert_eq!((&open["state"], &open["breaker"]), (&json!("open"), &Value::Null));
    assert!(open["until"].is_string());
    assert_eq!(place.json(["breaker", "ls"]), json!([open]));
    assert_eq!(place.json(["show", &id])["held"]["waits_for"], "breaker_open");
    let said = place.done(["breaker", "open", "mail"]);
    assert_eq!(said, "the breaker of mail is open until it is reset\n");
    assert_eq!(place.json(["show", &id])["held"]["until"], Value::Null);
    assert_eq!(place.done(["breaker", "reset", "mail"]), "the breaker of mail is closed\n");
    assert_eq!(place.json(["show", &id])["held"], Value::Null);

    place.done(["queue", "set", "mail", "--breaker", "failures=1,reset=1h,per=key"]);
    let rule = &place.json(["breaker", "ls"])[0];
    assert_eq!((&rule["state"], &rule["breaker"]["per"]), (&Value::Null, &json!("key")));
    assert!(place.done(["breaker", "ls"]).contains("per key"));
    let open = place.json(["breaker", "open", "mail", "--key", "acme"]);
    assert_eq!(
        (&open["key"], &open["state"], &open["until"]),
        (&json!("acme"), &json!("open"), &Value::Null)
    );
    assert_eq!(place.json(["breaker", "ls"])[1], open);
    let said = place.done(["breaker", "reset", "mail", "--key", "acme"]);
    assert_eq!(said, "the breaker of acme of mail is closed\n");
    assert_eq!(place.json(["breaker", "ls"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn strict_priorities_are_set_for_a_queue_and_shown() {
    let place = Place::new();
    let set = place.json(["queue", "set", "mail", "--priority", "strict", "--key-until", "end"]);
    assert_eq!((&set["priority"], &set["key_until"]), (&json!("strict"), &json!("end")));
    let shown = place.done(["queue", "show", "mail"]);
    assert!(
        shown.contains("priority     strict\n") && shown.contains("until the end of the task"),
        "{shown}"
    );
    place.done(["submit", "mail", "send", "--payload", "1", "--priority", "-1"]);
    place.done(["submit", "mail", "send", "--payload", "2", "--priority", "1"]);
    place.done(["submit", "mail", "send", "--payload", "3"]);
    let hands = Hands::join(&place);
    let order = [(); 3].map(|()| hands.begin("mail").payload);
    assert_eq!(order, ["2", "3", "1"]);
    place.refused(["queue", "set", "mail", "--priority", "high"], 2, "aging, strict");
    assert_eq!(place.json(["queue", "set", "mail", "--priority", "aging"])["priority"], "aging");
}
