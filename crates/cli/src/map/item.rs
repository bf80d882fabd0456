//! One item of a map job: some bytes, and fields if it comes from a table.

/// What a job does something with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// As it was given. Names of files need not be text.
    pub(crate) bytes: Vec<u8>,
    /// Names and values, in their order; none unless it is a row of a table.
    pub(crate) fields: Vec<(String, String)>,
}

impl Item {
    /// An item without fields.
    pub(crate) fn plain(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), fields: Vec::new() }
    }

    /// The whole path without its extension: `{.}`.
    pub(crate) fn stem(&self) -> &[u8] {
        without_extension(&self.bytes)
    }

    /// What comes after the last slash: `{/}`.
    pub(crate) fn name(&self) -> &[u8] {
        match last(&self.bytes, b'/') {
            Some(at) => &self.bytes[at + 1..],
            None => &self.bytes,
        }
    }

    /// What comes before the last slash: `{//}`.
    pub(crate) fn folder(&self) -> &[u8] {
        match last(&self.bytes, b'/') {
            Some(0) => b"/",
            Some(at) => &self.bytes[..at],
            None => b".",
        }
    }

    /// The name without its extension: `{/.}`.
    pub(crate) fn name_stem(&self) -> &[u8] {
        without_extension(self.name())
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A dot that begins a name, or stands in a folder's, begins no extension.
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
            let item = Item::plain(path);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            assert_eq!(
                [text(item.stem()), text(item.name()), text(item.folder()), text(item.name_stem())],
                [stem, name, folder, name_stem],
                "{path}"
            );
        }
    }
}
