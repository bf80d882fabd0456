//! Values of other formats: JSON payloads, timestamps, signed numbers.

use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::DeValue;

use super::FoundValue;
use crate::expand::expand;

impl FoundValue<'_> {
    /// Any value as JSON. Variables in strings are replaced.
    pub fn json(&self) -> Option<Value> {
        self.json_of(self.value)
    }

    fn json_of(&self, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        let shown = || self.reading.source(value.span());
        match value.get_ref() {
            DeValue::String(text) => match expand(text, self.reading.env) {
                Ok(text) => Some(Value::String(text)),
                Err(error) => self.refuse(format!("contains {}: {error}", shown())),
            },
            DeValue::Integer(integer) => {
                let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
                let number = number.map(|number| Value::Number(number.into()));
                number.or_else(|| self.refuse(format!("contains {}, which is too large a number", shown())))
            }
            DeValue::Float(float) => {
                let number = float.as_str().parse().ok().and_then(Number::from_f64).map(Value::Number);
                number.or_else(|| self.refuse(format!("contains {}, which JSON cannot represent", shown())))
            }
            DeValue::Boolean(yes) => Some(Value::Bool(*yes)),
            DeValue::Datetime(at) => Some(Value::String(at.to_string())),
            // Every element is read, so that every fault is reported.
            DeValue::Array(items) => {
                let items: Vec<Option<Value>> = items.iter().map(|item| self.json_of(item)).collect();
                items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            DeValue::Table(table) => {
                let fields: Vec<Option<(String, Value)>> = table
                    .iter()
                    .map(|(name, value)| Some((name.get_ref().to_string(), self.json_of(value)?)))
                    .collect();
                fields.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }

    /// The text of a timestamp, which is a string or a TOML date-time.
    #[must_use]
    pub fn moment(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::Datetime(at) => Some(at.to_string()),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => self.text(),
        }
    }

    pub fn signed(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let number = self.value.get_ref().as_integer().and_then(|integer| {
            i64::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .filter(|number| range.contains(number))
        });
        number.or_else(|| {
            let right = format!("a whole number from {} to {}", range.start(), range.end());
            self.refuse(format!("is {}, but must be {right}", self.shown()))
        })
    }
}
