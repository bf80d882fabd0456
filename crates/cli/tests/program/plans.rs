//! Dependencies, unique keys, deadlines; and `ostler amend`.

use ostler_core::{ErrorClass, Failure, Outcome};
use ostler_store::Store as _;
use ostler_testkit::ProcessSignal;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::ostler::{Place, Running, ran};

const UNKNOWN_ID: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";

fn submit(place: &Place, words: &[&str]) -> String {
    place.done(["submit", "mail", "send"].iter().chain(words)).trim().to_owned()
}

fn shown(place: &Place, id: &str) -> Value {
    place.json(["show", id])
}

// ---- after --------------------------------------------------------------------------------------------

#[test]
fn a_task_runs_after_those_that_it_waits_for() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let (first, second) = (submit(&place, &[]), submit(&place, &["--key", "two"]));
    let last = submit(&place, &["--after", &format!("{first},key:two")]);
    let task = shown(&place, &last);
    assert_eq!((&task["waits_for"], &task["after"]), (&json!("dependency"), &json!([first, second])));
    assert!(place.done(["ls"]).contains("queued (dependency)"));
    assert!(
        place.done(["show", &last]).contains(&format!("waits for     {first}\nwaits for     {second}\n"))
    );
    assert_eq!(hands.complete("mail", "1").to_string(), first);
    assert_eq!(shown(&place, &last)["after"], json!([second]));
    assert_eq!(hands.complete("mail", "2").to_string(), second);
    assert_eq!(hands.complete("mail", "3").to_string(), last);
    // Completed dependencies do not block.
    let more = submit(&place, &["--after", &first, "--after", &second]);
    assert_eq!(shown(&place, &more)["after"], json!([]));
    assert_eq!(hands.complete("mail", "4").to_string(), more);
}

#[test]
fn what_happens_when_one_of_them_fails_is_a_choice() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let first = submit(&place, &[]);
    let after = |choice: &[&str]| submit(&place, &[&["--after", first.as_str()], choice].concat());
    let cancelled = after(&[]);
    let runs = after(&["--if-failed", "run"]);
    let waits = after(&["--if-failed", "wait"]);
    hands.fail("mail", "no");
    let task = shown(&place, &cancelled);
    assert_eq!((&task["state"], &task["error"]["class"]), (&json!("cancelled"), &json!("dependency")));
    assert_eq!(shown(&place, &waits)["waits_for"], "dependency");
    assert_eq!(hands.complete("mail", "1").to_string(), runs);
    place.done(["retry", &first]);
    assert_eq!(hands.complete("mail", "2").to_string(), first);
    assert_eq!(hands.complete("mail", "3").to_string(), waits);
}

#[test]
fn who_is_to_be_waited_for_must_be_there() {
    let place = Place::new();
    let after = |other: &'static str| ["submit", "mail", "send", "--after", other];
    place.refused(after(UNKNOWN_ID), 3, "there is no store");
    assert!(!place.store().exists());
    submit(&place, &[]);
    place.refused(
        after(UNKNOWN_ID),
        4,
        "there is no task 01JC8Z0Q4M9T7N3V5X1B2D6F8H to run after; nothing was enqueued",
    );
    place.refused(after("key:none"), 4, "there is no task with the key \"none\" in the queue \"mail\"");
    place.refused(after("17"), 2, "or key:K");
    place.refused(["submit", "mail", "send", "--if-failed", "run"], 2, "--after");
    place.refused(
        ["submit", "mail", "send", "--after", UNKNOWN_ID, "--if-failed", "x"],
        2,
        "cancel, run, wait",
    );
    assert_eq!(place.json(["stats"])["submitted"], 1);
}

// ---- keys ---------------------------------------------------------------------------------------------

