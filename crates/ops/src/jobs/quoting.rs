//! Shell quoting of items: where a placeholder is in a shell command line, and how its item is quoted there.
//!
//! An item is quoted as one word, which holds only outside of other quotes: within `"{}"`, an item could end them and be run as a command.
//! So a template with a placeholder in such a place is refused. The reader of the template follows POSIX shells; where it is in doubt, it
//! takes a place for quoted.

/// Where a placeholder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellPlace {
    /// Part of a word: the item can be quoted.
    Word,
    /// In a comment, which a line break in an item would end.
    Comment,
    /// In `$((…))`, where a shell expands even what is in single quotes: only numbers and names are safe there.
    Arithmetic,
    /// Within single or double quotes, or `${…}`.
    Quotes,
    /// Within backquotes, which an item can end although it is quoted.
    Backquotes,
    /// In a here-document, where quotes are text.
    HereDocument,
}

/// What is open at a byte of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Single,
    /// `$'…'`, which has escapes.
    Ansi,
    Double,
    Backquote,
    /// `( … )` and `$( … )`
    Group,
    /// `$(( … ))` and `(( … ))`
    Arithmetic,
    /// `( … )` in an arithmetic expression.
    Parentheses,
    /// `${ … }`
    Brace,
}

/// A here-document that begins after the line.
struct Document {
    end: Vec<u8>,
    tabs: Tabs,
}

/// Whether tabs before the lines of a here-document count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tabs {
    Kept,
    Stripped,
}

/// The places of the placeholders in a shell command line, in order. `None` stands for a placeholder.
pub(super) fn places(line: &[Option<u8>]) -> Vec<ShellPlace> {
    let mut reader = LineReader { line, at: 0, open: Vec::new(), documents: Vec::new(), found: Vec::new() };
    while reader.at < line.len() {
        reader.step();
    }
    reader.found
}

struct LineReader<'a> {
    line: &'a [Option<u8>],
    at: usize,
    open: Vec<Open>,
    documents: Vec<Document>,
    found: Vec<ShellPlace>,
}

