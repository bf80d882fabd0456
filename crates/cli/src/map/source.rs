//! Sources of the items of a map job: words, lines, files, CSV, JSON lines, and the output of a command.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use globset::GlobBuilder;
use ostler_ops::jobs::{Item, ItemForm};
use serde_json::Value;
use walkdir::WalkDir;

/// The maximum number of items of one job.
pub(crate) const MAX_ITEMS: usize = 5_000_000;
/// The maximum size of all items together.
const MAX_INPUT_BYTES: u64 = 4 << 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ItemSource {
    /// The words after `:::`.
    Words(Vec<Vec<u8>>),
    /// Standard input.
    Stdin(RecordEnd),
    /// A list of items; `-` is standard input.
    List(PathBuf, RecordEnd),
    /// Files that match a glob.
    Files(String),
    /// A CSV file with a header; `-` is standard input.
    Csv(PathBuf),
    /// One JSON value per line; `-` is standard input.
    Jsonl(PathBuf),
    /// The output of a shell command line, one item per line.
    Command(String),
}

/// What ends an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordEnd {
    Line,
    Nul,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemUse {
    /// A part of a command line.
    Argument,
    /// A part of a payload, whose size is checked as a whole.
    Payload,
}

impl ItemUse {
    /// The maximum size of an argument: the kernel accepts no longer one.
    const MAX_ARGUMENT_BYTES: usize = 128 * 1024;

    fn check(self, item: &Item, at: &dyn Display) -> Result<(), NoItems> {
        match self {
            Self::Payload => Ok(()),
            Self::Argument if item.bytes.len() > Self::MAX_ARGUMENT_BYTES => wrong(format!(
                "{at} has {} bytes; an argument may have at most {}",
                item.bytes.len(),
                Self::MAX_ARGUMENT_BYTES
            )),
            Self::Argument
                if item.bytes.contains(&0) || item.fields.iter().any(|(_, value)| value.contains('\0')) =>
            {
                wrong(format!("{at} contains a NUL character, which an argument cannot"))
            }
            Self::Argument => Ok(()),
        }
    }
}

/// The items, and the names of their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Items {
    pub(crate) all: Vec<Item>,
    pub(crate) fields: Vec<String>,
}

/// Why the items cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoItems(String);

fn wrong<T>(sentence: impl Into<String>) -> Result<T, NoItems> {
    Err(NoItems(sentence.into()))
}

impl ItemSource {
    pub(crate) fn read(self, used: ItemUse, stdin: impl FnOnce() -> Box<dyn Read>) -> Result<Items, NoItems> {
        let mut items = ItemReader { used, items: Items::default() };
        match self {
            Self::Words(words) => {
                for (place, word) in words.into_iter().enumerate() {
                    items.push(Item::plain(word), &format_args!("item {}", place + 1))?;
                }
            }
            Self::Stdin(end) => items.records(stdin(), end, "standard input")?,
            Self::List(file, end) => {
                let from =
                    if is_stdin(&file) { "standard input".to_owned() } else { file.display().to_string() };
                items.records(open(&file, stdin)?, end, &from)?;
            }
            Self::Files(pattern) => items.files(&pattern)?,
            Self::Csv(file) => items.csv(&file, open(&file, stdin)?)?,
            Self::Jsonl(file) => items.jsonl(&file, open(&file, stdin)?)?,
            Self::Command(line) => items.output_of(&line)?,
        }
        Ok(items.items)
    }
}

/// Collects items from one source.
struct ItemReader {
    used: ItemUse,
    items: Items,
}

impl ItemReader {
    /// Adds an item; `at` names it in errors.
    fn push(&mut self, item: Item, at: &dyn Display) -> Result<(), NoItems> {
        if self.items.all.len() >= MAX_ITEMS {
            return wrong(format!("more than {MAX_ITEMS} items, the maximum for one job"));
        }
        self.used.check(&item, at)?;
        self.items.all.push(item);
        Ok(())
    }

