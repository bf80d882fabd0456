//! Typed access to a TOML table, key by key, collecting faults.
//!
//! A key is known because it is asked for. Keys that were never asked for are refused by `close`, with the nearest known key.
//! Reading never stops at a fault: the value counts as left out, and the message is collected.

mod plain;

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration::{self, short};
use super::expand::expand;
use super::fault::ConfigFault;
use super::size;
use crate::print::visible;

/// Keys with a larger edit distance are not suggested.
const MAX_DISTANCE: usize = 3;
/// Longer keys get no suggestion.
const MAX_GUESSED_BYTES: usize = 64;

/// The state of reading one file.
pub(super) struct ConfigReader<'a> {
    text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    faults: RefCell<Vec<ConfigFault>>,
    /// Every key that was asked for, and whether it was present.
    #[cfg(test)]
    pub(super) asked: RefCell<Vec<(String, bool)>>,
}

impl<'a> ConfigReader<'a> {
    pub(super) fn new(text: &'a str, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            text,
            env,
            faults: RefCell::default(),
            #[cfg(test)]
            asked: RefCell::default(),
        }
    }

    /// Records a fault at this byte offset.
    pub(super) fn fault(&self, at: Option<usize>, sentence: impl Into<String>) {
        let line = at.map(|at| 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count());
        self.faults.borrow_mut().push(ConfigFault { line, sentence: sentence.into() });
    }

    pub(super) fn into_faults(self) -> Vec<ConfigFault> {
        self.faults.into_inner()
    }

    /// The source text of a value, shortened.
    fn source(&self, span: Range<usize>) -> String {
        short(self.text.get(span).and_then(|text| text.lines().next()).unwrap_or_default())
    }
}