impl LineReader<'_> {
    fn step(&mut self) {
        let Some(byte) = self.line[self.at] else {
            self.found.push(self.place());
            self.at += 1;
            return;
        };
        let top = self.open.last().copied();
        match (top, byte) {
            (Some(Open::Single | Open::Ansi), b'\'') | (Some(Open::Double), b'"') => {
                self.open.pop();
                self.at += 1;
            }
            (Some(Open::Single), _) => self.at += 1,
            (_, b'\\') => self.at += 2 - usize::from(self.line.get(self.at + 1) == Some(&None)),
            (Some(Open::Ansi), _) => self.at += 1,
            (_, b'`') => self.backquote(),
            (_, b'$') => self.dollar(),
            (Some(Open::Double), _) => self.at += 1,
            (_, b'"') => self.push(Open::Double, 1),
            (_, b'\'') if !self.is_in_double() => self.push(Open::Single, 1),
            (Some(Open::Brace), b'}') | (Some(Open::Group | Open::Parentheses), b')') => {
                self.open.pop();
                self.at += 1;
            }
            (Some(Open::Arithmetic), b')') if self.follows(b"))") => {
                self.open.pop();
                self.at += 2;
            }
            (Some(Open::Arithmetic | Open::Parentheses), b'(') => self.push(Open::Parentheses, 1),
            (Some(Open::Brace | Open::Arithmetic | Open::Parentheses), _) => self.at += 1,
            (_, b'(') if self.follows(b"((") && self.starts_word() => self.push(Open::Arithmetic, 2),
            (_, b'(') => self.push(Open::Group, 1),
            (_, b'#') if self.starts_word() => self.comment(),
            (_, b'<') if self.follows(b"<<<") => self.at += 3,
            (_, b'<') if self.follows(b"<<") => self.delimiter(),
            (_, b'\n') => self.bodies(),
            _ => self.at += 1,
        }
    }

    fn place(&self) -> ShellPlace {
        if self.open.contains(&Open::Backquote) {
            return ShellPlace::Backquotes;
        }
        match self.open.last() {
            Some(Open::Arithmetic | Open::Parentheses) => ShellPlace::Arithmetic,
            Some(Open::Single | Open::Ansi | Open::Double | Open::Brace) => ShellPlace::Quotes,
            Some(Open::Backquote) => ShellPlace::Backquotes,
            Some(Open::Group) | None => ShellPlace::Word,
        }
    }

    /// Whether single quotes are text. `"$(…)"` has a command of its own, in which they are not.
    fn is_in_double(&self) -> bool {
        let is_within = |open: &&Open| !matches!(open, Open::Group | Open::Backquote);
        self.open
            .iter()
            .rev()
            .take_while(is_within)
            .any(|open| matches!(open, Open::Double | Open::Arithmetic))
    }

    fn push(&mut self, open: Open, length: usize) {
        self.open.push(open);
        self.at += length;
    }

    fn follows(&self, text: &[u8]) -> bool {
        self.line[self.at..].iter().take(text.len()).copied().eq(text.iter().copied().map(Some))
    }

    fn backquote(&mut self) {
        match self.open.iter().rposition(|open| *open == Open::Backquote) {
            Some(at) => self.open.truncate(at),
            None => self.open.push(Open::Backquote),
        }
        self.at += 1;
    }

    fn dollar(&mut self) {
        if self.follows(b"$((") {
            self.push(Open::Arithmetic, 3);
        } else if self.follows(b"$(") {
            self.push(Open::Group, 2);
        } else if self.follows(b"${") {
            self.push(Open::Brace, 2);
        } else if self.follows(b"$'") && !self.is_in_double() {
            self.push(Open::Ansi, 2);
        } else {
            // "$$" and "$#" are whole.
            self.at += if self.follows(b"$$") || self.follows(b"$#") { 2 } else { 1 };
        }
    }

    fn starts_word(&self) -> bool {
        match self.at.checked_sub(1).map(|before| self.line[before]) {
            None => true,
            Some(before) => before.is_some_and(|byte| byte.is_ascii_whitespace() || b";&|()".contains(&byte)),
        }
    }

    fn comment(&mut self) {
        while let Some(byte) = self.line.get(self.at).filter(|byte| **byte != Some(b'\n')) {
            if byte.is_none() {
                self.found.push(ShellPlace::Comment);
            }
            self.at += 1;
        }
    }

    /// Reads the delimiter of a here-document.
    fn delimiter(&mut self) {
        self.at += 2;
        let tabs = if self.follows(b"-") { Tabs::Stripped } else { Tabs::Kept };
        self.at += usize::from(tabs == Tabs::Stripped);
        while self.follows(b" ") || self.follows(b"\t") {
            self.at += 1;
        }
        let mut end = Vec::new();
        while let Some(byte) = self.line.get(self.at) {
            match byte {
                None => self.found.push(ShellPlace::HereDocument),
                Some(b'\'' | b'"' | b'\\') => {}
                Some(byte) if byte.is_ascii_whitespace() || b";&|<>()".contains(byte) => break,
                Some(byte) => end.push(*byte),
            }
            self.at += 1;
        }
        self.documents.push(Document { end, tabs });
    }

    /// Reads the here-documents that begin after the end of a line.
    fn bodies(&mut self) {
        self.at += 1;
        for Document { end, tabs } in std::mem::take(&mut self.documents) {
            while self.at < self.line.len() {
                let rest = &self.line[self.at..];
                let length = rest.iter().position(|byte| *byte == Some(b'\n')).unwrap_or(rest.len());
                let line = &rest[..length];
                let indent = match tabs {
                    Tabs::Kept => 0,
                    Tabs::Stripped => line.iter().take_while(|byte| **byte == Some(b'\t')).count(),
                };
                let is_end = line[indent..].iter().copied().eq(end.iter().copied().map(Some));
                self.found
                    .extend(line.iter().filter(|byte| byte.is_none()).map(|_| ShellPlace::HereDocument));
                self.at = (self.at + length + 1).min(self.line.len());
                if is_end {
                    break;
                }
            }
        }
    }
}

/// Whether an item may be a part of an arithmetic expression: a number or a name.
pub(super) fn is_numeric(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_.+-".contains(byte))
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

/// The words as a line that a shell reads as these words. They are quoted if they need it.
#[must_use]
pub fn shell_line<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./+,:@%=".contains(byte);
    let word = |bytes: &[u8]| {
        if !bytes.is_empty() && bytes.iter().all(plain) { bytes.to_vec() } else { quoted(bytes) }
    };
    words.into_iter().map(word).collect::<Vec<_>>().join(&b' ')
}

/// Words that have a meaning of their own where a command begins.
const RESERVED: [&[u8]; 17] = [
    b"if",
    b"then",
    b"else",
    b"elif",
    b"fi",
    b"do",
    b"done",
    b"case",
    b"esac",
    b"while",
    b"until",
    b"for",
    b"in",
    b"function",
    b"select",
    b"time",
    b"coproc",
];
/// Bytes before a place at which a word may stand without quotes. After others it could become part of something else, such as `$X{}`.
const BEFORE: &[u8] = b" \t\n(;|&<>=/-.,:+*%";
/// Bytes after it; `{}>file` must not become `1>file`, nor `{}=x` an assignment.
const AFTER: &[u8] = b" \t\n);|&/-.,:*%";

