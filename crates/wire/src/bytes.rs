//! Bytes in JSON: standard output and program arguments, which are nearly always UTF-8 text.

use serde::{Deserialize, Serialize};

/// Bytes in JSON: a string, or a list of numbers where they are not UTF-8. `Argument` of `ostler-process` has the same form; the
/// readers of a store see no executor, so they have a type of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "JsonForm", into = "JsonForm")]
pub struct ByteString(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum JsonForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<JsonForm> for ByteString {
    fn from(written: JsonForm) -> Self {
        match written {
            JsonForm::Text(text) => Self(text.into_bytes()),
            JsonForm::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<ByteString> for JsonForm {
    fn from(bytes: ByteString) -> Self {
        String::from_utf8(bytes.0).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl ByteString {
    /// The bytes as text for display. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// Decodes a piece of standard output from the data of its event. Data in another form is taken as it is.
    #[must_use]
    pub fn of_event(data: &str) -> Self {
        serde_json::from_str(data).unwrap_or_else(|_| Self(data.as_bytes().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_string_and_other_bytes_are_a_list() {
        for (bytes, json) in [(&b"a \"b\""[..], r#""a \"b\"""#), (b"\xff/", "[255,47]"), (b"", "\"\"")] {
            let string = ByteString(bytes.to_vec());
            assert_eq!(serde_json::to_string(&string).expect("JSON"), json);
            assert_eq!(ByteString::of_event(json), string);
        }
        assert_eq!(ByteString::of_event("not JSON").0, b"not JSON");
    }
}
