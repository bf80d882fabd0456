//! Command templates of `ostler map`: words with placeholders, as in GNU parallel.

use super::item::{Item, PathPart};
use super::placeholder::{ItemShape, Placeholder, UnknownPlaceholder, brace_at, literal_at};
use super::quoting::{ShellPlace, inserted, is_numeric, places};

/// The shell for a command of one string, unless another one is named.
pub(super) const DEFAULT_SHELL: &str = "sh";

/// A program and its arguments, or a shell command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CommandTemplate {
    /// Run directly: each word stays one argument.
    Argv(Vec<TemplateWord>),
    /// Passed to a shell with `-c`; inserted values are quoted.
    Shell(ShellLine),
}

/// A shell command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellLine {
    shell: String,
    line: TemplateWord,
    /// Where its placeholders are, in order.
    places: Vec<ShellPlace>,
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

impl CommandTemplate {
    /// Parses the words of a command line. A single word that contains something only a shell understands is a shell command line, and
    /// so is every single word if a shell is named.
    pub(super) fn parse(
        words: &[Vec<u8>],
        shell: Option<&str>,
        shape: ItemShape<'_>,
    ) -> Result<Self, TemplateError> {
        if let ([line], true) = (words, shell.is_some() || words.len() == 1 && needs_shell(&words[0])) {
            let mut line = TemplateWord::parse(line, shape)?;
            if !line.has_place() {
                line.0.extend([
                    TemplatePiece::Text(b" ".to_vec()),
                    TemplatePiece::Place(Placeholder::Item(PathPart::Whole)),
                ]);
            }
            let places = line.shell_places()?;
            return Ok(Self::Shell(ShellLine {
                shell: shell.unwrap_or(DEFAULT_SHELL).to_owned(),
                line,
                places,
            }));
        }
        let mut words: Vec<TemplateWord> = words
            .iter()
            .map(|word| TemplateWord::parse(word, shape))
            .collect::<Result<_, UnknownPlaceholder>>()?;
        if !words.iter().any(TemplateWord::has_place) {
            words.push(TemplateWord(vec![TemplatePiece::Place(Placeholder::Item(PathPart::Whole))]));
        }
        Ok(Self::Argv(words))
    }

    /// How much of each argument of a program is data from items. A shell command line has none: there, items are quoted.
    pub(super) fn data(&self) -> Vec<ItemData> {
        let of_word = |word: &TemplateWord| {
            let of_item = |piece: &TemplatePiece| match piece {
                TemplatePiece::Text(_) | TemplatePiece::Place(Placeholder::Number) => false,
                TemplatePiece::Place(
                    Placeholder::Item(_) | Placeholder::Part(..) | Placeholder::Field(_),
                ) => true,
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
            Self::Shell(line) => counts(&line.line),
        }
    }

    /// The program and its arguments for the `number`-th item, counted from 1.
    pub(super) fn argv(&self, item: &Item, number: u64) -> Vec<Vec<u8>> {
        match self {
            Self::Argv(words) => words.iter().flat_map(|word| word.arguments(item, number)).collect(),
            Self::Shell(line) => {
                vec![line.shell.clone().into_bytes(), b"-c".to_vec(), line.fill(item, number)]
            }
        }
    }

    /// The value of this item that an arithmetic expression must not have, if there is one.
    pub(super) fn not_numeric(&self, item: &Item, number: u64) -> Option<Vec<u8>> {
        match self {
            Self::Argv(_) => None,
            Self::Shell(ShellLine { line, places, .. }) => {
                let places = line.placeholders().zip(places);
                let mut arithmetic = places.filter(|(_, at)| **at == ShellPlace::Arithmetic);
                arithmetic.find_map(|(place, _)| {
                    place.values(item, number).into_iter().find(|value| !is_numeric(value))
                })
            }
        }
    }
}

/// Why a template is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(transparent)]
    Unknown(#[from] UnknownPlaceholder),
    /// A placeholder where an item cannot be quoted.
    #[error("{placeholder} is {}", .place.refusal())]
    Unquotable { placeholder: String, place: ShellPlace },
}

impl ShellPlace {
    /// Why a placeholder is refused in this place, and what to write instead.
    const fn refusal(self) -> &'static str {
        match self {
            Self::Word | Self::Comment | Self::Arithmetic | Self::Quotes => {
                "inside quotes, which an item could end and then be run as a command. Items are quoted when they are inserted: leave the \
             quotes out, or set a variable first: x={}; echo \"hello $x\""
            }
            Self::Backquotes => {
                "inside backquotes, which an item could end and then be run as a command. Write $(…) instead of `…`"
            }
            Self::HereDocument => {
                "inside a here-document, where an item cannot be quoted. Set a variable first: x={}; and then write $x"
            }
        }
    }
}