    /// Splits the input at `end`; empty records are left out.
    fn records(&mut self, input: Box<dyn Read>, end: RecordEnd, from: &str) -> Result<(), NoItems> {
        let (end, what) = match end {
            RecordEnd::Line => (b'\n', "line"),
            RecordEnd::Nul => (0, "record"),
        };
        for (place, record) in bounded(input).split(end).enumerate() {
            let bytes = record.map_err(|error| NoItems(format!("cannot read {from}: {error}")))?;
            if !bytes.is_empty() {
                self.push(Item::plain(bytes), &format_args!("{what} {} of {from}", place + 1))?;
            }
        }
        Ok(())
    }

    /// The lines that a command prints. Its errors are shown as they come.
    fn output_of(&mut self, line: &str) -> Result<(), NoItems> {
        let fault = |error: io::Error| NoItems(format!("--items-from: cannot run sh: {error}"));
        let mut child = Command::new("sh")
            .args(["-c", line])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let output = child.stdout.take().map(|output| Box::new(output) as Box<dyn Read>);
        let read =
            self.records(output.unwrap_or_else(|| Box::new(io::empty())), RecordEnd::Line, "its output");
        if read.is_err() {
            // It may never end by itself.
            let _ = child.kill();
        }
        let ended = child.wait().map_err(fault)?;
        read.map_err(|NoItems(why)| NoItems(format!("--items-from: {why}")))?;
        if !ended.success() {
            return wrong(format!("--items-from: the command failed ({ended}); nothing was enqueued"));
        }
        Ok(())
    }

    /// The files that match a glob, sorted by name. As in a shell, hidden files match only if the pattern names them.
    fn files(&mut self, pattern: &str) -> Result<(), NoItems> {
        let fault = |error: &dyn Display| NoItems(format!("--files {pattern}: {error}"));
        let wanted =
            GlobBuilder::new(pattern).literal_separator(true).build().map_err(|error| fault(&error))?;
        let wanted = wanted.compile_matcher();
        let (root, within) = root_of(pattern);
        let named_hidden = pattern[within..].split('/').any(|part| part.starts_with('.'));
        let hidden = |name: &OsStr| name.as_bytes().starts_with(b".") && !named_hidden;
        let walk =
            WalkDir::new(&root).follow_links(true).sort_by_file_name().max_depth(depth_of(pattern, within));
        for entry in walk.into_iter().filter_entry(|entry| entry.depth() == 0 || !hidden(entry.file_name())) {
            let entry = match entry {
                Ok(entry) => entry,
                // A missing folder means that nothing matches.
                Err(error) if error.depth() == 0 => break,
                Err(error) => return Err(fault(&error)),
            };
            // "." stands for this folder if the pattern does not start with one.
            let path = if within == 0 {
                entry.path().strip_prefix(".").unwrap_or(entry.path())
            } else {
                entry.path()
            };
            if entry.file_type().is_file() && wanted.is_match(path) {
                self.push(Item::file(path.as_os_str().as_bytes()), &path.display())?;
            }
        }
        if self.items.all.is_empty() {
            return wrong(format!("--files {pattern}: no file matches"));
        }
        Ok(())
    }

    /// The bytes of a row are the row as a JSON object, so that `{}` is the whole row.
    fn csv(&mut self, file: &Path, input: Box<dyn Read>) -> Result<(), NoItems> {
        let mut reader = csv::Reader::from_reader(bounded(input));
        let fault = |error: csv::Error| NoItems(format!("{}: {error}", file.display()));
        let fields: Vec<String> = reader.headers().map_err(fault)?.iter().map(ToOwned::to_owned).collect();
        if let Some(twice) = fields.iter().enumerate().find(|(at, name)| fields[..*at].contains(name)) {
            return wrong(format!("{}: duplicate column \"{}\"", file.display(), twice.1));
        }
        for row in reader.records() {
            let row = row.map_err(fault)?;
            let values: Vec<(String, String)> =
                fields.iter().cloned().zip(row.iter().map(ToOwned::to_owned)).collect();
            let object: serde_json::Map<String, Value> =
                values.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            let bytes = Value::from(object).to_string().into_bytes();
            let line = row.position().map_or(0, csv::Position::line);
            let item = Item { bytes, fields: values, form: ItemForm::Row, parts: Vec::new() };
            self.push(item, &format_args!("{}, line {line}", file.display()))?;
        }
        self.items.fields = fields;
        Ok(())
    }

