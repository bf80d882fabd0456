//! Command templates of `ostler map`: words with placeholders, as in GNU parallel.

use super::item::Item;

/// A program and its arguments, or a shell command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandTemplate {
    /// Run directly: each word stays one argument.
    Argv(Vec<TemplateWord>),
    /// Passed to `sh -c`; inserted values are quoted.
    Shell(TemplateWord),
}

/// How much of an argument is data from items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemData {
    None,
    /// The whole argument.
    Whole,
    /// A part of the argument.
    Piece,
}

/// One word: text and placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TemplateWord(Vec<TemplatePiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(Vec<u8>),
    Place(Placeholder),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Placeholder {
    /// `{}`
    Item,
    /// `{.}`
    Stem,
    /// `{/}`
    Name,
    /// `{//}`
    Folder,
    /// `{/.}`
    NameStem,
    /// `{#}`
    Number,
    /// `{name}`
    Field(String),
}

impl CommandTemplate {
    /// Parses the words of a command line. `fields` are the names of the columns. A single word that contains something only a shell
    /// understands is a shell command line.
    pub(super) fn parse(words: &[Vec<u8>], fields: &[String]) -> Result<Self, UnknownPlaceholder> {
        let mut template = match words {
            [line] if needs_shell(line) => Self::Shell(TemplateWord::parse(line, fields)?),
            words => Self::Argv(
                words
                    .iter()
                    .map(|word| TemplateWord::parse(word, fields))
                    .collect::<Result<_, UnknownPlaceholder>>()?,
            ),
        };
        if !template.has_place() {
            match &mut template {
                Self::Argv(words) => words.push(TemplateWord(vec![TemplatePiece::Place(Placeholder::Item)])),
                Self::Shell(line) => {
                    line.0.extend([
                        TemplatePiece::Text(b" ".to_vec()),
                        TemplatePiece::Place(Placeholder::Item),
                    ]);
                }
            }
        }
        Ok(template)
    }

    fn has_place(&self) -> bool {
        let places =
            |word: &TemplateWord| word.0.iter().any(|piece| matches!(piece, TemplatePiece::Place(_)));
        match self {
            Self::Argv(words) => words.iter().any(places),
            Self::Shell(line) => places(line),
        }
    }

    /// How much of each argument of a program is data from items. A shell command line has none: there, items are quoted.
    pub(super) fn data(&self) -> Vec<ItemData> {
        let of_word = |word: &TemplateWord| {
            let of_item = |piece: &TemplatePiece| match piece {
                TemplatePiece::Text(_) | TemplatePiece::Place(Placeholder::Number) => false,
                TemplatePiece::Place(_) => true,
            };
            match word.0.as_slice() {
                [one] if of_item(one) => ItemData::Whole,
                pieces if pieces.iter().any(of_item) => ItemData::Piece,
                _ => ItemData::None,
            }
        };
        match self {
            Self::Argv(words) => words.iter().map(of_word).collect(),
            Self::Shell(_) => Vec::new(),
        }
    }

    /// Whether the command depends on the position of an item.
    pub(super) fn counts(&self) -> bool {
        let counts = |word: &TemplateWord| word.0.contains(&TemplatePiece::Place(Placeholder::Number));
        match self {
            Self::Argv(words) => words.iter().any(counts),
            Self::Shell(line) => counts(line),
        }
    }

    /// The program and its arguments for the `number`-th item, counted from 1.
    pub(super) fn argv(&self, item: &Item, number: u64) -> Vec<Vec<u8>> {
        match self {
            Self::Argv(words) => words.iter().map(|word| word.fill(item, number, <[u8]>::to_vec)).collect(),
            Self::Shell(line) => vec![b"sh".to_vec(), b"-c".to_vec(), line.fill(item, number, quoted)],
        }
    }
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
}

impl UnknownPlaceholder {
    fn new(name: &str, fields: &[String]) -> Self {
        match fields {
            [] => Self::NoColumns(name.to_owned()),
            columns => Self::Column { name: name.to_owned(), columns: columns.to_vec() },
        }
    }
}