#[test]
fn a_taken_key_is_kept_replaced_or_refused() {
    let place = Place::new();
    let with = |words: &[&'static str]| {
        ran(place.command(["submit", "mail", "send", "--json", "--key", "k"]).args(words))
    };
    let first = with(&["--payload", "1"]).json();
    assert_eq!(first["result"], "created");
    let kept = with(&["--payload", "2", "--if-taken", "keep"]).json();
    assert_eq!((&kept["id"], &kept["result"]), (&first["id"], &json!("existing")));
    let id = first["id"].as_str().expect("an id");
    assert_eq!(shown(&place, id)["payload"], 1);
    let replaced = with(&["--payload", "3", "--if-taken", "replace"]).json();
    assert_eq!((&replaced["id"], &replaced["result"]), (&first["id"], &json!("replaced")));
    assert_eq!(shown(&place, id)["payload"], 3);
    let rejected = with(&["--if-taken", "reject"]);
    rejected.is_refused(2, &format!("task {id} already has this key; nothing was enqueued"));
    assert_eq!(rejected.json(), json!({"id": id, "result": "rejected"}));
    // A running task is not replaced.
    let hands = Hands::join(&place);
    let _held = hands.begin("mail");
    assert_eq!(with(&["--if-taken", "replace"]).json()["result"], "existing");
}

#[test]
fn a_key_is_had_for_a_time() {
    let place = Place::new();
    let first = submit(&place, &["--key", "k", "--key-for", "1h"]);
    assert_eq!(submit(&place, &["--key", "k", "--key-for", "1ms"]), first);
    let short = submit(&place, &["--key", "s", "--key-for", "1ms"]);
    assert_ne!(submit(&place, &["--key", "s"]), short);
    place.refused(["submit", "mail", "send", "--key-for", "1h"], 2, "--key");
    place.refused(["submit", "mail", "send", "--if-taken", "reject"], 2, "--key");
    place.refused(["submit", "mail", "send", "--key", "k", "--if-taken", "x"], 2, "keep, replace, reject");
    place.refused(["submit", "mail", "send", "--key", "k", "--key-for", "0s"], 2, "longer than zero");
}

#[test]
fn a_key_is_had_until_the_end_of_its_task() {
    let place = Place::new();
    let until_end = || submit(&place, &["--key", "doc", "--key-until", "end"]);
    let first = until_end();
    assert_eq!(until_end(), first);
    let refused = place.run(["submit", "mail", "send", "--key", "doc", "--if-taken", "reject"]);
    refused.is_refused(2, "see --key-until");
    place.done(["cancel", &first]);
    let second = until_end();
    assert_ne!(second, first);
    assert_eq!(place.json(["show", "key:doc", "--queue", "mail"])["id"], second.as_str());
    let retried = place.run(["retry", &first]);
    retried.is_refused(2, &format!("{first} cannot run again while task {second} has its key"));
    let view = place.run(["retry", &first, "--json"]).json();
    assert_eq!((&view[0]["result"], &view[0]["holder"]), (&json!("refused"), &json!(second)));
    place.done(["cancel", &second]);
    place.done(["retry", &first]);
    assert_eq!(place.json(["show", "key:doc", "--queue", "mail"])["id"], first.as_str());
    place.refused(["submit", "mail", "send", "--key-until", "end"], 2, "--key");
    let both = ["submit", "mail", "send", "--key", "k", "--key-until", "end", "--key-for", "1h"];
    place.refused(both, 2, "cannot be used with");
    place.refused(["submit", "mail", "send", "--key", "k", "--key-until", "x"], 2, "removed, end");
}

#[test]
fn what_may_replace_another_task_cannot_wait_for_others() {
    let place = Place::new();
    let first = submit(&place, &[]);
    let taken = submit(&place, &["--key", "k"]);
    let both = ["submit", "mail", "send", "--key", "k", "--if-taken", "replace", "--after", &first];
    place.refused(both, 2, "cannot wait for others");
    assert_eq!(
        place.json(["show", &taken])["after"],
        serde_json::json!([]),
        "the one that is there is as it was"
    );
    assert_eq!(place.json(["ls"]).as_array().map(Vec::len), Some(2));
}

#[test]
fn a_cancel_without_a_node_reaches_all_who_wait_however_many_they_are() {
    const MANY: usize = 2_500;
    let place = Place::new();
    let hands = Hands::join(&place);
    let first = hands.enqueue("mail", "send", "1");
    let ids = ostler_testkit::Ids::new(77);
    let mut waiting = ids.new_tasks(MANY, "mail", "send");
    waiting.iter_mut().for_each(|task| task.after = vec![first]);
    for some in waiting.chunks(500) {
        hands.wait(hands.store.enqueue(some.to_vec())).expect("enqueue answers");
    }
    place.done(["cancel", &first.to_string()]);
    let counts = place.json(["stats"]);
    assert_eq!(counts["tasks"]["cancelled"], MANY + 1, "{counts}");
}

