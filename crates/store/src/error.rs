//! What can go wrong with a store itself. What can happen to a task — no lease any more, no such task, a full
//! queue — is an answer and not an error.

/// Why a call could not be carried out. Nothing of it was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What sort of trouble it is, alike for every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller's input breaks a rule; the message names the field and what would be right.
    Invalid,
    /// No room is left on the disk. It may work again later.
    Full,
    /// Somebody else holds the store. It may work again later.
    Busy,
    /// The store cannot be reached. It may work again later.
    Unavailable,
    /// The store may not be written.
    ReadOnly,
    /// The file is not an Ostler store.
    Foreign,
    /// A newer Ostler made the store.
    TooNew,
    /// The store is damaged.
    Damaged,
    /// A row of the store holds what Ostler never writes. The rest of the store may be well.
    BadRow,
    /// The file was replaced or removed while it was open. Nothing of the call is in the store that is at the path now; the
    /// file that was there before may have it.
    Replaced,
    /// The store is on its way to another place, and takes nothing new. It may work again later, there or here.
    Moving,
    /// The store was moved to another place, which the message names.
    Moved,
    /// The store was closed.
    Closed,
    /// A defect of ours.
    Internal,
}

impl Error {
    /// An error of this kind, with a sentence for people.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Invalid input: the field, and what would be right.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// What sort of trouble it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may work later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Full | ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Moving => true,
            ErrorKind::Invalid
            | ErrorKind::ReadOnly
            | ErrorKind::Foreign
            | ErrorKind::TooNew
            | ErrorKind::Damaged
            | ErrorKind::BadRow
            | ErrorKind::Replaced
            | ErrorKind::Moved
            | ErrorKind::Closed
            | ErrorKind::Internal => false,
        }
    }
}
