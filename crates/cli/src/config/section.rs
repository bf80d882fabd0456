//! A table of the file, read key by key.
//!
//! A key is known because it is asked for. What nobody asked for is refused at the end, with the nearest key that was.
//! Nothing stops at a fault: the value counts as left out, and the sentence is kept.

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

/// Keys that are further from each other than this are no typing mistake.
const MAX_DISTANCE: usize = 3;
/// Nobody mistypes a longer key.
const MAX_GUESSED_BYTES: usize = 64;

/// One reading of one text.
pub(super) struct ConfigReader<'a> {
    text: &'a str,
    env: &'a dyn Fn(&str) -> Option<String>,
    faults: RefCell<Vec<ConfigFault>>,
    /// Every key that was asked for, and whether it stood there.
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

    /// Keeps a sentence about what begins at this byte.
    pub(super) fn fault(&self, at: Option<usize>, sentence: impl Into<String>) {
        let line = at.map(|at| 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count());
        self.faults.borrow_mut().push(ConfigFault { line, sentence: sentence.into() });
    }

    pub(super) fn into_faults(self) -> Vec<ConfigFault> {
        self.faults.into_inner()
    }

    /// What stands there, as far as it is shown.
    fn source(&self, span: Range<usize>) -> String {
        short(self.text.get(span).and_then(|text| text.lines().next()).unwrap_or_default())
    }
}

