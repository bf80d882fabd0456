//! Records of a move: one row in transit, and the checksum of many.

use std::fmt;

use sha2::{Digest, Sha256};

use super::tables::Table;

/// Bytes of the rows of one batch, unless a single row has more.
pub const MAX_BATCH_BYTES: usize = 8 << 20;

/// The value of a column of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Null.
    Nothing,
    /// An integer, a timestamp, or 1 and 0 for true and false.
    Number(i64),
    Text(String),
    /// Bytes, or the sixteen of an id.
    Bytes(Vec<u8>),
    Numbers(Vec<i64>),
}

impl Value {
    /// The approximate size in bytes.
    #[must_use]
    pub const fn weight(&self) -> usize {
        match self {
            Self::Nothing => 1,
            Self::Number(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbers(numbers) => numbers.len() * 8,
        }
    }

    /// Hashes the type, then the length if it has one, then the value: no two different rows give the same bytes.
    fn feed(&self, hash: &mut Sha256) {
        let mut long = |sort: u8, bytes: &[u8]| {
            hash.update([sort]);
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match self {
            Self::Nothing => hash.update([0]),
            Self::Number(number) => long(1, &number.to_le_bytes()),
            Self::Text(text) => long(2, text.as_bytes()),
            Self::Bytes(bytes) => long(3, bytes),
            Self::Numbers(numbers) => {
                long(4, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Numbers(numbers) => write!(f, "{numbers:?}"),
        }
    }
}

/// The key of a row: its first columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey(pub Vec<Value>);

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// One row, with a value for each column of its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(pub Vec<Value>);

impl Record {
    #[must_use]
    pub fn key(&self, table: Table) -> RecordKey {
        RecordKey(self.0.iter().take(table.key()).cloned().collect())
    }

    /// The approximate size in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.iter().map(Value::weight).sum()
    }
}

/// The number of rows, and a checksum of their contents.
#[derive(Clone, Debug, Default)]
pub struct Checksum {
    rows: u64,
    hash: Sha256,
}

impl Checksum {
    /// Adds one row.
    pub fn add(&mut self, record: &Record) {
        self.rows += 1;
        self.hash.update((record.0.len() as u64).to_le_bytes());
        record.0.iter().for_each(|value| value.feed(&mut self.hash));
    }

    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The checksum (SHA-256) in hexadecimal digits.
    #[must_use]
    pub fn text(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(records: &[Record]) -> String {
        let mut sum = Checksum::default();
        records.iter().for_each(|record| sum.add(record));
        sum.text()
    }

    #[test]
    fn what_differs_anywhere_has_another_sum() {
        let text = |text: &str| Value::Text(text.to_owned());
        let rows = [
            vec![Record(vec![text("ab"), text("c")])],
            vec![Record(vec![text("a"), text("bc")])],
            vec![Record(vec![Value::Bytes(b"ab".to_vec()), text("c")])],
            vec![Record(vec![text("ab")]), Record(vec![text("c")])],
            vec![Record(vec![text("ab"), text("c"), Value::Nothing])],
            vec![Record(vec![Value::Number(1)])],
            vec![Record(vec![Value::Numbers(vec![1])])],
            vec![Record(vec![text("")])],
            vec![Record(vec![Value::Nothing])],
        ];
        let sums: Vec<String> = rows.iter().map(|records| sum(records)).collect();
        for (at, one) in sums.iter().enumerate() {
            assert_eq!(sums.iter().filter(|other| *other == one).count(), 1, "row {at}");
        }
    }
}
