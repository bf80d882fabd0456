//! The description of the API: made from the table, checked in, and compared. A field is added, never renamed or removed.

use std::collections::BTreeSet;
use std::path::Path;

use ostler_server::openapi::document;
use ostler_server::operations::OPERATIONS;
use serde_json::Value;

/// Writes the description instead of comparing it.
const WRITE: &str = "OSTLER_WRITE_OPENAPI";

fn checked_in() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json")
}

#[test]
fn the_description_that_is_checked_in_is_that_of_the_code() {
    let text = serde_json::to_string_pretty(&document()).expect("it is JSON") + "\n";
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(checked_in(), &text).expect("it is written");
    }
    let there = std::fs::read_to_string(checked_in()).unwrap_or_default();
    let before: Value = serde_json::from_str(&there).unwrap_or_default();
    let gone: Vec<String> = names(&before).difference(&names(&document())).cloned().collect();
    assert!(gone.is_empty(), "these were promised to users, and are gone: {gone:?}");
    assert!(
        there == text,
        "docs/openapi.json is not up to date: {WRITE}=1 ./test -p ostler-server -- description"
    );
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
    let gone: Vec<String> = names(&document()).difference(&names(&less)).cloned().collect();
    assert_eq!(gone, ["/components/schemas/Summary/properties/waits_for"]);
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