impl TemplateWord {
    fn parse(word: &[u8], shape: ItemShape<'_>) -> Result<Self, UnknownPlaceholder> {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut rest = word;
        while let Some((first, after)) = rest.split_first() {
            if let Some(literal) = literal_at(rest, shape) {
                text.extend_from_slice(literal);
                rest = &rest[1 + literal.len()..];
                continue;
            }
            match brace_at(rest, &text, shape)? {
                Some((place, length)) => {
                    if !text.is_empty() {
                        pieces.push(TemplatePiece::Text(std::mem::take(&mut text)));
                    }
                    pieces.push(TemplatePiece::Place(place));
                    rest = &rest[length..];
                }
                None => {
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

    fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePiece::Place(place) => Some(place),
            TemplatePiece::Text(_) => None,
        })
    }

    fn has_place(&self) -> bool {
        self.placeholders().next().is_some()
    }

    /// Where the placeholders are in a shell command line.
    fn shell_places(&self) -> Result<Vec<ShellPlace>, TemplateError> {
        let mut line = Vec::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => line.extend(text.iter().copied().map(Some)),
                TemplatePiece::Place(_) => line.push(None),
            }
        }
        let places = places(&line);
        for (place, at) in self.placeholders().zip(&places) {
            match (place, at) {
                // A number needs no quotes.
                (Placeholder::Number, _) => {}
                (_, ShellPlace::Word | ShellPlace::Comment | ShellPlace::Arithmetic) => {}
                (_, ShellPlace::Quotes | ShellPlace::Backquotes | ShellPlace::HereDocument) => {
                    return Err(TemplateError::Unquotable { placeholder: place.to_string(), place: *at });
                }
            }
        }
        Ok(places)
    }

    /// The arguments of a program: one, unless the word is nothing but the item, and that has several parts.
    fn arguments(&self, item: &Item, number: u64) -> Vec<Vec<u8>> {
        if let [TemplatePiece::Place(place)] = self.0.as_slice() {
            return place.values(item, number);
        }
        let filled = self.0.iter().map(|piece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Place(place) => place.values(item, number).join(&b' '),
        });
        vec![filled.collect::<Vec<_>>().concat()]
    }
}

impl ShellLine {
    /// The command line for an item.
    fn fill(&self, item: &Item, number: u64) -> Vec<u8> {
        let pieces = &self.line.0;
        let mut filled = Vec::new();
        let mut places = self.places.iter();
        for (at, piece) in pieces.iter().enumerate() {
            let place = match piece {
                TemplatePiece::Text(text) => {
                    filled.extend_from_slice(text);
                    continue;
                }
                TemplatePiece::Place(place) => place,
            };
            let values = place.values(item, number);
            let text = |neighbour: Option<&'_ TemplatePiece>| match neighbour {
                None => Some(Vec::new()),
                Some(TemplatePiece::Text(text)) => Some(text.clone()),
                Some(TemplatePiece::Place(_)) => None,
            };
            let (before, after) = (text(at.checked_sub(1).map(|at| &pieces[at])), text(pieces.get(at + 1)));
            let word = |value: &Vec<u8>| inserted(value, before.as_deref(), after.as_deref());
            let value = match places.next().unwrap_or(&ShellPlace::Word) {
                ShellPlace::Comment => {
                    let joined = values.join(&b' ');
                    joined.into_iter().map(|byte| if byte == b'\n' { b' ' } else { byte }).collect()
                }
                ShellPlace::Arithmetic => values.join(&b' '),
                // Within quotes, only the number of the item is accepted.
                ShellPlace::Quotes | ShellPlace::Backquotes | ShellPlace::HereDocument => values.join(&b' '),
                ShellPlace::Word => values.iter().map(word).collect::<Vec<_>>().join(&b' '),
            };
            filled.extend(value);
        }
        filled
    }
}

