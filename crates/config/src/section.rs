//! Typed access to a TOML table, key by key, collecting faults.
//!
//! A key is known because it is asked for. Keys that were never asked for are refused by `close`, with the nearest known key.
//! Reading never stops at a fault: the value counts as left out, and the message is collected.

mod plain;
mod value;

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::Range;

use ostler_core::{nearest, visible};
use toml::de::DeTable;

use crate::duration::short;
use crate::fault::ConfigFault;
pub use value::FoundValue;

/// Whether the values of secrets are read. A command that runs no work needs none, and may not have them in its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretValues {
    Read,
    LeftOut,
}

/// The state of reading one file.
pub struct ConfigReader<'a> {
    text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    secrets: SecretValues,
    faults: RefCell<Vec<ConfigFault>>,
    /// Every key that was asked for, and whether it was present.
    asked: RefCell<Vec<(String, bool)>>,
}

impl<'a> ConfigReader<'a> {
    #[must_use]
    pub fn new(text: &'a str, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let (faults, asked) = (RefCell::default(), RefCell::default());
        Self { text, env, secrets: SecretValues::Read, faults, asked }
    }

    /// Reads the values of secrets, or leaves them out.
    #[must_use]
    pub fn secrets(self, secrets: SecretValues) -> Self {
        Self { secrets, ..self }
    }

    /// Records a fault at this byte offset.
    pub fn fault(&self, at: Option<usize>, sentence: impl Into<String>) {
        let line = at.map(|at| 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count());
        self.faults.borrow_mut().push(ConfigFault { line, sentence: sentence.into() });
    }

    /// The keys that were asked for so far, with their paths, and whether each was present.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, bool)> {
        self.asked.borrow().clone()
    }

    #[must_use]
    pub fn into_faults(self) -> Vec<ConfigFault> {
        self.faults.into_inner()
    }

    /// The source text of a value, shortened.
    fn source(&self, span: Range<usize>) -> String {
        short(self.text.get(span).and_then(|text| text.lines().next()).unwrap_or_default())
    }
}

/// A table of the file, or a missing one, whose keys are all absent.
pub struct Section<'a> {
    reading: &'a ConfigReader<'a>,
    path: String,
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The top-level table.
    #[must_use]
    pub fn root(reading: &'a ConfigReader<'a>, table: &'a DeTable<'a>) -> Self {
        Self { reading, path: String::new(), at: None, table: Some(table), known: Vec::new() }
    }

    /// The value of a key, if present.
    pub fn find(&mut self, key: &'static str) -> Option<FoundValue<'a>> {
        self.known.push(key);
        let found = self.entry(key);
        self.reading.asked.borrow_mut().push((join(&self.path, key), found.is_some()));
        found
    }

    /// The values of those of `keys` that are present, with their indexes in `keys`.
    pub fn choose(&mut self, keys: &[&'static str]) -> Vec<(usize, FoundValue<'a>)> {
        self.known.extend(keys);
        keys.iter().enumerate().filter_map(|(at, key)| Some((at, self.entry(key)?))).collect()
    }

    /// The value of a required key; `about` describes it.
    pub fn required(&mut self, key: &'static str, about: &str) -> Option<FoundValue<'a>> {
        let found = self.find(key);
        if found.is_none() {
            self.fault(key, format!("is missing: {about}"));
        }
        found
    }

    /// The path, as messages show it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Records a fault about the whole table.
    pub fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
        None
    }

    fn entry(&self, key: &str) -> Option<FoundValue<'a>> {
        let (name, value) = self.table?.get_key_value(key)?;
        Some(FoundValue { reading: self.reading, path: join(&self.path, key), at: name.span().start, value })
    }

    /// The table of a key; if it is missing, all of its keys are absent.
    #[must_use]
    pub fn section(&mut self, key: &'static str) -> Self {
        let found = self.find(key);
        let empty = Self {
            reading: self.reading,
            path: join(&self.path, key),
            at: self.at,
            table: None,
            known: Vec::new(),
        };
        match found {
            None => empty,
            Some(found) => found.table().unwrap_or(empty),
        }
    }

    /// Which of these keys are present. They count as known.
    pub fn present(&mut self, keys: &[&'static str]) -> Vec<&'static str> {
        self.known.extend(keys);
        keys.iter().copied().filter(|key| self.entry(key).is_some()).collect()
    }

    /// All entries of a table whose keys are chosen by the user.
    #[must_use]
    pub fn entries(&self) -> Vec<(String, FoundValue<'a>)> {
        let names = self.table.into_iter().flat_map(|table| table.keys());
        names.filter_map(|name| Some((name.get_ref().to_string(), self.entry(name.get_ref())?))).collect()
    }

    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Records a fault about a key.
    pub fn fault(&self, key: &str, sentence: impl Display) {
        let at = self.entry(key).map(|found| found.at).or(self.at);
        self.reading.fault(at, format!("{} {sentence}", join(&self.path, key)));
    }

    /// Records a fault about the whole table.
    pub fn fault_all(&self, sentence: impl Display) {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
    }

    /// Refuses unknown keys. Those in `later` are planned, and not in this version.
    pub fn close(self, later: &[&str]) {
        for (key, found) in self.entries() {
            if self.known.iter().any(|known| *known == key) {
                continue;
            }
            let end = if later.contains(&key.as_str()) {
                "not supported in this version".to_owned()
            } else {
                match probably(&key, &self.known) {
                    Some(known) => format!("unknown key; did you mean {known}?"),
                    None => format!("unknown key; the keys here are {}", self.known.join(", ")),
                }
            };
            self.reading.fault(Some(found.at), format!("{}: {end}", found.path));
        }
    }
}

/// The keys that were probably meant: those that contain the word, or the one with the most similar spelling.
fn probably(word: &str, known: &[&str]) -> Option<String> {
    let having: Vec<&str> =
        known.iter().copied().filter(|key| key.split('_').any(|part| part == word)).collect();
    if having.is_empty() { nearest(word, known).map(str::to_owned) } else { Some(having.join(" or ")) }
}

/// The path of a key in TOML notation.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { short(key) } else { format!("\"{}\"", visible(&short(key))) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