impl TemplateWord {
    fn parse(word: &[u8], fields: &[String]) -> Result<Self, UnknownPlaceholder> {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut rest = word;
        while let Some((first, after)) = rest.split_first() {
            if let Some(literal) = literal_at(rest, fields) {
                text.extend_from_slice(literal);
                rest = &rest[1 + literal.len()..];
                continue;
            }
            match place_at(rest, fields) {
                Some((place, length)) => {
                    if !text.is_empty() {
                        pieces.push(TemplatePiece::Text(std::mem::take(&mut text)));
                    }
                    pieces.push(TemplatePiece::Place(place));
                    rest = &rest[length..];
                }
                None => {
                    if let Some(name) = name_at(rest).filter(|name| is_meant(name, &text)) {
                        return Err(UnknownPlaceholder::new(name, fields));
                    }
                    text.push(*first);
                    rest = after;
                }
            }
        }
        if !text.is_empty() || pieces.is_empty() {
            pieces.push(TemplatePiece::Text(text));
        }
        Ok(Self(pieces))
    }

    fn fill(&self, item: &Item, number: u64, put_in: fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut filled = Vec::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => filled.extend_from_slice(text),
                TemplatePiece::Place(place) => filled.extend(put_in(&place.of(item, number))),
            }
        }
        filled
    }
}

impl Placeholder {
    fn of(&self, item: &Item, number: u64) -> Vec<u8> {
        match self {
            Self::Item => item.bytes.clone(),
            Self::Stem => item.stem().to_vec(),
            Self::Name => item.name().to_vec(),
            Self::Folder => item.folder().to_vec(),
            Self::NameStem => item.name_stem().to_vec(),
            Self::Number => number.to_string().into_bytes(),
            // A row without this field has an empty value.
            Self::Field(name) => item.field(name).unwrap_or_default().as_bytes().to_vec(),
        }
    }
}

/// The placeholder at the start of the text, and its length. Other braces are text, as `awk '{print}'` needs.
fn place_at(text: &[u8], fields: &[String]) -> Option<(Placeholder, usize)> {
    let inside = text.strip_prefix(b"{")?;
    let end = inside.iter().position(|byte| *byte == b'}')?;
    let place = match &inside[..end] {
        b"" => Placeholder::Item,
        b"." => Placeholder::Stem,
        b"/" => Placeholder::Name,
        b"//" => Placeholder::Folder,
        b"/." => Placeholder::NameStem,
        b"#" => Placeholder::Number,
        name => {
            let known = fields.iter().find(|field| field.as_bytes() == name)?;
            Placeholder::Field(known.clone())
        }
    };
    Some((place, end + 2))
}

/// The text between braces, if it looks like a column name: `{name}`. Not `{print $1}`, `{a,b}`, `{3}` or JSON.
fn name_at(text: &[u8]) -> Option<&str> {
    let inside = text.strip_prefix(b"{")?;
    let end = inside.iter().position(|byte| *byte == b'}')?;
    let name = std::str::from_utf8(&inside[..end]).ok()?;
    let begins = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let goes_on = name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    (begins && goes_on).then_some(name)
}

/// Whether a name in braces is meant as a placeholder. Other languages use braces too: `${HOME}`, git's `@{upstream}`, curl's
/// `%{http_code}`, Ruby's `#{x}`, and `awk {print}`.
fn is_meant(name: &str, before: &[u8]) -> bool {
    let sigil = before.last().is_some_and(|last| b"$@%#".contains(last));
    !sigil && !AWK_ACTIONS.contains(&name)
}

/// One-word actions of awk.
const AWK_ACTIONS: [&str; 5] = ["print", "next", "nextfile", "exit", "getline"];

/// A placeholder, or something that looks like one, after a backslash: literal text.
fn literal_at<'t>(text: &'t [u8], fields: &[String]) -> Option<&'t [u8]> {
    let braced = text.strip_prefix(b"\\")?;
    let is_one = place_at(braced, fields).is_some() || name_at(braced).is_some();
    let end = braced.iter().position(|byte| *byte == b'}').filter(|_| is_one)?;
    Some(&braced[..=end])
}

/// Whether a single word is more than the name of a program: `gzip` is not, `gzip -9` is.
fn needs_shell(line: &[u8]) -> bool {
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./+,:@%{}#".contains(byte) || !byte.is_ascii();
    !line.iter().all(plain)
}

/// Quotes the bytes as one word for a shell.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut word = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            other => word.push(*other),
        }
    }
    word.push(b'\'');
    word
}

