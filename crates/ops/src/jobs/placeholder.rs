//! Placeholders of `ostler map`: `{}`, `{.}`, `{1}`, `{name}`, as in GNU parallel. Other braces are text.

use super::item::{Item, PathPart};

/// What items have for placeholders.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ItemShape<'a> {
    /// The names of their columns.
    pub(super) fields: &'a [String],
    /// The largest number of their parts.
    pub(super) parts: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// `{}`, `{.}`: all parts of the item.
    Item(PathPart),
    /// `{1}`, `{2.}`: one of its parts, counted from 0.
    Part(usize, PathPart),
    /// `{#}`
    Number,
    /// `{name}`
    Field(String),
}

impl Placeholder {
    /// What it stands for: a word for each part of the item.
    pub(super) fn values(&self, item: &Item, number: u64) -> Vec<Vec<u8>> {
        match self {
            Self::Item(form) => item.arguments().iter().map(|part| form.of(part).to_vec()).collect(),
            // An item with fewer parts has an empty one.
            Self::Part(at, form) => {
                vec![item.arguments().get(*at).map(|part| form.of(part).to_vec()).unwrap_or_default()]
            }
            Self::Number => vec![number.to_string().into_bytes()],
            // A row without this field has an empty value.
            Self::Field(name) => vec![item.field(name).unwrap_or_default().as_bytes().to_vec()],
        }
    }
}

impl std::fmt::Display for Placeholder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let form = |form: &PathPart| match form {
            PathPart::Whole => "",
            PathPart::Stem => ".",
            PathPart::Name => "/",
            PathPart::Folder => "//",
            PathPart::NameStem => "/.",
        };
        match self {
            Self::Item(part) => write!(f, "{{{}}}", form(part)),
            Self::Part(at, part) => write!(f, "{{{}{}}}", at + 1, form(part)),
            Self::Number => f.write_str("{#}"),
            Self::Field(name) => write!(f, "{{{name}}}"),
        }
    }
}

/// The placeholder at the start of the text, and its length, after the text `before`. Other braces are text, as `awk '{print}'` needs; what
/// is meant as a placeholder and is none is an error.
pub(super) fn brace_at(
    text: &[u8],
    before: &[u8],
    shape: ItemShape<'_>,
) -> Result<Option<(Placeholder, usize)>, UnknownPlaceholder> {
    let Some(inside) = inside_of(text) else { return Ok(None) };
    let length = inside.len() + 2;
    let sigil = before.last().is_some_and(|last| b"$@%#".contains(last));
    if let Some((number, form)) = part_of(inside) {
        if sigil {
            return Ok(None);
        }
        if (1..=shape.parts.max(1)).contains(&number) {
            return Ok(Some((Placeholder::Part(number - 1, form), length)));
        }
        // A regular expression may repeat something: x{3}.
        let repeats = before.last().is_some_and(|last| last.is_ascii_alphanumeric() || b")].".contains(last));
        if repeats && shape.parts < 2 && form == PathPart::Whole {
            return Ok(None);
        }
        let name = String::from_utf8_lossy(inside).into_owned();
        return Err(UnknownPlaceholder::Part { name, parts: shape.parts.max(1) });
    }
    if let Some(place) = place_of(inside, shape) {
        return Ok(Some((place, length)));
    }
    match std::str::from_utf8(inside) {
        Ok(name) if !sigil && FOREIGN.contains(&name) => Err(UnknownPlaceholder::Foreign(name.to_owned())),
        Ok(name)
            if !sigil && (is_name(name) || is_path_of_field(name, shape)) && !AWK_ACTIONS.contains(&name) =>
        {
            Err(UnknownPlaceholder::column(name, shape.fields))
        }
        Ok(_) | Err(_) => Ok(None),
    }
}

/// The text between the braces at the start.
fn inside_of(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"{")?;
    inside.iter().position(|byte| *byte == b'}').map(|end| &inside[..end])
}

fn place_of(inside: &[u8], shape: ItemShape<'_>) -> Option<Placeholder> {
    if inside == b"#" {
        return Some(Placeholder::Number);
    }
    let form = path_part(inside).map(Placeholder::Item);
    form.or_else(|| {
        let known = shape.fields.iter().find(|field| field.as_bytes() == inside)?;
        Some(Placeholder::Field(known.clone()))
    })
}