    fn jsonl(&mut self, file: &Path, input: Box<dyn Read>) -> Result<(), NoItems> {
        for (place, line) in bounded(input).lines().enumerate() {
            let at = format!("{}, line {}", file.display(), place + 1);
            let line = line.map_err(|error| NoItems(format!("{at}: {error}")))?;
            if line.trim().is_empty() {
                continue;
            }
            let value: Value = serde_json::from_str(&line).map_err(|error| NoItems(not_json(&at, &error)))?;
            let mut item = Item::plain(text(&value));
            if let Value::Object(object) = &value {
                item.form = ItemForm::Row;
                for (name, value) in object {
                    if !self.items.fields.contains(name) {
                        self.items.fields.push(name.clone());
                    }
                    item.fields.push((name.clone(), text(value)));
                }
            }
            self.push(item, &at)?;
        }
        Ok(())
    }
}

/// The input up to its maximum size; reading on is an error.
fn bounded(input: Box<dyn Read>) -> io::BufReader<impl Read> {
    struct Bounded {
        input: Box<dyn Read>,
        left: u64,
    }

    impl Read for Bounded {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.input.read(buffer)?;
            self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
                io::Error::other(format!("more than {} GiB of items", MAX_INPUT_BYTES >> 30))
            })?;
            Ok(read)
        }
    }

    io::BufReader::new(Bounded { input, left: MAX_INPUT_BYTES })
}

/// The folder that contains all matches, and how many bytes of the pattern it takes.
fn root_of(pattern: &str) -> (PathBuf, usize) {
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern[..special].rfind('/') {
        Some(0) => ("/".into(), 1),
        Some(slash) => (pattern[..slash].into(), slash + 1),
        None => (".".into(), 0),
    }
}

/// The maximum depth of a match below that folder.
fn depth_of(pattern: &str, within: usize) -> usize {
    let rest = &pattern[within..];
    if rest.contains("**") { usize::MAX } else { rest.split('/').count() }
}

pub(crate) fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn open(file: &Path, stdin: impl FnOnce() -> Box<dyn Read>) -> Result<Box<dyn Read>, NoItems> {
    if is_stdin(file) {
        return Ok(stdin());
    }
    match std::fs::File::open(file) {
        Ok(opened) => Ok(Box::new(opened)),
        Err(error) => wrong(format!("cannot read {}: {error}", file.display())),
    }
}

/// Says at which column a line stops being JSON.
fn not_json(place: &str, error: &serde_json::Error) -> String {
    if error.is_eof() {
        return format!("{place}: not JSON: it ends too early");
    }
    format!("{place}, column {}: not JSON", error.column())
}

