//! An item of a map job: bytes, and fields if it comes from a CSV or JSON file.

/// One item of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The item as given; of a row the row as a JSON object. File names need not be UTF-8.
    pub bytes: Vec<u8>,
    /// Names and values in order; empty unless the item is a row.
    pub fields: Vec<(String, String)>,
    pub form: ItemForm,
    /// Its parts, if it has several: one of each source, a column each, or the items of one run. Empty: it is its only part.
    pub parts: Vec<Vec<u8>>,
}

/// What an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemForm {
    #[default]
    Text,
    /// The path of a file.
    File,
    /// A row of a table, or a JSON object.
    Row,
}

impl Item {
    #[must_use]
    pub fn plain(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), ..Self::default() }
    }

    #[must_use]
    pub fn file(path: impl Into<Vec<u8>>) -> Self {
        Self { form: ItemForm::File, ..Self::plain(path) }
    }

    /// The columns of a row, with their JSON values.
    #[must_use]
    pub fn row(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        match self.form {
            ItemForm::Row => serde_json::from_slice(&self.bytes).ok(),
            ItemForm::Text | ItemForm::File => None,
        }
    }

    /// The item as text for display. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Its parts, or else itself.
    #[must_use]
    pub fn arguments(&self) -> &[Vec<u8>] {
        if self.parts.is_empty() { std::slice::from_ref(&self.bytes) } else { &self.parts }
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A part of a path, as placeholders name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPart {
    /// `{}`
    Whole,
    /// `{.}`: without its extension.
    Stem,
    /// `{/}`: after the last slash.
    Name,
    /// `{//}`: before the last slash.
    Folder,
    /// `{/.}`: the name without its extension.
    NameStem,
}

impl PathPart {
    #[must_use]
    pub fn of(self, path: &[u8]) -> &[u8] {
        match self {
            Self::Whole => path,
            Self::Stem => without_extension(path),
            Self::Name => last(path, b'/').map_or(path, |at| &path[at + 1..]),
            Self::Folder => match last(path, b'/') {
                Some(0) => b"/",
                Some(at) => &path[..at],
                None => b".",
            },
            Self::NameStem => without_extension(Self::Name.of(path)),
        }
    }
}

/// A dot at the start of a name, or in a folder's name, does not start an extension.
fn without_extension(path: &[u8]) -> &[u8] {
    let name_at = last(path, b'/').map_or(0, |at| at + 1);
    match last(&path[name_at..], b'.') {
        Some(dot) if dot > 0 => &path[..name_at + dot],
        Some(_) | None => path,
    }
}

fn last(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().rposition(|byte| *byte == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_path_are_those_of_gnu_parallel() {
        for (path, stem, name, folder, name_stem) in [
            ("a/b.tar.gz", "a/b.tar", "b.tar.gz", "a", "b.tar"),
            ("b.md", "b", "b.md", ".", "b"),
            ("plain", "plain", "plain", ".", "plain"),
            ("a.b/plain", "a.b/plain", "plain", "a.b", "plain"),
            (".hidden", ".hidden", ".hidden", ".", ".hidden"),
            ("a/.hidden", "a/.hidden", ".hidden", "a", ".hidden"),
            ("/top", "/top", "top", "/", "top"),
            ("a/", "a/", "", "a", ""),
        ] {
            let text = |part: PathPart| String::from_utf8(part.of(path.as_bytes()).to_vec()).expect("text");
            assert_eq!(
                [PathPart::Stem, PathPart::Name, PathPart::Folder, PathPart::NameStem].map(text),
                [stem, name, folder, name_stem],
                "{path}"
            );
        }
    }
}