fn path_part(text: &[u8]) -> Option<PathPart> {
    match text {
        b"" => Some(PathPart::Whole),
        b"." => Some(PathPart::Stem),
        b"/" => Some(PathPart::Name),
        b"//" => Some(PathPart::Folder),
        b"/." => Some(PathPart::NameStem),
        _ => None,
    }
}

/// The number and the form of `1`, `2/.`: a part of the item.
fn part_of(inside: &[u8]) -> Option<(usize, PathPart)> {
    let digits = inside.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = std::str::from_utf8(&inside[..digits]).ok()?.parse().ok()?;
    Some((number, path_part(&inside[digits..])?))
}

/// Whether the words have placeholders for parts. Before there were any, such braces were text.
pub(super) fn asks_for_parts(words: &[Vec<u8>], parts: usize) -> bool {
    let is_part =
        |inside: &[u8]| part_of(inside).is_some_and(|(number, _)| (1..=parts.max(1)).contains(&number));
    let in_word = |word: &Vec<u8>| {
        (0..word.len()).any(|at| {
            let sigil = at.checked_sub(1).is_some_and(|before| b"$@%#".contains(&word[before]));
            !sigil && inside_of(&word[at..]).is_some_and(is_part)
        })
    };
    words.iter().any(in_word)
}

/// Placeholders of GNU parallel that do not exist here, and mean nothing elsewhere.
const FOREIGN: [&str; 9] = ["%", "##", "..", "...", "/..", "/...", "+/", "+.", "+.."];

/// Whether the text in braces looks like a column name: `{name}`. Not `{print $1}`, `{a,b}` or JSON. Other languages use braces, too, behind a
/// sigil: `${HOME}`, git's `@{upstream}`, curl's `%{http_code}`, Ruby's `#{x}`.
fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    begins && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Whether the text asks for a part of a field: `{user.name}`.
fn is_path_of_field(name: &str, shape: ItemShape<'_>) -> bool {
    name.split_once('.').is_some_and(|(field, _)| shape.fields.iter().any(|known| known == field))
}

/// One-word actions of awk.
const AWK_ACTIONS: [&str; 5] = ["print", "next", "nextfile", "exit", "getline"];

/// A placeholder, or something that looks like one, after a backslash: literal text.
pub(super) fn literal_at<'t>(text: &'t [u8], shape: ItemShape<'_>) -> Option<&'t [u8]> {
    let braced = text.strip_prefix(b"\\")?;
    let is_one = !matches!(brace_at(braced, b"", shape), Ok(None));
    let end = braced.iter().position(|byte| *byte == b'}').filter(|_| is_one)?;
    Some(&braced[..=end])
}

/// A placeholder that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPlaceholder {
    /// The items have columns, but not this one.
    #[error("there is no column \"{name}\"; the columns are {}", .columns.join(", "))]
    Column { name: String, columns: Vec<String> },
    /// The items have no columns.
    #[error("{{{0}}} is not a placeholder: only rows have columns; the item is {{}}")]
    NoColumns(String),
    /// The items have fewer parts.
    #[error("{{{name}}} is not a placeholder: the number of parts of an item is {parts}")]
    Part { name: String, parts: usize },
    /// A placeholder of GNU parallel that does not exist here.
    #[error("{{{0}}} is a placeholder of GNU parallel that does not exist here")]
    Foreign(String),
}

impl UnknownPlaceholder {
    fn column(name: &str, fields: &[String]) -> Self {
        match fields {
            [] => Self::NoColumns(name.to_owned()),
            columns => Self::Column { name: name.to_owned(), columns: columns.to_vec() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_with_parts_are_told_from_those_in_which_such_braces_were_text() {
        let asks = |word: &str, parts| asks_for_parts(&[b"x".to_vec(), word.as_bytes().to_vec()], parts);
        assert!(asks("{1}", 0) && asks("a{2/}", 2) && asks("\\{1}", 1));
        assert!(!asks("{}", 2) && !asks("${1}", 1) && !asks("x{3}", 2) && !asks("{a}", 1));
    }
}
