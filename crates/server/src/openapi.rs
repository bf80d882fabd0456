//! The description of the API in the form of OpenAPI 3.1, made from the table of operations and the types of inputs and views.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::operations::{Answers, Credentials, OPERATIONS, Operation, OperationEffect};

/// How a task is named in a path: by its id, by four or more of its first or last letters, or by its key.
const TASK_NAME: &str = "^([0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{4,26}|key:.+)$";

/// The whole description.
#[must_use]
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS.iter().filter(|operation| operation.is_described()) {
        let path = paths.entry(operation.path.replace("{*", "{")).or_insert_with(|| json!({}));
        path[operation.method.name().to_ascii_lowercase()] = described(operation, &mut generator);
    }
    let error = json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": { "type": "string", "description": "For programs; never changes." },
                "message": { "type": "string", "description": "A sentence for people." },
                "details": { "description": "Such as the field that is wrong." }
            }
        }}
    });
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".to_owned(), error);
    let mut whole = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ostler",
            "version": "1",
            "description": "Fields are added, never renamed or removed. Payloads keep every byte."
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }
        }
    });
    write_out(&mut whole);
    for schema in whole["components"]["schemas"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        simplify(schema);
    }
    whole
}

/// Writes the schema `true`, which admits everything, as `{}`: generators of clients refuse the short form.
fn write_out(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if matches!(name.as_str(), "schema" | "items") && *field == Value::Bool(true) {
                    *field = json!({});
                }
                write_out(field);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(write_out),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes alternatives in the one form of which generators of clients make a type that compiles.
fn simplify(schema: &mut Value) {
    let is_words = |parts: &Value| {
        parts.as_array().is_some_and(|parts| parts.iter().all(|part| part["type"] == "string"))
    };
    if schema.get("oneOf").is_some_and(is_words) {
        join_words(schema);
    } else if schema.get("properties").is_some() {
        join_fields(schema);
    } else if let Some(parts) = schema.as_object_mut().and_then(|fields| fields.remove("anyOf")) {
        // An instance of one has a field that the others lack, or refuse: the fuzzer compares answers with this.
        schema["oneOf"] = parts;
    }
}

/// Words of which some have a description: one list. The descriptions follow that of the whole.
fn join_words(schema: &mut Value) {
    let mut about = vec![schema["description"].as_str().unwrap_or_default().to_owned()];
    let mut words: Vec<Value> = Vec::new();
    for part in schema["oneOf"].as_array().into_iter().flatten() {
        words.extend(part["enum"].as_array().cloned().unwrap_or_default());
        if let Some(word) = part["const"].as_str() {
            about.push(format!("`{word}`: {}", part["description"].as_str().unwrap_or_default()));
            words.push(word.into());
        }
    }
    *schema = json!({ "type": "string", "enum": words, "description": about.join(" ").trim() });
}

/// Fields that an object has only in some of its forms: optional ones.
fn join_fields(schema: &mut Value) {
    let forms = schema.as_object_mut().and_then(|fields| fields.remove("anyOf"));
    for form in forms.as_ref().and_then(Value::as_array).into_iter().flatten() {
        for (name, field) in form["properties"].as_object().into_iter().flatten() {
            schema["properties"][name] = field.clone();
        }
    }
}

fn described(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let mut about = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.id.split('.').next().unwrap_or_default()],
        "parameters": parameters(operation, generator),
        "responses": responses(operation, generator),
        "x-effect": match operation.effect { OperationEffect::Look => "look", OperationEffect::Change => "change" },
        "x-access": operation.access.name(),
        "x-danger": operation.danger.name(),
        "x-command": operation.command,
    });
    about["security"] = match operation.credentials {
        Credentials::Needed | Credentials::Token | Credentials::UnlessOpened => json!([{ "token": [] }]),
        Credentials::NotNeeded => json!([]),
    };
    if let Some(body) = operation.body {
        let schema = body(generator);
        let required = whole(&schema, generator).get("required").is_some();
        about["requestBody"] =
            json!({ "required": required, "content": { "application/json": { "schema": schema } } });
    }
    about
}

fn parameters(operation: &Operation, generator: &mut SchemaGenerator) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let name = name.trim_start_matches('*');
        let mut schema = json!({ "type": "string", "minLength": 1 });
        if name == "id" {
            schema["pattern"] = TASK_NAME.into();
        }
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    let mut all: Vec<Value> = names.map(parameter).collect();
    if let Some(query) = operation.query {
        let schema = query(generator);
        for (name, schema) in properties(&schema, generator) {
            all.push(json!({ "name": name, "in": "query", "required": false, "schema": schema }));
        }
    }
    if operation.id == "tasks.submit" || operation.id == "jobs.create" || operation.id == "tasks.continue" {
        all.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "The same key and body: the same answer. Another body: 409.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 }
        }));
    }
    if operation.id == "tasks.submit" {
        all.push(json!({
            "name": "traceparent", "in": "header", "required": false,
            "description": "The W3C trace context of the caller, for tasks without one of their own. A wrong one is ignored.",
            "schema": { "type": "string" }
        }));
    }
    if matches!(operation.answers, Answers::Events(_)) {
        all.push(json!({ "name": "Last-Event-ID", "in": "header", "required": false, "schema": { "type": "string" } }));
    }
    all
}

/// A schema itself, if it is a reference to one.
fn whole<'g>(schema: &'g Schema, generator: &'g SchemaGenerator) -> &'g Value {
    let reference = schema.as_value().get("$ref").and_then(Value::as_str).unwrap_or_default();
    let name = reference.rsplit('/').next().unwrap_or_default();
    generator.definitions().get(name).unwrap_or(schema.as_value())
}

/// The fields of a query.
fn properties(schema: &Schema, generator: &SchemaGenerator) -> Vec<(String, Value)> {
    let fields = whole(schema, generator).get("properties").and_then(Value::as_object);
    fields
        .map(|fields| fields.iter().map(|(name, field)| (name.clone(), field.clone())).collect())
        .unwrap_or_default()
}

fn responses(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let content = |media: &str, schema: Schema| json!({ media: { "schema": schema } });
    let content = match operation.answers {
        Answers::Json(schema) => Some(content("application/json", schema(generator))),
        Answers::Events(schema) => Some(content("text/event-stream", schema(generator))),
        Answers::Lines(schema) => Some(content("application/x-ndjson", schema(generator))),
        Answers::File => Some(json!({ "application/octet-stream": {} })),
        Answers::OpenMetrics => Some(json!({ "text/plain": {}, "application/openmetrics-text": {} })),
        Answers::Nothing | Answers::Page | Answers::PageFile => None,
    };
    let success = match content {
        None => json!({ "description": "Done" }),
        Some(content) => json!({ "description": "Done", "content": content }),
    };
    let error = json!({
        "description": "Not done",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } }
    });
    let mut all = json!({ "default": error });
    all[operation.status.to_string()] = success.clone();
    // Some answer otherwise when there was nothing to create.
    if operation.status == 201 || operation.status == 202 {
        all["200"] = success;
    }
    if matches!(operation.answers, Answers::Events(_)) {
        all["204"] = json!({ "description": "Everything was sent before" });
    }
    all
}
