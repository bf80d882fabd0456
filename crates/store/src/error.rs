//! Errors of the store itself. Expected results for a task (a lost lease, no such task, a full
//! queue) are answers, not errors.

/// Why a call failed. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kind of an error, the same for every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller's input is invalid; the message names the field and the valid range.
    Invalid,
    /// The disk is full. Transient.
    Full,
    /// Another process has locked the store. Transient.
    Busy,
    /// The store cannot be reached. Transient.
    Unavailable,
    /// The store is read-only.
    ReadOnly,
    /// The file is not an Ostler store.
    Foreign,
    /// A newer version of Ostler made the store.
    TooNew,
    /// The store is damaged.
    Damaged,
    /// A row of the store holds a value that Ostler never writes. The rest of the store may be intact.
    BadRow,
    /// The file was replaced or removed while it was open. Nothing of the call is in the store that is at the path now; the
    /// previous file may contain it.
    Replaced,
    /// The store is being moved, and accepts no new work. Transient: it may work again later, there or here.
    Moving,
    /// The store was moved; the message names the target.
    Moved,
    /// The store was closed.
    Closed,
    /// A bug in Ostler.
    Internal,
}

impl Error {
    /// An error of this kind, with a sentence for users.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Invalid input: the message names the field and the valid range.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
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
