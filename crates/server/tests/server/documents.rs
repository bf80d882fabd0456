//! The description of the API: made from the table, checked in, and compared. A field is added, never renamed or removed.

use std::collections::BTreeSet;
use std::path::Path;

use ostler_server::openapi::document;
use ostler_server::operations::OPERATIONS;
use serde_json::Value;

/// Writes the description instead of comparing it, unless something is gone from it.
const WRITE: &str = "OSTLER_WRITE_OPENAPI";
/// Its value that also writes one from which something is gone: before a release, or with a new version of the API.
const AND_DROP: &str = "and-drop";

fn checked_in() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

#[test]
fn the_description_that_is_checked_in_is_that_of_the_code() {
    let there = std::fs::read_to_string(checked_in()).unwrap_or_default();
    let text = update(&there, &document(), std::env::var(WRITE).ok().as_deref()).expect("nothing is gone");
    if text != there {
        std::fs::write(checked_in(), &text).expect("it is written");
    }
    assert!(
        text == pretty(&document()),
        "docs/openapi.json is not up to date: {WRITE}=1 ./test -p ostler-server -- description"
    );
}

fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).expect("it is JSON") + "\n"
}

/// What is checked in from now on: the same text, or that of the code if it is to be written.
fn update(there: &str, document: &Value, wanted: Option<&str>) -> Result<String, String> {
    let before: Value = serde_json::from_str(there).unwrap_or_default();
    let gone: Vec<String> = names(&before).difference(&names(document)).cloned().collect();
    match wanted {
        Some(AND_DROP) => Ok(pretty(document)),
        Some(_) | None if !gone.is_empty() => {
            Err(format!("these were promised to users, and are gone: {gone:?}"))
        }
        Some(_) => Ok(pretty(document)),
        None => Ok(there.to_owned()),
    }
}

/// Every path, method, schema and field.
fn names(document: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    collect(document, "", &mut all);
    all
}

fn collect(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let place = format!("{at}/{name}");
                let is_name = at.ends_with("/properties")
                    || at == "/paths"
                    || at.ends_with("/schemas")
                    || at.starts_with("/paths/");
                if is_name {
                    all.insert(place.clone());
                }
                collect(field, &place, all);
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
                collect(item, &format!("{at}/[{name}]"), all);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_vanished_field_is_noticed() {
    let mut less = document();
    let fields = less.pointer_mut("/components/schemas/Summary/properties").and_then(Value::as_object_mut);
    assert!(fields.expect("a task in a list").remove("waits_for").is_some());
    let there = pretty(&document());
    for wanted in [None, Some("1")] {
        let refused = update(&there, &less, wanted).expect_err("it is not written");
        assert!(
            refused.ends_with("gone: [\"/components/schemas/Summary/properties/waits_for\"]"),
            "{refused}"
        );
        // One more is no loss.
        let kept = update(&pretty(&less), &document(), wanted).expect("nothing is gone");
        assert_eq!(kept == there, wanted.is_some());
    }
    assert_eq!(update(&there, &less, Some(AND_DROP)), Ok(pretty(&less)));
}

#[test]
fn the_description_has_the_rows_of_the_table_and_no_others() {
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let mut described = BTreeSet::new();
    for (path, methods) in paths {
        for (method, about) in methods.as_object().expect("methods") {
            described.insert((
                method.to_uppercase(),
                path.clone(),
                about["operationId"].as_str().expect("an id").to_owned(),
            ));
            assert!(about["responses"]["default"].is_object(), "{path}");
        }
    }
    // Pages are for people, and change when they must.
    let table: BTreeSet<_> = OPERATIONS
        .iter()
        .filter(|row| row.is_described())
        .map(|row| (row.method.name().to_owned(), row.path.replace("{*", "{"), row.id.to_owned()))
        .collect();
    assert_eq!(described, table);
    // Each reference leads somewhere.
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name: String = part.chars().take_while(|c| *c != '"').collect();
        assert!(schemas.contains_key(&name), "{name}");
    }
}

#[test]
fn alternatives_have_the_form_of_which_generators_make_one_type() {
    let document = document();
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        assert!(schema.get("anyOf").is_none(), "{name} is the union of its alternatives to a generator");
        let parts = schema["oneOf"].as_array().cloned().unwrap_or_default();
        let kinds: BTreeSet<_> = parts
            .iter()
            .map(|part| part.get("$ref").or(part.get("type")).expect("a kind").to_string())
            .collect();
        assert_eq!(kinds.len(), parts.len(), "{name} has two alternatives of one name");
    }
    let words = &document["components"]["schemas"]["SubmitResult"];
    assert!(words["enum"].as_array().expect("words").contains(&"id_taken".into()), "{words}");
    assert!(words["description"].as_str().expect("a text").contains("`id_taken`: The id belongs"), "{words}");
}