// ---- time ---------------------------------------------------------------------------------------------

#[test]
fn the_time_for_all_attempts_has_an_end() {
    let place = Place::new();
    let id = submit(&place, &["--deadline", "1ms"]);
    let later = submit(&place, &["--deadline", "1h"]);
    let hands = Hands::join(&place);
    hands.wait(hands.store.make_ready(100)).expect("the store is looked after");
    let task = shown(&place, &id);
    assert_eq!((&task["state"], &task["error"]["class"]), (&json!("failed"), &json!("deadline")));
    let task = shown(&place, &later);
    assert_eq!(task["state"], "queued");
    assert!(task["deadline"].as_str() > task["created_at"].as_str(), "{task}");
}

// ---- amend --------------------------------------------------------------------------------------------

#[test]
fn a_task_that_waits_or_runs_gets_other_rules() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = submit(&place, &["--key", "k", "--attempts", "5", "--timeout", "1m"]);
    assert_eq!(place.done(["amend", &id, "--attempts", "2"]), format!("{id} amended\n"));
    let by_key = place.json([
        "amend",
        "key:k",
        "--queue",
        "mail",
        "--backoff",
        "linear",
        "--base",
        "2s",
        "--max",
        "1m",
    ]);
    assert_eq!((&by_key["id"], &by_key["result"]), (&json!(id), &json!("amended")));
    let rules =
        json!({"attempts": 2, "timeout_ms": 60_000, "backoff": "linear", "base_ms": 2_000, "max_ms": 60_000});
    assert_eq!(shown(&place, &id)["rules"], rules, "what was not said stays");
    // It works while the task runs, too: the outcome of this attempt is decided by it.
    let running = hands.begin("mail");
    place.done(["amend", &id, "--attempts", "1"]);
    hands.end(running, Outcome::Failed(Failure::new(ErrorClass::Transient, "no")), None);
    assert_eq!(shown(&place, &id)["state"], "failed");
}

#[test]
fn what_cannot_be_amended_says_why() {
    let place = Place::new();
    place.refused(["amend", UNKNOWN_ID, "--attempts", "2"], 3, "there is no store");
    let hands = Hands::join(&place);
    let id = submit(&place, &[]);
    place.refused(["amend", &id], 2, "--attempts");
    place.refused(["amend", &id, "--attempts", "0"], 2, "from 1 to");
    place.refused(["amend", &id, "--backoff", "slow"], 2, "fixed, linear, exponential");
    place.refused(["amend", &id, "--base", "2m", "--max", "1m"], 2, "--base must not be longer than --max");
    place.refused(["amend", UNKNOWN_ID, "--attempts", "2"], 4, "there is no task");
    hands.complete("mail", "1");
    place.refused(["amend", &id, "--attempts", "2"], 2, "is completed: only a task that has not finished");
}

// ---- settings of a kind --------------------------------------------------------------------------------

#[test]
fn a_kind_has_rules_of_its_own_until_the_file_says_nothing_of_it() {
    let place = Place::new();
    let config = "[pool.shell]\nexecutor = \"command\"\ncommand = [\"false\"]\nretry.attempts = 1\n";
    let kind = "[pool.shell.kind.report]\nretry = { attempts = 3, base = \"1ms\" }\n";
    let failures = |kind: &str| {
        let ended =
            ran(place.command(["submit", "shell", kind, "--wait", "--json"]).args(["--payload", "1"])).json();
        shown(&place, ended["id"].as_str().expect("an id"))["failures"].clone()
    };
    for (text, report) in [(format!("{config}{kind}"), 3), (config.to_owned(), 1)] {
        place.write("ostler.toml", text);
        let node = Running::start(place.command(["up"]));
        assert!(node.line().contains("ready"));
        assert_eq!((failures("report"), failures("other")), (json!(report), json!(1)));
        // Another node with different settings does not start.
        place.write("other.toml", format!("{config}{}", kind.replace('3', "4")));
        let words = ["up", "--config", "other.toml"];
        place.refused(words, 2, "kind.report.retry.attempts is ");
        node.signal(ProcessSignal::TERM);
        assert_eq!(node.end().0, Some(0));
    }
}
