//! Raw JSON: payloads, outputs and steps, passed on exactly as they were written.

use ostler_core::is_too_deep;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A JSON text embedded in another one. Numbers keep every digit, and objects the order of their fields.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Embeds the text unchanged. Text that is not JSON, or is nested deeper than JSON parsers accept, becomes a JSON string; only
    /// another program or an earlier version can have written such text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        if is_too_deep(text) {
            return Self(quoted(text));
        }
        let raw = RawValue::from_string(text.trim().to_owned());
        Self(raw.unwrap_or_else(|_| quoted(text)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(from).map(Self)
    }
}

/// Reads one object as two views that share it: raw JSON does not survive the buffer of `flatten`.
pub(crate) fn in_two_parts<'de, A, B, D>(from: D) -> Result<(A, B), D::Error>
where
    A: DeserializeOwned,
    B: DeserializeOwned,
    D: Deserializer<'de>,
{
    let whole = Box::<RawValue>::deserialize(from)?;
    let wrong = |error: serde_json::Error| serde::de::Error::custom(error);
    let one = serde_json::from_str(whole.get()).map_err(wrong)?;
    Ok((one, serde_json::from_str(whole.get()).map_err(wrong)?))
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Json {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Json".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "description": "Any JSON, as it was written." })
    }
}

fn quoted(text: &str) -> Box<RawValue> {
    let quoted = serde_json::Value::from(text).to_string();
    RawValue::from_string(quoted).expect("a quoted string is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_passed_on_as_it_was_written() {
        for text in [r#"{"b":1,"a":12345678901234567890123}"#, "[1.10]", "null", r#""\u0000""#] {
            assert_eq!(serde_json::to_string(&Json::from_text(text)).unwrap(), text);
        }
    }

    #[test]
    fn what_is_nested_too_deep_becomes_a_string() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let most = nested(ostler_core::MAX_NESTING);
        assert_eq!(Json::from_text(&most).as_str(), most);
        for levels in [ostler_core::MAX_NESTING + 1, 100_000] {
            assert_eq!(Json::from_text(&nested(levels)).as_str(), format!("\"{}\"", nested(levels)));
        }
    }

    #[test]
    fn what_is_not_json_becomes_a_string() {
        for (text, shown) in [("hello", r#""hello""#), ("", r#""""#), ("{\"a\"", r#""{\"a\"""#)] {
            assert_eq!(Json::from_text(text).as_str(), shown);
        }
    }
}
