//! Redaction of events: the values of secrets are replaced before an event is in the buffer.
//!
//! A value may be split over several events: the lines of a key, the pieces of a message. An event that ends with the beginning
//! of a value is held in the buffer until the next event of the same text has come, for a short time. It is never split.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use ostler_core::{EventBody, EventKind, LogStream, Role};
use tokio::time::Instant;

use super::Waiting;
use crate::secrets::{Findings, Secrets, TextEnd};

/// How long an event is held. What comes later is redacted all the same, but not what is stored by then.
const MAX_HELD: Duration = Duration::from_secs(1);
/// How many events may wait behind the first one that is held.
const MAX_HELD_EVENTS: u64 = 64;

/// Over how many events a value may be split.
const MAX_PIECES: usize = 4_096;

/// The secrets of an attempt, and the texts that may end with the beginning of one.
pub(super) struct EventRedaction {
    secrets: Secrets,
    open: Vec<OpenText>,
}

impl fmt::Debug for EventRedaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRedaction").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// Whether an event is recorded.
#[must_use]
pub(super) enum Admitted {
    Yes,
    /// Its whole text belongs to a secret that began in an earlier event, which has the mark.
    Swallowed,
}

/// A text that goes on over several events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextStream {
    Lines(LogStream),
    Prompt,
    Message(Role),
    Thinking,
    ToolInput(String),
    ToolOutput(String),
}

impl TextStream {
    fn of(body: &EventBody) -> Option<Self> {
        match body {
            EventBody::Log { stream, .. } => Some(Self::Lines(*stream)),
            EventBody::Prompt { .. } => Some(Self::Prompt),
            EventBody::Message { role, .. } | EventBody::Continued { role: Some(role), .. } => {
                Some(Self::Message(*role))
            }
            EventBody::Thinking { .. } | EventBody::Continued { role: None, .. } => Some(Self::Thinking),
            EventBody::ToolCall { call, .. } => Some(Self::ToolInput(call.clone())),
            EventBody::ToolResult { call, .. } => Some(Self::ToolOutput(call.clone())),
            EventBody::Progress { .. }
            | EventBody::File { .. }
            | EventBody::Usage(_)
            | EventBody::Session { .. }
            | EventBody::Warning { .. }
            | EventBody::Stdout { .. }
            | EventBody::Transition { .. }
            | EventBody::Thinned { .. }
            | EventBody::Status { .. }
            | EventBody::Error { .. }
            | EventBody::Result { .. }
            | EventBody::Raw { .. }
            | EventBody::FormerPayload { .. } => None,
        }
    }

    /// What stands between two events of the text.
    const fn separator(&self) -> &'static str {
        match self {
            Self::Lines(_) => "\n",
            Self::Prompt | Self::Message(_) | Self::Thinking | Self::ToolInput(_) | Self::ToolOutput(_) => "",
        }
    }

    /// Whether a text of another sort ends this one: the parts of a conversation follow each other.
    fn is_ended_by(&self, next: &Self) -> bool {
        !matches!(self, Self::Lines(_)) && !matches!(next, Self::Lines(_)) && self != next
    }
}

/// The end of a text, which may be the beginning of a secret.
struct OpenText {
    stream: TextStream,
    pieces: Vec<Piece>,
    until: Instant,
}

/// The end of an event's text that is not decided, or all of it.
struct Piece {
    number: u64,
    rest: String,
}

impl EventRedaction {
    /// `None` if there is nothing to redact.
    pub(super) fn new(secrets: &Secrets) -> Option<Self> {
        secrets.redactor()?;
        Some(Self { secrets: secrets.clone(), open: Vec::new() })
    }

    /// Redacts an event that is about to be added, and what it completes in those before.
    pub(super) fn admit(&mut self, waiting: &mut Waiting, body: &mut EventBody, now: Instant) -> Admitted {
        body.labels_mut().for_each(|label| self.secrets.redact_in(label));
        if body.kind() == EventKind::Session {
            // It must be stored at once, with all before it.
            self.open.clear();
        }
        let stream = TextStream::of(body);
        let Some(text) = body.text_mut() else { return Admitted::Yes };
        let Some(stream) = stream else {
            self.secrets.redact_in(text);
            return Admitted::Yes;
        };
        self.open.retain(|open| !open.stream.is_ended_by(&stream));
        let known = self.open.iter().position(|open| open.stream == stream);
        let mut open = known.map_or_else(
            || OpenText { stream, pieces: Vec::new(), until: now + MAX_HELD },
            |at| self.open.swap_remove(at),
        );
        if open.pieces.len() >= MAX_PIECES {
            open.pieces.clear();
        }
        let began = open.pieces.first().map(|piece| piece.number);
        open.pieces.push(Piece { number: waiting.next_number(), rest: std::mem::take(text) });
        let admitted = self.settle(&mut open, waiting, text);
        if let Some(first) = open.pieces.first() {
            if began != Some(first.number) {
                open.until = now + MAX_HELD;
            }
            self.open.push(open);
        }
        admitted
    }

    /// Finds the values in a text with a new piece, whose redacted form becomes `newest`. What is not decided stays open.
    fn settle(&self, open: &mut OpenText, waiting: &mut Waiting, newest: &mut String) -> Admitted {
        let Some(redactor) = self.secrets.redactor() else { return Admitted::Yes };
        let (between, next) = (open.stream.separator(), waiting.next_number());
        let joined: String = open.pieces.iter().flat_map(|piece| [piece.rest.as_str(), between]).collect();
        let Findings { found, undecided } = redactor.find(joined.as_bytes(), TextEnd::Open);
        let (mut at, mut admitted) = (0, Admitted::Yes);
        let mut marked = 0;
        open.pieces.retain_mut(|piece| {
            let range = at..at + piece.rest.len();
            at = range.end + between.len();
            let rest = joined[undecided.clamp(range.start, range.end)..range.end].to_owned();
            let before = std::mem::replace(&mut piece.rest, rest);
            if piece.number < waiting.first {
                // It is stored already, as it was. A mark stands in the first event that can be changed.
                return at > undecided;
            }
            let mut redacted = String::with_capacity(before.len());
            let mut from = range.start;
            for one in found.iter().filter(|one| one.range.start < range.end && one.range.end > range.start) {
                redacted.push_str(&joined[from..one.range.start.max(from)]);
                if one.range.end > marked {
                    redacted.push_str(redactor.mark(one));
                    marked = one.range.end;
                }
                from = one.range.end.min(range.end);
            }
            redacted.push_str(&joined[from..range.end]);
            if piece.number == next {
                if redacted.is_empty() && !range.is_empty() {
                    admitted = Admitted::Swallowed;
                    return false;
                }
                *newest = redacted;
            } else {
                waiting.edit(piece.number, |text| {
                    if text.ends_with(&before) {
                        text.truncate(text.len() - before.len());
                        text.push_str(&redacted);
                    }
                });
            }
            at > undecided
        });
        admitted
    }

    /// The first event that is held, and until when.
    pub(super) fn held(&self, waiting: &Waiting, now: Instant) -> Option<(u64, Instant)> {
        let first = |open: &OpenText| {
            let held = open.pieces.iter().find(|piece| piece.number >= waiting.first)?;
            Some((held.number, open.until))
        };
        let held = self.open.iter().filter(|open| open.until > now).filter_map(first);
        held.min_by_key(|(number, _)| *number)
            .filter(|(number, _)| waiting.next_number() - number <= MAX_HELD_EVENTS)
    }
}