/// Quotes the bytes as one word for a shell, if they need quotes.
#[must_use]
pub fn quoted_if_needed(bytes: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./+,:@%=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(plain) { bytes.to_vec() } else { quoted(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str], item: &Item) -> Vec<String> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let names: Vec<String> = item.fields.iter().map(|(name, _)| name.clone()).collect();
        let argv = CommandTemplate::parse(&words, &names).expect("a template").argv(item, 3);
        argv.into_iter().map(|word| String::from_utf8(word).expect("text")).collect()
    }

    #[test]
    fn placeholders_are_filled_and_every_word_stays_one_argument() {
        let item = Item::plain("dir/a file.md");
        assert_eq!(
            argv(&["pandoc", "{}", "-o", "{.}.html", "{/}:{//}:{/.}:{#}"], &item),
            ["pandoc", "dir/a file.md", "-o", "dir/a file.html", "a file.md:dir:a file:3"]
        );
    }

    #[test]
    fn a_template_without_a_placeholder_gets_the_item_as_its_last_argument() {
        assert_eq!(argv(&["gzip", "-9"], &Item::plain("-x y")), ["gzip", "-9", "-x y"]);
        assert_eq!(argv(&["gzip"], &Item::plain("a b")), ["gzip", "a b"], "the name of a program alone");
        assert_eq!(argv(&["wc -l"], &Item::plain("it's")), ["sh", "-c", "wc -l 'it'\\''s'"]);
    }

    #[test]
    fn one_quoted_string_is_for_the_shell_and_items_are_quoted_in_it() {
        assert_eq!(
            argv(&["cat {} | wc -l > {.}.n"], &Item::plain("a;b\n$(x).txt")),
            ["sh", "-c", "cat 'a;b\n$(x).txt' | wc -l > 'a;b\n$(x)'.n"]
        );
    }

    #[test]
    fn other_braces_are_text() {
        assert_eq!(argv(&["awk", "{print $1}", "{}"], &Item::plain("f")), ["awk", "{print $1}", "f"]);
        let texts = [
            "{",
            "}",
            "${HOME}",
            "{a,b}",
            "{1..9}",
            "x{3}",
            "{\"a\":1}",
            "{{json .}}",
            "@{upstream}",
            "%{http_code}",
            "#{x}",
            "{print}",
            "{ cat; }",
            "{b.c}",
        ];
        for text in texts {
            assert_eq!(argv(&["echo", text], &Item::plain("f")), ["echo", text, "f"]);
        }
    }

    #[test]
    fn a_placeholder_that_does_not_exist_is_refused() {
        let refused = |word: &str, fields: &[&str]| {
            let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
            CommandTemplate::parse(&[b"rm".to_vec(), word.as_bytes().to_vec()], &fields).expect_err(word)
        };
        let columns = vec!["name".to_owned(), "city".to_owned()];
        let unknown = UnknownPlaceholder::Column { name: "nme".to_owned(), columns };
        assert_eq!(refused("x{nme}.txt", &["name", "city"]), unknown);
        assert_eq!(refused("{nme}", &[]), UnknownPlaceholder::NoColumns("nme".to_owned()));
    }

    #[test]
    fn a_backslash_keeps_a_placeholder_as_it_is() {
        let fields = vec![("name".to_owned(), "Anna".to_owned())];
        let item = Item { fields, ..Item::plain("f") };
        assert_eq!(
            argv(&["x", "\\{name}", "\\{nme}", "\\{}", "{}"], &item),
            ["x", "{name}", "{nme}", "{}", "f"]
        );
        assert_eq!(argv(&["grep", "a\\{3\\}", "\\d"], &item), ["grep", "a\\{3\\}", "\\d", "f"]);
    }

    #[test]
    fn fields_are_placeholders_where_rows_have_them() {
        let fields = vec![("name".to_owned(), "Anna B".to_owned()), ("to".to_owned(), String::new())];
        let item = Item { fields, ..Item::plain("whole") };
        assert_eq!(argv(&["mail", "{name}", "{to}", "{}"], &item), ["mail", "Anna B", "", "whole"]);
        assert_eq!(argv(&["mail {name}"], &item), ["sh", "-c", "mail 'Anna B'"]);
    }

    #[test]
    fn items_that_are_not_text_go_through_as_they_are() {
        let template = CommandTemplate::parse(&[b"cat".to_vec(), b"x{}".to_vec()], &[]).expect("a template");
        assert_eq!(template.argv(&Item::plain(vec![0xff, b'/']), 1), [b"cat".to_vec(), b"x\xff/".to_vec()]);
    }
}
