//! Events as a reader sees them: queries, pages, and parts of long texts.

use ostler_core::{EventBody, EventKind, EventKinds, Timestamp};

use crate::bounds::{MAX_EVENT_BYTES, MAX_PAGE};

/// An event of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counted from one, for each task.
    pub number: u64,
    pub at: Timestamp,
    /// The token of the lease it was written under.
    pub token: u64,
    pub body: EventBody,
    /// The full size of its text in bytes, if the text was cut to the limit of the query.
    pub cut: Option<u64>,
}

/// Which events of a task to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventQuery {
    pub kinds: EventKinds,
    /// Only events with a higher number.
    pub after: u64,
    /// At most this many.
    pub limit: usize,
    /// Longer texts are cut to this many bytes, at a character boundary.
    pub text_bytes: usize,
}

impl Default for EventQuery {
    /// A page of whole events of every kind, from the first.
    fn default() -> Self {
        Self { kinds: EventKinds::ALL, after: 0, limit: MAX_PAGE, text_bytes: MAX_EVENT_BYTES }
    }
}

impl EventQuery {
    /// The same, from behind this number on.
    #[must_use]
    pub const fn after(self, after: u64) -> Self {
        Self { after, ..self }
    }

    /// A page of whole events of one kind, from the first.
    #[must_use]
    pub fn of(kind: EventKind) -> Self {
        Self { kinds: EventKinds::only(kind), ..Self::default() }
    }
}

/// A long text of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRef {
    /// The text of the event with this number.
    Event(u64),
    /// The output.
    Output,
}

/// A part of a long text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    /// The bytes from the requested position on: not always whole characters.
    pub bytes: Vec<u8>,
    /// The size of the whole text.
    pub size: u64,
}