/// The value of a placeholder as it is inserted into a shell command line, between these texts; `None`: it is next to another
/// placeholder. It is quoted only where it has to be: `$(( {} + 1 ))` needs a number without quotes.
pub(super) fn inserted(bytes: &[u8], before: Option<&[u8]>, after: Option<&[u8]>) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:@%+".contains(byte);
    let is_word = !bytes.is_empty() && bytes.iter().all(plain) && !RESERVED.contains(&bytes);
    let is_free_before = before.is_some_and(|text| text.last().is_none_or(|byte| BEFORE.contains(byte)));
    let is_free_after = after.is_some_and(|text| match text {
        [b'+', b'=', ..] => false,
        [first, ..] => AFTER.contains(first) || *first == b'+',
        [] => true,
    });
    if is_word && is_free_before && is_free_after { bytes.to_vec() } else { quoted(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A placeholder is written `{}` here.
    fn read(line: &str) -> Vec<ShellPlace> {
        let mut symbols = Vec::new();
        for (at, text) in line.split("{}").enumerate() {
            symbols.extend((at > 0).then_some(None));
            symbols.extend(text.bytes().map(Some));
        }
        places(&symbols)
    }

    #[test]
    fn a_place_within_quotes_is_seen() {
        use ShellPlace::{Arithmetic, Backquotes, Comment, HereDocument, Quotes, Word};
        let cases: [(&str, &[ShellPlace]); 33] = [
            ("echo {}", &[Word]),
            ("echo \"{}\"", &[Quotes]),
            ("echo '{}' {}", &[Quotes, Word]),
            ("echo \"a\"{}'b'", &[Word]),
            ("echo \"a {} b\" {}", &[Quotes, Word]),
            ("echo \"it's {}\" it\\'s {}", &[Quotes, Word]),
            ("echo 'say \"' {} '\"'", &[Word]),
            ("echo \"$(cat {})\" {}", &[Word, Word]),
            ("echo \"$(cat \"{}\")\"", &[Quotes]),
            ("echo \"$(( {} + 1 ))\" {}", &[Arithmetic, Word]),
            ("echo $(( {} % (3 + {}) )) {}", &[Arithmetic, Arithmetic, Word]),
            ("echo $(( '{}' + $(cat {}) )) {}", &[Arithmetic, Word, Word]),
            ("if (( {} > 2 )); then echo {}; fi", &[Arithmetic, Word]),
            ("x=$((1)); (cd {}; (ls {}))", &[Word, Word]),
            ("echo $((1<<2))\n{}", &[Word]),
            ("echo `cat {}` {}", &[Backquotes, Word]),
            ("echo \"`cat {}`\"", &[Backquotes]),
            ("echo ${X:-{}} {}", &[Quotes, Word]),
            ("echo \"${X:-{}}\" {}", &[Quotes, Word]),
            ("echo \"${X:-'{}'}\" {}", &[Quotes, Word]),
            ("echo $'it\\'s {}' {}", &[Quotes, Word]),
            ("echo \\\" {} \\\"", &[Word]),
            ("exec sleep 600 # don't {}", &[Comment]),
            ("echo a # \"\necho {}", &[Word]),
            ("echo a#b' {} '", &[Quotes]),
            ("echo $# {} ${#X} {}", &[Word, Word]),
            ("cat <<E\n{} \"\nE\necho {}", &[HereDocument, Word]),
            ("cat <<-'E' | wc {}\n\ta {}\n\tE\necho {}", &[Word, HereDocument, Word]),
            ("cat <<A <<B\n{}\nA\n{}\nB\n{}", &[HereDocument, HereDocument, Word]),
            ("cat <<< {}\necho {}", &[Word, Word]),
            ("case {} in a) echo {};; esac", &[Word, Word]),
            ("(cd {} && ls) > {}", &[Word, Word]),
            ("awk '{print \"x\"}' {}", &[Word]),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
    }

    #[test]
    fn a_word_is_quoted_only_where_it_has_to_be() {
        let between = |item: &str, before: &str, after: &str| {
            String::from_utf8(inserted(item.as_bytes(), Some(before.as_bytes()), Some(after.as_bytes())))
                .expect("text")
        };
        for item in ["1", "a/b.tar.gz", "-x", "user@host:22", "+1", "50%"] {
            assert_eq!(between(item, "echo ", " | wc"), item);
            assert_eq!(between(item, "", ""), item);
        }
        for item in
            ["", "a b", "$(x)", "*", "~", "#x", "a=b", "a,b", "{a}", "if", "done", "größer", "x\n", "!"]
        {
            assert_eq!(between(item, "echo ", ""), format!("'{item}'"));
        }
        assert_eq!(between("it's", "echo ", ""), "'it'\\''s'");
        // The item alone must not become a file descriptor, a variable's name, an assignment or a home.
        for (before, after) in [
            ("echo ", ">f"),
            ("echo ", "<f"),
            ("$X", ""),
            ("$", ""),
            ("~", ""),
            ("", "=5"),
            ("", "+=5"),
            ("", "()"),
        ] {
            assert_eq!(between("1", before, after), "'1'", "{before}{{}}{after}");
        }
        assert_eq!(between("1", "$(( ", "+2 ))"), "1");
        assert_eq!(inserted(b"1", None, Some(b"")), b"'1'", "next to another placeholder");
    }
}
