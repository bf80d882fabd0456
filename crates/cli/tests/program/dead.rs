//! `ostler dead`.

use crate::hands::Hands;
use crate::ostler::Place;

/// Two dead letters and a living task.
fn scene(place: &Place) -> [String; 3] {
    let hands = Hands::join(place);
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
    place.refused(["dead", "show", &living], 4, "is no dead letter: it is queued");
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