/// A table of the file, or a missing one, whose keys are all absent.
pub(super) struct Section<'a> {
    reading: &'a ConfigReader<'a>,
    path: String,
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The top-level table.
    pub(super) fn root(reading: &'a ConfigReader<'a>, table: &'a DeTable<'a>) -> Self {
        Self { reading, path: String::new(), at: None, table: Some(table), known: Vec::new() }
    }

    /// The value of a key, if present.
    pub(super) fn find(&mut self, key: &'static str) -> Option<FoundValue<'a>> {
        self.known.push(key);
        let found = self.entry(key);
        #[cfg(test)]
        self.reading.asked.borrow_mut().push((join(&self.path, key), found.is_some()));
        found
    }

    /// The values of those of `keys` that are present, with their indexes in `keys`.
    pub(super) fn choose(&mut self, keys: &[&'static str]) -> Vec<(usize, FoundValue<'a>)> {
        self.known.extend(keys);
        keys.iter().enumerate().filter_map(|(at, key)| Some((at, self.entry(key)?))).collect()
    }

    /// The value of a required key; `about` describes it.
    pub(super) fn required(&mut self, key: &'static str, about: &str) -> Option<FoundValue<'a>> {
        let found = self.find(key);
        if found.is_none() {
            self.fault(key, format!("is missing: {about}"));
        }
        found
    }

    /// The path, as messages show it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Records a fault about the whole table.
    pub(super) fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
        None
    }

    fn entry(&self, key: &str) -> Option<FoundValue<'a>> {
        let (name, value) = self.table?.get_key_value(key)?;
        Some(FoundValue { reading: self.reading, path: join(&self.path, key), at: name.span().start, value })
    }

    pub(super) fn section(&mut self, key: &'static str) -> Self {
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
    pub(super) fn present(&mut self, keys: &[&'static str]) -> Vec<&'static str> {
        self.known.extend(keys);
        keys.iter().copied().filter(|key| self.entry(key).is_some()).collect()
    }

    /// All entries of a table whose keys are chosen by the user.
    pub(super) fn entries(&self) -> Vec<(String, FoundValue<'a>)> {
        let names = self.table.into_iter().flat_map(|table| table.keys());
        names.filter_map(|name| Some((name.get_ref().to_string(), self.entry(name.get_ref())?))).collect()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Records a fault about a key.
    pub(super) fn fault(&self, key: &str, sentence: impl Display) {
        let at = self.entry(key).map(|found| found.at).or(self.at);
        self.reading.fault(at, format!("{} {sentence}", join(&self.path, key)));
    }

    /// Records a fault about the whole table.
    pub(super) fn fault_all(&self, sentence: impl Display) {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
    }

    /// Refuses unknown keys. Those in `later` are planned, and not in this version.
    pub(super) fn close(self, later: &[&str]) {
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

/// The known word with the most similar spelling.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > MAX_GUESSED_BYTES {
        return None;
    }
    let by_distance = known.iter().map(|known| (strsim::osa_distance(word, known), *known));
    // If half of a short word differs, it is another word.
    let near =
        by_distance.filter(|(distance, known)| *distance <= MAX_DISTANCE && distance * 2 <= known.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The path of a key in TOML notation.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { short(key) } else { format!("\"{}\"", visible(&short(key))) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// A value of the file, with its path and position.
pub(super) struct FoundValue<'a> {
    reading: &'a ConfigReader<'a>,
    path: String,
    at: usize,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> FoundValue<'a> {
    /// The path, as messages show it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Records that the value is invalid.
    pub(super) fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.fault(format!("{} {sentence}", self.path));
        None
    }

    /// Records a fault about the value.
    pub(super) fn fault(&self, sentence: impl Into<String>) {
        self.reading.fault(Some(self.at), sentence);
    }

    /// Records that the value has the wrong type or range.
    fn mistaken<T>(&self, right: &str) -> Option<T> {
        self.refuse(format!("is {}, but must be {right}", self.shown()))
    }

    /// The value as written in the file: values from the environment may be secret.
    pub(super) fn shown(&self) -> String {
        match self.value.get_ref().as_str() {
            Some(text) => format!("\"{}\"", visible(&short(text))),
            None => self.reading.source(self.value.span()),
        }
    }

    /// The boolean, if it is one.
    pub(super) fn truth(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    pub(super) fn is_text(&self, text: &str) -> bool {
        self.value.get_ref().as_str() == Some(text)
    }

    pub(super) fn table(&self) -> Option<Section<'a>> {
        self.table_or("a table")
    }

    /// The value as a table; `right` describes what else it could have been.
    pub(super) fn table_or(&self, right: &str) -> Option<Section<'a>> {
        let Some(table) = self.value.get_ref().as_table() else {
            return self.mistaken(right);
        };
        let (reading, path, at) = (self.reading, self.path.clone(), Some(self.at));
        Some(Section { reading, path, at, table: Some(table), known: Vec::new() })
    }

    /// The value as a table, or as a list of tables.
    pub(super) fn tables(&self, example: &str) -> Vec<Section<'a>> {
        let right = format!("a table such as {example}, or a list of such");
        let Some(items) = self.value.get_ref().as_array() else {
            if self.value.get_ref().is_table() {
                return self.table().into_iter().collect();
            }
            return self.mistaken::<Vec<_>>(&right).unwrap_or_default();
        };
        let section = |(at, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let path = format!("{}[{}]", self.path, at + 1);
            match item.get_ref().as_table() {
                Some(table) => {
                    let (reading, at) = (self.reading, Some(item.span().start));
                    Some(Section { reading, path, at, table: Some(table), known: Vec::new() })
                }
                None => {
                    self.refuse(format!("contains {}, but must be {right}", self.reading.source(item.span())))
                }
            }
        };
        items.iter().enumerate().filter_map(section).collect()
    }

    /// A fraction, in whole percent.
    pub(super) fn percent(&self) -> Option<u8> {
        let value = self.value.get_ref();
        let text = value
            .as_float()
            .map(|float| float.as_str())
            .or_else(|| value.as_integer().map(|whole| whole.as_str()));
        let percent = text.and_then(|text| text.parse::<f64>().ok()).map(|part| (part * 100.0).round());
        match percent {
            Some(percent) if (1.0..=100.0).contains(&percent) => Some(percent as u8),
            Some(_) | None => self.mistaken("a fraction from 0.01 to 1.0"),
        }
    }

    /// A string, with its variables replaced.
    pub(super) fn text(&self) -> Option<String> {
        match self.value.get_ref().as_str() {
            Some(text) => self.expanded(text),
            None => self.mistaken("a string in quotes"),
        }
    }

    fn expanded(&self, text: &str) -> Option<String> {
        match expand(text, self.reading.env) {
            Err(error) => self.refuse(format!("is {}: {error}", self.shown())),
            Ok(text) if text.contains('\0') => {
                self.refuse("contains a NUL character, which cannot be passed to a program")
            }
            Ok(text) => Some(text),
        }
    }

    /// The name of a node, pool or queue.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.text()?;
        ostler_store::check_name(&self.path, &name).map_err(|error| self.fault(error.to_string())).ok()?;
        Some(name)
    }

    pub(super) fn texts(&self, example: &str) -> Option<Vec<String>> {
        let right = format!("a list of strings, such as {example}");
        let Some(items) = self.value.get_ref().as_array() else {
            return self.mistaken(&right);
        };
        // Every element is read, so that every fault is reported.
        let texts: Vec<Option<String>> = items
            .iter()
            .map(|item| match item.get_ref().as_str() {
                Some(text) => self.expanded(text),
                None => {
                    self.refuse(format!("contains {}, but must be {right}", self.reading.source(item.span())))
                }
            })
            .collect();
        texts.into_iter().collect()
    }

    pub(super) fn numbers(&self, range: &RangeInclusive<u64>) -> Option<Vec<u64>> {
        let right = format!("a list of whole numbers from {} to {}", range.start(), range.end());
        let Some(items) = self.value.get_ref().as_array() else {
            return self.mistaken(&right);
        };
        let number = |item: &Spanned<DeValue<'_>>| match whole(item.get_ref()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) | None => {
                self.refuse(format!("contains {}, but must be {right}", self.reading.source(item.span())))
            }
        };
        let numbers: Vec<Option<u64>> = items.iter().map(number).collect();
        numbers.into_iter().collect()
    }

    pub(super) fn one_of<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        chosen.or_else(|| self.mistaken(&words.join(" or ")))
    }

    /// A boolean, as one of two values.
    pub(super) fn choice<T>(&self, yes: T, no: T) -> Option<T> {
        match self.value.get_ref().as_bool() {
            Some(true) => Some(yes),
            Some(false) => Some(no),
            None => self.mistaken("true or false"),
        }
    }

    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match whole(self.value.get_ref()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) | None => {
                self.mistaken(&format!("a whole number from {} to {}", range.start(), range.end()))
            }
        }
    }

    pub(super) fn count(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.whole(u64::from(*range.start())..=u64::from(*range.end()))?;
        u32::try_from(number).ok()
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.number_with_unit()?;
        match duration::parse(&text) {
            Ok(Duration::ZERO) => self.refuse(format!("is {}, but must be longer than zero", self.bare())),
            Ok(duration) => Some(duration),
            Err(error) => self.refuse(format!("is {}: {error}", self.bare())),
        }
    }

    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.number_with_unit()?;
        match size::parse(&text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let (least, most) = (size::show(*range.start()), size::show(*range.end()));
                self.refuse(format!("is {}, but must be from {least} to {most}", self.bare()))
            }
            Err(error) => self.refuse(format!("is {}: {error}", self.bare())),
        }
    }

    /// A number without quotes is accepted here, so that the message can say that its unit is missing.
    fn number_with_unit(&self) -> Option<String> {
        match whole(self.value.get_ref()) {
            Some(number) => Some(number.to_string()),
            None if self.value.get_ref().is_integer() => Some(self.bare()),
            None => self.text(),
        }
    }

    fn bare(&self) -> String {
        match self.value.get_ref().as_str() {
            Some(text) => visible(&short(text)),
            None => self.reading.source(self.value.span()),
        }
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}
