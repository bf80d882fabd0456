//! `ostler dead`.

use crate::hands::Hands;
use crate::ostler::Place;

/// Two dead letters and a live task.
fn scene(place: &Place) -> [String; 3] {
    scene_of(&Hands::join(place))
}

fn scene_of(hands: &Hands) -> [String; 3] {
    hands.enqueue("mail", "send", r#"{"to":"anna"}"#);
    let first = hands.fail("mail", "connection refused");
    hands.enqueue("docs", "scan", "2");
    let second = hands.fail("docs", "not a picture");
    let living = hands.enqueue("mail", "send", "3");
    [first, second, living].map(|id| id.to_string())
}

#[test]
fn only_dead_letters_are_listed_and_shown() {
    let place = Place::new();
    let [first, second, living] = scene(&place);
    let list = place.json(["dead", "ls"]);
    assert_eq!(
        (&list[0]["id"], &list[1]["id"], list.as_array().map(Vec::len)),
        (&second.as_str().into(), &first.as_str().into(), Some(2))
    );
    assert_eq!(place.json(["dead", "ls", "--matching", "REFUSED"])[0]["id"], first.as_str());
    assert_eq!(place.json(["dead", "show", &first])["error"]["message"], "connection refused");
    place.refused(["dead", "show", &living], 4, "is not a dead letter: it is queued");
}

#[test]
fn dead_letters_are_replayed_by_id_or_by_text() {
    let place = Place::new();
    let [first, second, living] = scene(&place);
    place.refused(["dead", "replay", "--matching", "refused"], 2, "--yes");
    assert_eq!(place.done(["dead", "replay", "--matching", "refused", "--yes"]), "1 task: 1 queued again\n");
    assert_eq!(place.json(["show", &first])["state"], "queued");
    place.refused(["dead", "replay", &living], 2, "is queued");
    assert_eq!(place.done(["dead", "replay", &second, "--payload", "7"]), format!("{second} queued again\n"));
    assert_eq!(place.json(["show", &second])["payload"], 7);
    assert_eq!(place.json(["dead", "ls"]), serde_json::json!([]));
}

#[test]
fn dead_letters_are_dropped_and_nothing_else_is() {
    let place = Place::new();
    let [first, second, living] = scene(&place);
    place.refused(["dead", "drop"], 2, "name tasks");
    place.refused(["dead", "drop", &living], 2, "is queued");
    assert_eq!(place.done(["dead", "drop", &first]), format!("{first} removed\n"));
    place.refused(["show", &first], 4, "there is no task");
    place.refused(["dead", "drop", "--all"], 2, "--yes");
    assert_eq!(place.json(["dead", "drop", "--all", "--yes"])[0]["result"], "dropped");
    place.refused(["show", &second], 4, "there is no task");
    assert_eq!(place.json(["show", &living])["state"], "queued");
    assert_eq!(place.json(["stats"])["tasks"]["failed"], 2, "lifetime counts stay");
}

#[test]
fn many_dead_letters_are_replayed_by_name_and_all_of_them_by_one_word() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let [first, second, living] = scene_of(&hands);
    assert_eq!(
        place.done(["dead", "replay", &first, &second]),
        format!("{first} queued again\n{second} queued again\n")
    );
    for id in [&first, &second] {
        assert_eq!(place.json(["show", id])["waits_for"], "replayed");
    }
    hands.enqueue("docs", "scan", "4");
    for _ in 0..2 {
        hands.fail("docs", "again");
    }
    place.refused(["dead", "replay"], 2, "name tasks");
    let all = place.json(["dead", "replay", "--all", "--yes"]);
    assert_eq!(all.as_array().map(Vec::len), Some(2), "{all}");
    assert_eq!(place.json(["dead", "ls"]), serde_json::json!([]));
    assert_eq!(place.json(["show", &living])["runs"], 0, "what is no dead letter is left alone");
}

#[test]
fn dead_letters_are_found_by_class_and_by_the_time_they_failed() {
    let place = Place::new();
    let [first, second, _] = scene(&place);
    let ids = |words: &[&str]| -> Vec<String> {
        let list = place.json(["dead", "ls"].iter().chain(words));
        let id = |task: &serde_json::Value| task["id"].as_str().expect("an id").to_owned();
        list.as_array().expect("a list").iter().map(id).collect()
    };
    assert_eq!(ids(&["--class", "permanent"]), [second.clone(), first.clone()]);
    assert_eq!(ids(&["--class", "timeout"]), Vec::<String>::new());
    let at = place.json(["show", &second])["last_failure"].as_str().expect("a moment").to_owned();
    assert!(ids(&["--failed-since", &at]).contains(&second));
    assert_eq!(ids(&["--ended-since", "2999-01-01T00:00:00Z"]), Vec::<String>::new());
    assert_eq!(ids(&["--ended-until", "2999-01-01T00:00:00Z"]).len(), 2);
    assert!(!ids(&["--failed-until", &at]).contains(&second), "before that moment, and not at it");
    assert_eq!(ids(&["--failed-since", "2999-01-01T00:00:00Z"]), Vec::<String>::new());
    assert_eq!(
        ids(&["--queue", "docs", "--kind", "scan", "--failed-since", "2000-01-01T00:00:00Z"]),
        [second]
    );
    place.refused(["dead", "ls", "--class", "odd"], 2, "odd");
    let chosen = place.json(["dead", "replay", "--class", "permanent", "--queue", "mail", "--yes"]);
    assert_eq!((&chosen[0]["id"], chosen.as_array().map(Vec::len)), (&first.as_str().into(), Some(1)));
}

#[test]
fn a_replay_keeps_the_steps_unless_it_begins_from_scratch() {
    let place = Place::new();
    let hands = Hands::join(&place);
    let id = hands.enqueue("mail", "send", "1").to_string();
    let task = hands.begin("mail");
    hands.step(task.lease.as_ref(), "fetched", "[1]");
    let failure = ostler_core::Failure::new(ostler_core::ErrorClass::Permanent, "no");
    hands.end(task, ostler_core::Outcome::Failed(failure), None);
    place.done(["dead", "replay", &id]);
    assert_eq!(place.json(["show", &id])["steps"], serde_json::json!({"fetched": [1]}));
    hands.fail("mail", "again");
    place.done(["dead", "replay", &id, "--from-scratch"]);
    let task = place.json(["show", &id]);
    assert_eq!((&task["steps"], &task["failures"]), (&serde_json::json!({}), &0.into()));
}

#[test]
fn another_payload_is_for_one_dead_letter() {
    let place = Place::new();
    let [first, second, _] = scene(&place);
    place.refused(
        ["dead", "replay", &first, &second, "--payload", "7"],
        2,
        "--payload needs exactly one dead letter",
    );
    place.refused(["dead", "replay", "--all", "--yes", "--payload", "7"], 2, "--payload needs exactly one");
    place.refused(["dead", "replay", &first, "--payload", "{"], 2, "JSON");
    assert_eq!(place.json(["dead", "ls"]).as_array().map(Vec::len), Some(2), "nothing was replayed");
    place.done(["dead", "replay", &first, "--payload", r#"{"to":"bert"}"#]);
    assert_eq!(place.json(["show", &first])["payload"], serde_json::json!({"to": "bert"}));
}
