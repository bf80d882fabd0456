//! Program arguments: bytes that are nearly always UTF-8 text.

use serde::{Deserialize, Serialize};

/// A program argument, or bytes that a program wrote. In JSON a string, or a list of bytes where it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "ByteForm", into = "ByteForm")]
pub struct Argument(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ByteForm {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<ByteForm> for Argument {
    fn from(written: ByteForm) -> Self {
        match written {
            ByteForm::Text(text) => Self(text.into_bytes()),
            ByteForm::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Argument> for ByteForm {
    fn from(argument: Argument) -> Self {
        String::from_utf8(argument.0).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl<T: Into<String>> From<T> for Argument {
    fn from(text: T) -> Self {
        Self(text.into().into_bytes())
    }
}

impl Argument {
    /// Returns the argument as text for display. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_string_and_other_bytes_are_a_list() {
        for (bytes, json) in [(&b"a \"b\""[..], r#""a \"b\"""#), (b"\xff/", "[255,47]"), (b"", "\"\"")] {
            let argument = Argument(bytes.to_vec());
            assert_eq!(serde_json::to_string(&argument).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Argument>(json).expect("an argument"), argument);
        }
    }
}
