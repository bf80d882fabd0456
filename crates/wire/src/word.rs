//! Words: names of closed sets, such as states and error classes. Views that are built here have them from the code; views that a client
//! reads from a node's answer have them from this interner.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// A name of a closed set.
pub type Word = &'static str;

/// Distinct words that a process keeps, and bytes of each. There are some two hundred, none of them long; more is not the answer of a
/// node.
const MAX_WORDS: usize = 4_096;
const MAX_WORD_BYTES: usize = 64;

static WORDS: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());

/// The word with this text. Each is kept once, for the life of the process; `None`: it is too long, or there are too many.
fn intern(text: &str) -> Option<Word> {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(text) {
        return Some(known);
    }
    if text.len() > MAX_WORD_BYTES || words.len() >= MAX_WORDS {
        return None;
    }
    let word: Word = Box::leak(text.to_owned().into_boxed_str());
    words.insert(word);
    Some(word)
}

fn interned<E: serde::de::Error>(text: &str) -> Result<Word, E> {
    intern(text).ok_or_else(|| E::custom("not a word that a node writes"))
}

pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    interned(&String::deserialize(from)?)
}

pub(crate) fn read_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Word>, D::Error> {
    Option::<String>::deserialize(from)?.as_deref().map(interned).transpose()
}

pub(crate) fn read_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Word>, D::Error> {
    Vec::<String>::deserialize(from)?.iter().map(|text| interned(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_once_and_a_long_text_is_none() {
        let (one, again) = (intern("queued-for-a-test"), intern(&["queued-for", "-a-test"].concat()));
        assert!(one.zip(again).is_some_and(|(one, again)| std::ptr::eq(one, again)));
        assert_eq!(intern(&"x".repeat(MAX_WORD_BYTES + 1)), None);
    }
}
