//! Tolerant access to JSON that another program wrote: what is missing or of another type is `None`.

use serde_json::Value;

/// The text of a field.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// The whole number of a field. A float such as `3.0` counts too.
pub(crate) fn whole(value: &Value, field: &str) -> Option<u64> {
    let number = value.get(field)?;
    number.as_u64().or_else(|| number.as_f64().filter(|float| *float >= 0.0).map(|float| float as u64))
}

/// The elements of a list; none if there is no list.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text of content that is a string, or a list of strings and blocks with a `text`. Other content is shown as JSON.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let plain = |block: &Value| block.as_str().or_else(|| text(block, "text")).map(str::to_owned);
            let texts = blocks.iter().map(|block| plain(block).unwrap_or_else(|| block.to_string()));
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}
