//! `ostler submit --jsonl`.

use std::fmt::Write as _;

use ostler_store::Store as _;
use ostler_store::calls::QueueChange;
use serde_json::{Value, json};

use crate::hands::Hands;
use crate::ostler::{Place, Ran};

const ID: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";

fn submit(place: &Place, lines: &str) -> Ran {
    place.run_with(["submit", "--jsonl", "-", "mail", "send"], lines.as_bytes())
}

/// The objects of JSON lines.
fn objects(ran: &Ran) -> Vec<Value> {
    ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn each_line_is_a_task_with_the_options_of_submit() {
    let place = Place::new();
    let lines = format!(
        "{}\n\n{}\n{}",
        json!({"payload": {"n": 1}}),
        json!({"queue": "shell", "kind": "run", "id": ID, "priority": -7, "key": "k", "key_until": "end",
            "in": "1h", "attempts": 9, "timeout": "90s", "limit_key": "acme", "not_after": "2999-01-01T00:00:00Z"}),
        json!({"after": [ID], "if_failed": "run"}),
    );
    let file = place.write("tasks.jsonl", lines);
    let said = place.run(["submit", "--jsonl", file.to_str().expect("UTF-8"), "mail", "send"]);
    assert!(said.code == Some(0) && said.err.ends_with("\nostler: 3 created\n"), "{said:?}");
    let ids: Vec<&str> = said.out.lines().collect();
    assert_eq!((ids.len(), ids[1]), (3, ID));
    let first = place.json(["show", ids[0]]);
    assert_eq!(
        (&first["queue"], &first["kind"], &first["payload"]),
        (&json!("mail"), &json!("send"), &json!({"n": 1}))
    );
    let second = place.json(["show", ID]);
    assert_eq!(
        (&second["queue"], &second["priority"], &second["key"]),
        (&json!("shell"), &json!(-7), &json!("k"))
    );
    assert_eq!((&second["waits_for"], &second["limit_key"]), (&json!("scheduled"), &json!("acme")));
    assert_eq!(place.json(["show", ids[2]])["after"], json!([ID]));
}

#[test]
fn a_wrong_line_is_named_and_nothing_of_its_batch_is_stored() {
    let place = Place::new();
    for (line, words) in [
        ("{", "line 3: EOF"),
        ("{\"prio\":1}", "line 3: unknown field `prio`"),
        ("{\"payload\":1,\"priority\":101}", "line 3: priority"),
        ("{\"key\":\"\"}", "line 3: unique key"),
    ] {
        submit(&place, &format!("{{}}\n\n{line}\n{{}}\n")).is_refused(2, words);
        assert!(!place.store().exists(), "what is refused makes no store");
    }
    place.refused(["submit", "--jsonl", "none.jsonl", "mail", "send"], 2, "cannot read none.jsonl");
    place.refused(["submit", "--jsonl", "-", "--key", "k"], 2, "cannot be used with");
    place.refused(["submit", "mail"], 2, "KIND");
    submit(&place, "{}\n{\"after\":[\"ABCD\"]}\n").is_refused(4, "line 2: there is no task whose id");
    assert_eq!(place.json(["stats"])["submitted"], 0);
}

/// More than one batch, which a wrong line ends after the first; the same file, mended, brings the rest.
#[test]
fn a_file_with_ids_can_be_submitted_again_and_brings_only_what_is_missing() {
    const LINES: usize = 10_005;
    let place = Place::new();
    let mut lines = String::new();
    for number in 0..LINES {
        let _ = writeln!(lines, "{{\"id\":\"01JC8Z0Q4M00000000000{number:05}\",\"payload\":{number}}}");
    }
    let broken = format!("{lines}{{\"payload\":}}\n");
    let said = submit(&place, &broken);
    said.is_refused(2, "line 10006: ");
    assert!(said.err.contains("nothing of this batch was stored; before it: 10000 created"), "{}", said.err);
    assert_eq!(place.json(["stats"])["submitted"], 10_000);
    let again = submit(&place, &lines);
    assert!(
        again.code == Some(0) && again.err.ends_with("\nostler: 5 created, 10000 existing\n"),
        "{again:?}"
    );
    assert_eq!(again.out.lines().count(), LINES);
    let hands = Hands::join(&place);
    assert_eq!(hands.begin("mail").payload, "0", "tasks are in the order of their lines");
}

#[test]
fn lines_that_the_store_refuses_are_told_one_by_one() {
    let place = Place::new();
    place.done(["submit", "mail", "send", "--id", ID, "--key", "k"]);
    let lines = format!(
        "{}\n{}\n{}\n{}\n",
        json!({"key": "k", "if_taken": "reject"}),
        json!({"id": ID, "payload": "other work"}),
        json!({"key": "k"}),
        json!({}),
    );
    let ran = place.run_with(["submit", "--jsonl", "-", "mail", "send", "--json"], lines.as_bytes());
    ran.is_refused(2, "2 lines were refused; the others: 1 created, 1 existing");
    assert!(ran.err.contains("line 1: task") && ran.err.contains("line 2: the id"), "{}", ran.err);
    let said = objects(&ran);
    let results: Vec<&Value> = said.iter().map(|line| &line["result"]).collect();
    assert_eq!(results, ["rejected", "id_taken", "existing", "created"]);
    assert_eq!((&said[2]["line"], &said[2]["id"]), (&json!(3), &json!(ID)));
}

#[test]
fn a_full_queue_takes_what_has_room() {
    let place = Place::new();
    let hands = Hands::join(&place);
    hands.wait(hands.store.configure("mail", vec![QueueChange::Limit(Some(2))])).expect("it is set");
    let ran = submit(&place, "{}\n{}\n{}\n");
    ran.is_refused(5, "line 3: the queue \"mail\" is full: 2 tasks");
    assert_eq!(ran.out.lines().count(), 2);
}
