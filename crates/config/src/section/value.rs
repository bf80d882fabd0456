//! A value of the config file, read as the type that its key has.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use ostler_core::{Cost, visible};
use toml::Spanned;
use toml::de::DeValue;

use super::{ConfigReader, SecretValues, Section};
use crate::duration::{self, short};
use crate::expand::expand;
use crate::{money, size};

/// A value of the file, with its path and position.
pub struct FoundValue<'a> {
    pub(super) reading: &'a ConfigReader<'a>,
    pub(super) path: String,
    pub(super) at: usize,
    pub(super) value: &'a Spanned<DeValue<'a>>,
}

impl<'a> FoundValue<'a> {
    /// The path, as messages show it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Records that the value is invalid.
    pub fn refuse<T>(&self, sentence: impl Display) -> Option<T> {
        self.fault(format!("{} {sentence}", self.path));
        None
    }

    /// Records a fault about the value.
    pub fn fault(&self, sentence: impl Into<String>) {
        self.reading.fault(Some(self.at), sentence);
    }

    /// Records that the value has the wrong type or range.
    fn mistaken<T>(&self, right: &str) -> Option<T> {
        self.refuse(format!("is {}, but must be {right}", self.shown()))
    }

    /// The value as written in the file: values from the environment may be secret.
    pub fn shown(&self) -> String {
        match self.value.get_ref().as_str() {
            Some(text) => format!("\"{}\"", visible(&short(text))),
            None => self.reading.source(self.value.span()),
        }
    }

    /// The boolean, if it is one.
    pub fn truth(&self) -> Option<bool> {
        self.value.get_ref().as_bool()
    }

    pub fn is_text(&self, text: &str) -> bool {
        self.value.get_ref().as_str() == Some(text)
    }

    /// Whether it is a string, for values that may be one or a table.
    pub fn is_string(&self) -> bool {
        self.value.get_ref().as_str().is_some()
    }

    pub fn table(&self) -> Option<Section<'a>> {
        self.table_or("a table")
    }

    /// The value as a table; `right` describes what else it could have been.
    pub fn table_or(&self, right: &str) -> Option<Section<'a>> {
        let Some(table) = self.value.get_ref().as_table() else {
            return self.mistaken(right);
        };
        let (reading, path, at) = (self.reading, self.path.clone(), Some(self.at));
        Some(Section { reading, path, at, table: Some(table), known: Vec::new() })
    }

    /// The value as a table, or as a list of tables.
    pub fn tables(&self, example: &str) -> Vec<Section<'a>> {
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
    pub fn percent(&self) -> Option<u8> {
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
    pub fn text(&self) -> Option<String> {
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

    /// A string with its variables replaced, which no message repeats. `None` without a fault if secrets are left out.
    pub fn secret(&self) -> Option<String> {
        let Some(text) = self.value.get_ref().as_str() else {
            return self.refuse("must be a string in quotes, such as \"${API_KEY}\"");
        };
        if self.reading.secrets == SecretValues::LeftOut {
            return None;
        }
        expand(text, self.reading.env)
            .map_err(|error| self.refuse::<()>(format!("cannot be read: {error}")))
            .ok()
    }

    pub fn texts(&self, example: &str) -> Option<Vec<String>> {
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

    pub fn numbers(&self, range: &RangeInclusive<u64>) -> Option<Vec<u64>> {
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

    pub fn one_of<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, choice)| *choice);
        chosen.or_else(|| self.mistaken(&words.join(" or ")))
    }

    /// A boolean, as one of two values.
    pub fn choice<T>(&self, yes: T, no: T) -> Option<T> {
        match self.value.get_ref().as_bool() {
            Some(true) => Some(yes),
            Some(false) => Some(no),
            None => self.mistaken("true or false"),
        }
    }

    pub fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match whole(self.value.get_ref()) {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) | None => {
                self.mistaken(&format!("a whole number from {} to {}", range.start(), range.end()))
            }
        }
    }

    pub fn count(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let number = self.whole(u64::from(*range.start())..=u64::from(*range.end()))?;
        u32::try_from(number).ok()
    }

    pub fn duration(&self) -> Option<Duration> {
        let text = self.number_with_unit()?;
        match duration::parse(&text) {
            Ok(Duration::ZERO) => self.refuse(format!("is {}, but must be longer than zero", self.bare())),
            Ok(duration) => Some(duration),
            Err(error) => self.refuse(format!("is {}: {error}", self.bare())),
        }
    }

    pub fn size(&self, range: RangeInclusive<u64>) -> Option<u64> {
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

    /// An amount of US dollars, such as `"$0.25"` or `0.25`.
    pub fn money(&self) -> Option<Cost> {
        let value = self.value.get_ref();
        let text = match value.as_float() {
            Some(float) => float.as_str().to_owned(),
            None => self.number_with_unit()?,
        };
        match money::parse(&text) {
            Ok(cost) if cost == Cost::default() => {
                self.refuse(format!("is {}, but must be more than $0", self.bare()))
            }
            Ok(cost) => Some(cost),
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