/// A string as it is, anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: ItemSource, stdin: &'static [u8]) -> Result<Items, String> {
        source.read(ItemUse::Argument, || Box::new(stdin)).map_err(|error| error.to_string())
    }

    fn texts(items: &Items) -> Vec<String> {
        items.all.iter().map(|item| String::from_utf8_lossy(&item.bytes).into_owned()).collect()
    }

    #[test]
    fn lines_and_records_are_items_as_they_are() {
        let lines = read(ItemSource::Stdin(RecordEnd::Line), b"a b\n\n 'c'\nlast").expect("items");
        assert_eq!(texts(&lines), ["a b", " 'c'", "last"]);
        let records = read(ItemSource::Stdin(RecordEnd::Nul), b"a\nb\0\xff\0").expect("items");
        assert_eq!(records.all, [Item::plain("a\nb"), Item::plain(vec![0xff])]);
    }

    #[test]
    fn rows_of_a_table_have_fields() {
        let csv = read(ItemSource::Csv("-".into()), b"name,to\n\"Anna, B\",x@y\n").expect("items");
        assert_eq!(csv.fields, ["name", "to"]);
        assert_eq!(csv.all[0].field("name"), Some("Anna, B"));
        assert_eq!(texts(&csv)[0], r#"{"name":"Anna, B","to":"x@y"}"#);
        let jsonl =
            read(ItemSource::Jsonl("-".into()), b"{\"a\":1,\"b\":{\"c\":2}}\n\n\"text\"\n").expect("items");
        assert_eq!(jsonl.fields, ["a", "b"]);
        assert_eq!((jsonl.all[0].field("a"), jsonl.all[0].field("b")), (Some("1"), Some("{\"c\":2}")));
        assert_eq!(jsonl.all[1], Item::plain("text"));
    }

    #[test]
    fn a_pattern_means_files_that_are_not_hidden_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("b/c")).expect("folders");
        std::fs::create_dir_all(at(".git")).expect("folders");
        for name in ["b.md", "a.md", ".h.md", "x.txt", "b/d.md", "b/c/e.md", ".git/f.md"] {
            std::fs::write(at(name), "").expect("a file");
        }
        let found = |pattern: &str| {
            let items =
                read(ItemSource::Files(at(pattern).to_str().expect("text").to_owned()), b"").expect("items");
            let start = folder.path().to_str().expect("text").len() + 1;
            texts(&items).iter().map(|path| path[start..].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found("*.md"), ["a.md", "b.md"]);
        assert_eq!(found("**/*.md"), ["a.md", "b/c/e.md", "b/d.md", "b.md"]);
        assert_eq!(found("*/*.md"), ["b/d.md"]);
        assert_eq!(found("x.txt"), ["x.txt"]);
        assert_eq!(found("{a,b}.md"), ["a.md", "b.md"]);
        assert_eq!(found(".h*"), [".h.md"]);
    }

    #[test]
    fn what_cannot_be_an_item_is_said_with_its_place() {
        let told = |source: ItemSource, stdin| read(source, stdin).expect_err("refused");
        assert!(
            told(ItemSource::Stdin(RecordEnd::Line), b"fine\na\0b\n")
                .starts_with("line 2 of standard input contains a NUL")
        );
        assert!(told(ItemSource::Jsonl("-".into()), b"{}\n{x\n").contains("line 2, column 2: not JSON"));
        assert!(told(ItemSource::Csv("-".into()), b"a,b\n1\n").contains("fields"));
        assert!(told(ItemSource::Csv("-".into()), b"a,a\n1,2\n").contains("duplicate"));
        assert!(told(ItemSource::Files("/nowhere/*.x".into()), b"").contains("no file matches"));
        assert!(told(ItemSource::Csv("/nowhere/x.csv".into()), b"").contains("cannot read"));
        let long = told(ItemSource::Words(vec![vec![b'x'; ItemUse::MAX_ARGUMENT_BYTES + 1]]), b"");
        assert!(long.contains("item 1 has") && long.contains("at most 131072"), "{long}");
    }

    #[test]
    fn an_item_of_a_payload_may_be_long_and_have_any_characters() {
        let long = vec![0; ItemUse::MAX_ARGUMENT_BYTES + 1];
        let source = ItemSource::Words(vec![long.clone()]);
        let items = source.read(ItemUse::Payload, || Box::new(io::empty())).expect("items");
        assert_eq!(items.all, [Item::plain(long)]);
    }

    #[test]
    fn a_command_gives_an_item_for_each_line_and_one_that_fails_none() {
        let output = |line: &str| read(ItemSource::Command(line.to_owned()), b"");
        assert_eq!(texts(&output("printf 'a b\\n\\n-x\\n'").expect("items")), ["a b", "-x"]);
        let failed = output("echo a; exit 3").expect_err("it failed");
        assert!(failed.contains("exit status: 3") && failed.contains("nothing was enqueued"), "{failed}");
        let endless = output("printf 'a\\0b\\n'; exec sleep 600").expect_err("refused");
        assert!(endless.contains("line 1 of its output contains a NUL"), "{endless}");
    }
}
