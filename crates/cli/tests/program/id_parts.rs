//! Tasks named by a part of their id.

use serde_json::json;

use crate::ostler::Place;

const ONE: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";
const OTHER: &str = "01JC8Z0Q4M9T7N3V5X1B2D6G9K";

fn place() -> Place {
    let place = Place::new();
    for id in [ONE, OTHER] {
        place.done(["submit", "mail", "send", "--id", id]);
    }
    place
}

#[test]
fn a_task_is_named_by_the_beginning_or_the_end_of_its_id() {
    let place = place();
    for part in ["6f8h", "D6F8H", &ONE[3..], &ONE[..24]] {
        assert_eq!(place.json(["show", part])["id"], ONE, "{part}");
    }
    assert_eq!(place.json(["cancel", "6G9K"])[0]["id"], OTHER);
    assert_eq!(place.json(["ls", "--state", "cancelled"])[0]["id"], OTHER);
    let after = place.done(["submit", "mail", "send", "--after", "6F8H"]);
    assert_eq!(place.json(["show", after.trim()])["after"], json!([ONE]));
    assert_eq!(place.json(["amend", "6F8H", "--attempts", "9"])["id"], ONE);
}

#[test]
fn a_part_of_several_ids_is_refused_with_all_of_them_and_of_none_not_found() {
    let place = place();
    for words in [["show", "01JC8Z"], ["cancel", "01jc8z"]] {
        let ran = place.run(words);
        ran.is_refused(2, "01JC8Z may be any of these; give more of the id");
        assert!(ran.err.contains(ONE) && ran.err.contains(OTHER), "{ran:?}");
    }
    place.refused(["show", "ABCD"], 4, "there is no task whose id begins or ends with ABCD");
    place.refused(["show", "6F8"], 2, "its first or last 4 or more are enough");
    assert_eq!(
        place.json(["ls", "--state", "queued"]).as_array().map(Vec::len),
        Some(2),
        "nothing was cancelled"
    );
}