/// Whether a single word is more than the name of a program: `gzip` is not, `gzip -9` is.
fn needs_shell(line: &[u8]) -> bool {
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./+,:@%{}#".contains(byte) || !byte.is_ascii();
    !line.iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str], item: &Item) -> Vec<String> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let names: Vec<String> = item.fields.iter().map(|(name, _)| name.clone()).collect();
        let shape = ItemShape { fields: &names, parts: item.parts.len() };
        let argv = CommandTemplate::parse(&words, None, shape).expect("a template").argv(item, 3);
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
            "{...rest}",
        ];
        for text in texts {
            assert_eq!(argv(&["echo", text], &Item::plain("f")), ["echo", text, "f"]);
        }
    }

    #[test]
    fn a_placeholder_that_does_not_exist_is_refused() {
        let refused = |word: &str, fields: &[&str]| {
            let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
            let words = [b"rm".to_vec(), word.as_bytes().to_vec()];
            match CommandTemplate::parse(&words, None, ItemShape { fields: &fields, parts: 1 })
                .expect_err(word)
            {
                TemplateError::Unknown(unknown) => unknown,
                other @ TemplateError::Unquotable { .. } => panic!("{other}"),
            }
        };
        let columns = vec!["name".to_owned(), "city".to_owned()];
        let unknown = UnknownPlaceholder::Column { name: "nme".to_owned(), columns };
        assert_eq!(refused("x{nme}.txt", &["name", "city"]), unknown);
        assert_eq!(refused("{nme}", &[]), UnknownPlaceholder::NoColumns("nme".to_owned()));
        assert_eq!(refused("{%}", &[]), UnknownPlaceholder::Foreign("%".to_owned()));
        for part in ["2", "0", "2/"] {
            let unknown = UnknownPlaceholder::Part { name: part.to_owned(), parts: 1 };
            assert_eq!(refused(&format!("{{{part}}}"), &[]), unknown);
        }
        let deep = UnknownPlaceholder::Column { name: "b.c".to_owned(), columns: vec!["b".to_owned()] };
        assert_eq!(refused("{b.c}", &["b"]), deep);
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
    fn parts_of_an_item_have_numbers_and_are_words_of_their_own() {
        let parts = ["a b.md", "1"].map(|part| part.as_bytes().to_vec()).to_vec();
        let item = Item { parts, ..Item::plain("a b.md 1") };
        assert_eq!(
            argv(&["x", "{2}", "{1.}", "{}", "<{}>"], &item),
            ["x", "1", "a b", "a b.md", "1", "<a b.md 1>"]
        );
        assert_eq!(argv(&["x"], &item), ["x", "a b.md", "1"]);
        assert_eq!(
            argv(&["x {1} $(( {2} + 1 )) {}"], &item),
            ["sh", "-c", "x 'a b.md' $(( 1 + 1 )) 'a b.md' 1"]
        );
        assert_eq!(
            argv(&["x", "{1}", "{1/.}", "${2}", "\\{1}"], &Item::plain("d/a.b")),
            ["x", "d/a.b", "a", "${2}", "{1}"]
        );
    }

    #[test]
    fn a_place_where_an_item_cannot_be_quoted_is_refused() {
        let parsed =
            |line: &str| CommandTemplate::parse(&[line.as_bytes().to_vec()], None, ItemShape::default());
        for (line, placeholder, advice) in [
            ("echo \"{}\"", "{}", "leave the quotes out"),
            ("echo 'a {1/}'", "{1/}", "leave the quotes out"),
            ("echo `ls {.}`", "{.}", "$(…)"),
            ("cat <<E\n{}\nE", "{}", "Set a variable"),
        ] {
            let error = parsed(line).expect_err(line).to_string();
            assert!(
                error.starts_with(&format!("{placeholder} is inside")) && error.contains(advice),
                "{error}"
            );
        }
        let line = parsed("x={}; echo \"{#} $x\" # {}").expect("a number is always safe");
        assert_eq!(line.argv(&Item::plain("a\nb"), 7)[2], b"x='a\nb'; echo \"7 $x\" # a b");
        let sum = parsed("echo $(({} + 1))").expect("a template");
        assert_eq!(sum.not_numeric(&Item::plain("$(x)"), 1), Some(b"$(x)".to_vec()));
        assert_eq!(sum.not_numeric(&Item::plain("-1.5"), 1), None);
    }

    #[test]
    fn a_named_shell_runs_a_single_word_too() {
        let parse = |words: &[&str]| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            CommandTemplate::parse(&words, Some("bash"), ItemShape::default()).expect("a template")
        };
        let argv = parse(&["f"]).argv(&Item::plain("a b"), 1);
        assert_eq!(argv, [b"bash".to_vec(), b"-c".to_vec(), b"f 'a b'".to_vec()]);
    }

    #[test]
    fn items_that_are_not_text_go_through_as_they_are() {
        let template =
            CommandTemplate::parse(&[b"cat".to_vec(), b"x{}".to_vec()], None, ItemShape::default())
                .expect("a template");
        assert_eq!(template.argv(&Item::plain(vec![0xff, b'/']), 1), [b"cat".to_vec(), b"x\xff/".to_vec()]);
    }
}
