//! Part of an id: its beginning or its end, as people type it.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::id::{Id, TEXT_LEN, digit};

/// The bits of one character.
const BITS: u32 = 5;
/// The bits of the first character of an id.
const FIRST_BITS: u32 = 128 - BITS * (TEXT_LEN as u32 - 1);

/// The first or the last characters of an id, at least [`IdPart::MIN_LEN`] and fewer than all.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdPart {
    digits: u128,
    len: u32,
}

impl IdPart {
    /// Shorter parts name too many ids.
    pub const MIN_LEN: usize = 4;

    /// The lowest and the highest id that begin with this; `None`: no id does.
    #[must_use]
    pub const fn beginning(self) -> Option<RangeInclusive<Id>> {
        let shift = BITS * (TEXT_LEN as u32 - self.len);
        // The first character has fewer bits than the others.
        if self.digits >> (FIRST_BITS + BITS * (self.len - 1)) != 0 {
            return None;
        }
        let lowest = self.digits << shift;
        Some(RangeInclusive::new(Id::from_bits(lowest), Id::from_bits(lowest | ((1 << shift) - 1))))
    }

    /// Whether the id ends with this.
    #[must_use]
    pub const fn ends(self, id: Id) -> bool {
        id.bits() & ((1 << (BITS * self.len)) - 1) == self.digits
    }

    /// Whether the id begins or ends with this.
    #[must_use]
    pub fn matches(self, id: Id) -> bool {
        self.ends(id) || self.beginning().is_some_and(|range| range.contains(&id))
    }
}

impl fmt::Display for IdPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Id::from_bits(self.digits).to_string();
        f.pad(&text[TEXT_LEN - self.len as usize..])
    }
}

impl fmt::Debug for IdPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is no part of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoIdPart;

impl FromStr for IdPart {
    type Err = NoIdPart;

    fn from_str(text: &str) -> Result<Self, NoIdPart> {
        if !(Self::MIN_LEN..TEXT_LEN).contains(&text.len()) {
            return Err(NoIdPart);
        }
        let mut digits = 0;
        for byte in text.bytes() {
            digits = (digits << BITS) | u128::from(digit(byte).ok_or(NoIdPart)?);
        }
        Ok(Self { digits, len: text.len() as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";

    fn part(text: &str) -> IdPart {
        text.parse().unwrap_or_else(|NoIdPart| panic!("{text} is a part"))
    }

    #[test]
    fn every_beginning_and_every_end_of_an_id_names_it_and_no_other_text_does() {
        let id: Id = TEXT.parse().expect("an id");
        for len in IdPart::MIN_LEN..TEXT_LEN {
            let (first, last) = (&TEXT[..len], &TEXT[TEXT_LEN - len..]);
            assert!(part(first).beginning().is_some_and(|range| range.contains(&id)), "{first}");
            assert!(part(last).ends(id), "{last}");
            assert!(part(&first.to_lowercase()).matches(id) && part(last).matches(id));
            assert_eq!(
                (part(first).to_string(), part(last).to_string()),
                (first.to_owned(), last.to_owned())
            );
            let other = format!("{}{}", &first[..len - 1], if first.ends_with('7') { '8' } else { '7' });
            assert!(!part(&other).matches(id), "{other}");
        }
    }

    #[test]
    fn the_range_of_a_beginning_is_exact() {
        let range = part("7ZZZ").beginning().expect("ids begin so");
        assert_eq!(*range.end(), Id::from_bits(u128::MAX));
        assert!(
            range.start().to_string().starts_with("7ZZZ000000") && range.start().to_string().ends_with('0')
        );
        assert_eq!(part("8ZZZ").beginning(), None, "the highest id begins with a 7");
        assert!(part("8ZZZ").matches(Id::from_bits(0x47fff)));
    }

    #[test]
    fn too_short_too_long_and_foreign_characters_are_no_part() {
        for text in ["", "01J", TEXT, "01JU", "01J-", "01Jä"] {
            assert_eq!(text.parse::<IdPart>(), Err(NoIdPart), "{text}");
        }
        assert_eq!(part("oljc"), part("01JC"), "look-alikes are read");
    }
}
