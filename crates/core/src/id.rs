//! Sortable unique ids (ULIDs).
//!
//! An id is 128 bits: 48 bits of milliseconds, then 80 random bits. Its text is 26 characters of
//! Crockford's base 32, the ULID form. The caller passes in the time and the random bits.

use std::fmt;
use std::str::FromStr;

use crate::time::Timestamp;

/// Crockford's alphabet: no I, L, O or U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
pub(crate) const TEXT_LEN: usize = 26;
const CHANCE_BITS: u32 = 80;

/// A sortable 128-bit id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

impl Id {
    /// The id with these bits, as a store persists them.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The sixteen bytes in big-endian order, which sorts as the id does.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; TEXT_LEN];
        let mut rest = self.0;
        for place in text.iter_mut().rev() {
            *place = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        f.pad(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for a text that is not an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadId {
    text: String,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not an id: an id has {TEXT_LEN} letters and digits, such as 01JC8Z0Q4M9T7N3V5X1B2D6F8H",
            self.text.escape_debug()
        )
    }
}

impl std::error::Error for BadId {}

impl FromStr for Id {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        // Echo only the start of an invalid text.
        let bad = || BadId { text: text.chars().take(TEXT_LEN * 2).collect() };
        if text.len() != TEXT_LEN {
            return Err(bad());
        }
        let mut bits: u128 = 0;
        for (place, byte) in text.bytes().enumerate() {
            let digit = digit(byte).ok_or_else(bad)?;
            if place == 0 && digit > 7 {
                return Err(bad());
            }
            bits = (bits << 5) | u128::from(digit);
        }
        Ok(Self(bits))
    }
}

pub(crate) fn digit(byte: u8) -> Option<u8> {
    let upper = match byte.to_ascii_uppercase() {
        b'O' => b'0',
        b'I' | b'L' => b'1',
        other => other,
    };
    ALPHABET.iter().position(|letter| *letter == upper).and_then(|at| u8::try_from(at).ok())
}

/// Makes strictly increasing ids, even within one millisecond and when the clock steps back.
#[derive(Clone, Debug, Default)]
pub struct Minter {
    last: u128,
}

impl Minter {
    #[must_use]
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// The next id: from the time and 80 random bits, or the last id plus one where that would be higher.
    pub fn mint(&mut self, now: Timestamp, chance: u128) -> Id {
        let millis = u128::from(u64::try_from(now.millis()).unwrap_or(0)) & ((1 << 48) - 1);
        let chance = chance & ((1 << CHANCE_BITS) - 1);
        // Same millisecond, or the clock stepped back: stay above the previous id.
        if millis <= self.last >> CHANCE_BITS {
            self.last = self.last.checked_add(1).expect("48 bits of milliseconds last until the year 10889");
        } else {
            self.last = (millis << CHANCE_BITS) | chance;
        }
        Id(self.last)
    }
}

macro_rules! typed_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Id);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                text.parse().map(Self)
            }
        }
    )*};
}

typed_id! {
    /// Identifies one task; never reused.
    TaskId;
    /// Identifies one run of one node: new at every start, so that a restarted node is never mistaken for its
    /// previous run.
    SessionId;
    /// Identifies one worker slot of one node.
    WorkerId;
    /// Identifies one job.
    JobId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back_is_the_same_id() {
        for bits in [0, 1, u128::MAX, 0x0193_2f5c_0011_2233_4455_6677_8899_aabb] {
            let id = Id::from_bits(bits);
            assert_eq!(id.to_string().parse::<Id>(), Ok(id));
            assert_eq!(Id::from_bytes(id.to_bytes()), id);
        }
    }

    #[test]
    fn text_sorts_as_the_id_does() {
        let early = Id::from_bits(0x0193_0000_0000_0000_0000_0000_0000_0001);
        let late = Id::from_bits(0x0194_0000_0000_0000_0000_0000_0000_0000);
        assert!(early < late && early.to_string() < late.to_string());
    }

    #[test]
    fn look_alikes_and_lower_case_are_read() {
        let id: Id = "01JC8Z0Q4M9T7N3V5X1B2D6F8H".parse().unwrap();
        assert_eq!("oljc8zoq4m9t7n3v5xib2d6f8h".parse(), Ok(id));
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_a_sentence() {
        for text in [
            "",
            "..",
            "01JC8Z0Q4M9T7N3V5X1B2D6F8",
            "81JC8Z0Q4M9T7N3V5X1B2D6F8H",
            "01JC8Z0Q4M9T7N3V5X1B2D6F8U",
        ] {
            let error = text.parse::<Id>().unwrap_err().to_string();
            assert!(error.contains("is not an id"), "{error}");
        }
    }

    #[test]
    fn a_minter_rises_within_a_millisecond_and_through_a_clock_step() {
        let mut minter = Minter::new();
        let mut last = minter.mint(Timestamp::from_millis(1000), u128::MAX);
        for millis in [1000, 1000, 999, 0, -5, 1001, 1001, 500, 1002] {
            let id = minter.mint(Timestamp::from_millis(millis), 7);
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }
}