/// A table of the file, or one that is not there: then every key of it is left out.
pub(super) struct Section<'a> {
    reading: &'a ConfigReader<'a>,
    path: String,
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn root(reading: &'a ConfigReader<'a>, table: &'a DeTable<'a>) -> Self {
        Self { reading, path: String::new(), at: None, table: Some(table), known: Vec::new() }
    }

    /// The value of a key, if it is there.
    pub(super) fn find(&mut self, key: &'static str) -> Option<FoundValue<'a>> {
        self.known.push(key);
        let found = self.entry(key);
        #[cfg(test)]
        self.reading.asked.borrow_mut().push((join(&self.path, key), found.is_some()));
        found
    }

    /// Those of some keys that are there, of which one is to be chosen, with their places in the list.
    pub(super) fn choose(&mut self, keys: &[&'static str]) -> Vec<(usize, FoundValue<'a>)> {
        self.known.extend(keys);
        keys.iter().enumerate().filter_map(|(at, key)| Some((at, self.entry(key)?))).collect()
    }

    /// The value of a key that must be there; `about` says what it is.
    pub(super) fn required(&mut self, key: &'static str, about: &str) -> Option<FoundValue<'a>> {
        let found = self.find(key);
        if found.is_none() {
            self.fault(key, format!("is missing: {about}"));
        }
        found
    }

    /// Its name, as sentences name it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Keeps a sentence about it as a whole.
    pub(super) fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
        None
    }

    fn entry(&self, key: &str) -> Option<FoundValue<'a>> {
        let (name, value) = self.table?.get_key_value(key)?;
        Some(FoundValue { reading: self.reading, path: join(&self.path, key), at: name.span().start, value })
    }

    /// The table under a key.
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

    /// Which of these keys stand there. They are known; whoever wants a value asks for it.
    pub(super) fn present(&mut self, keys: &[&'static str]) -> Vec<&'static str> {
        self.known.extend(keys);
        keys.iter().copied().filter(|key| self.entry(key).is_some()).collect()
    }

    /// All entries of a table whose keys are names that the owner gave.
    pub(super) fn entries(&self) -> Vec<(String, FoundValue<'a>)> {
        let names = self.table.into_iter().flat_map(|table| table.keys());
        names.filter_map(|name| Some((name.get_ref().to_string(), self.entry(name.get_ref())?))).collect()
    }

    /// Whether a key stands there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Keeps a sentence about a key of it.
    pub(super) fn fault(&self, key: &str, sentence: impl Display) {
        let at = self.entry(key).map(|found| found.at).or(self.at);
        self.reading.fault(at, format!("{} {sentence}", join(&self.path, key)));
    }

    /// Keeps a sentence about the whole of it.
    pub(super) fn fault_all(&self, sentence: impl Display) {
        self.reading.fault(self.at, format!("{} {sentence}", self.path));
    }

    /// Refuses what nobody asked for. Those in `later` are named in the design and are not in this version.
    pub(super) fn close(self, later: &[&str]) {
        for (key, found) in self.entries() {
            if self.known.iter().any(|known| *known == key) {
                continue;
            }
            let end = if later.contains(&key.as_str()) {
                "this key is not in this version".to_owned()
            } else {
                match probably(&key, &self.known) {
                    Some(known) => format!("there is no such key; did you mean {known}?"),
                    None => format!("there is no such key; the keys here are {}", self.known.join(", ")),
                }
            };
            self.reading.fault(Some(found.at), format!("{}: {end}", found.path));
        }
    }
}

/// The keys that were probably meant: those that have the word in them, or else the one that is written much like it.
fn probably(word: &str, known: &[&str]) -> Option<String> {
    let having: Vec<&str> =
        known.iter().copied().filter(|key| key.split('_').any(|part| part == word)).collect();
    if having.is_empty() { nearest(word, known).map(str::to_owned) } else { Some(having.join(" or ")) }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    if word.len() > MAX_GUESSED_BYTES {
        return None;
    }
    let by_distance = known.iter().map(|known| (strsim::osa_distance(word, known), *known));
    // Half of a short word may not be wrong: then it is another word.
    let near =
        by_distance.filter(|(distance, known)| *distance <= MAX_DISTANCE && distance * 2 <= known.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The path of a key, as TOML would write it.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { short(key) } else { format!("\"{}\"", visible(&short(key))) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// A value of the file, with all that is needed to speak about it.
pub(super) struct FoundValue<'a> {
    reading: &'a ConfigReader<'a>,
    path: String,
    at: usize,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> FoundValue<'a> {
    /// Its name, as sentences name it.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Keeps the sentence that its value is no good.
    pub(super) fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.fault(format!("{} {sentence}", self.path));
        None
    }

    /// Keeps a sentence about it.
    pub(super) fn fault(&self, sentence: impl Into<String>) {
        self.reading.fault(Some(self.at), sentence);
    }

    /// It should have been something else.
    fn mistaken<T>(&self, right: &str) -> Option<T> {
        self.refuse(format!("is {}, and must be {right}", self.shown()))
    }

    /// The value as the file has it: what comes from the environment may be a secret.
    pub(super) fn shown(&self) -> String {
        match self.value.get_ref().as_str() {
            Some(text) => format!("\"{}\"", visible(&short(text))),
            None => self.reading.source(self.value.span()),
        }
    }

    /// Whether it is yes or no, if it is one of them.
    pub(super) fn truth(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    /// Whether it is this text.
    pub(super) fn is_text(&self, text: &str) -> bool {
        self.value.get_ref().as_str() == Some(text)
    }

    /// The table that it is.
    pub(super) fn table(&self) -> Option<Section<'a>> {
        self.table_or("a table")
    }

    /// The table that it is, where it could have been something else.
    pub(super) fn table_or(&self, right: &str) -> Option<Section<'a>> {
        let Some(table) = self.value.get_ref().as_table() else {
            return self.mistaken(right);
        };
        let (reading, path, at) = (self.reading, self.path.clone(), Some(self.at));
        Some(Section { reading, path, at, table: Some(table), known: Vec::new() })
    }

    /// The table that it is, or the tables of a list.
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
                None => self
                    .refuse(format!("has {} in it, and must be {right}", self.reading.source(item.span()))),
            }
        };
        items.iter().enumerate().filter_map(section).collect()
    }

    /// A part of one, as a whole number of hundredths.
    pub(super) fn percent(&self) -> Option<u8> {
        let value = self.value.get_ref();
        let text = value
            .as_float()
            .map(|float| float.as_str())
            .or_else(|| value.as_integer().map(|whole| whole.as_str()));
        let percent = text.and_then(|text| text.parse::<f64>().ok()).map(|part| (part * 100.0).round());
        match percent {
            Some(percent) if (1.0..=100.0).contains(&percent) => Some(percent as u8),
            Some(_) | None => self.mistaken("a part of one, from 0.01 to 1.0"),
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
                self.refuse("has a NUL character in it, which no program can be given")
            }
            Ok(text) => Some(text),
        }
    }

    /// A name of a node, a pool or a queue.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.text()?;
        ostler_store::check_name(&self.path, &name).map_err(|error| self.fault(error.to_string())).ok()?;
        Some(name)
    }

    /// A list of strings.
    pub(super) fn texts(&self, example: &str) -> Option<Vec<String>> {
        let right = format!("a list of strings, such as {example}");
        let Some(items) = self.value.get_ref().as_array() else {
            return self.mistaken(&right);
        };
        // Every element is looked at, so that every fault is told.
        let texts: Vec<Option<String>> = items
            .iter()
            .map(|item| match item.get_ref().as_str() {
                Some(text) => self.expanded(text),
                None => self
                    .refuse(format!("has {} in it, and must be {right}", self.reading.source(item.span()))),
            })
            .collect();
        texts.into_iter().collect()
    }

    /// A list of whole numbers.
    pub(super) fn numbers(&self, range: &RangeInclusive<u64>) -> Option<Vec<u64>> {
        let right = format!("a list of whole numbers from {} to {}", range.start(), range.end());
        let Some(items) = self.value.get_ref().as_array() else {
            return self.mistaken(&right);
        };
        let number = |item: &Spanned<DeValue<'_>>| match whole(item.get_ref()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) | None => {
                self.refuse(format!("has {} in it, and must be {right}", self.reading.source(item.span())))
            }
        };
        let numbers: Vec<Option<u64>> = items.iter().map(number).collect();
        numbers.into_iter().collect()
    }

    /// One of a few words.
    pub(super) fn one_of<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        chosen.or_else(|| self.mistaken(&words.join(" or ")))
    }

    /// Yes or no, as one of two values.
    pub(super) fn choice<T>(&self, yes: T, no: T) -> Option<T> {
        match self.value.get_ref().as_bool() {
            Some(true) => Some(yes),
            Some(false) => Some(no),
            None => self.mistaken("true or false"),
        }
    }

    /// A whole number.
    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match whole(self.value.get_ref()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) | None => {
                self.mistaken(&format!("a whole number from {} to {}", range.start(), range.end()))
            }
        }
    }

    /// A whole number that is counted in 32 bits.
    pub(super) fn count(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.whole(u64::from(*range.start())..=u64::from(*range.end()))?;
        u32::try_from(number).ok()
    }

    /// A duration that is longer than zero.
    pub(super) fn duration(&self) -> Option<Duration> {
        let text = self.number_with_unit()?;
        match duration::parse(&text) {
            Ok(Duration::ZERO) => self.refuse(format!("is {}, and must be longer than zero", self.bare())),
            Ok(duration) => Some(duration),
            Err(error) => self.refuse(format!("is {}: {error}", self.bare())),
        }
    }

    /// A size in bytes.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let text = self.number_with_unit()?;
        match size::parse(&text) {
            Ok(bytes) if range.contains(&bytes) => Some(bytes),
            Ok(_) => {
                let (least, most) = (size::show(*range.start()), size::show(*range.end()));
                self.refuse(format!("is {}, and must be from {least} to {most}", self.bare()))
            }
            Err(error) => self.refuse(format!("is {}: {error}", self.bare())),
        }
    }

    /// A number without quotes is read too, to say that its unit is missing.
    fn number_with_unit(&self) -> Option<String> {
        match whole(self.value.get_ref()) {
            Some(number) => Some(number.to_string()),
            None if self.value.get_ref().is_integer() => Some(self.bare()),
            None => self.text(),
        }
    }

    /// The value without its quotes.
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
