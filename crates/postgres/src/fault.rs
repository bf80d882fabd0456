//! What stops a verb, and what PostgreSQL's errors mean to the caller, classed once.

use ostler_store::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use crate::commit_mark::GIVEN_UP;
use crate::locks::Locks;
use crate::move_target::REFUSES_WHILE_ARRIVING;

/// Why a verb was not carried out.
#[derive(Debug)]
pub(crate) enum Abort {
    /// The server refused a statement, or the connection is lost.
    Server(tokio_postgres::Error),
    /// No connection is to be had.
    Away(String),
    /// No answer came in time.
    Silent,
    /// A row holds what Ostler never writes.
    Foreign(String),
    /// The transaction met a queue or a session that it has not locked. It begins anew, with these locks too.
    Needs(Locks),
    /// Tasks that came with somebody else's transaction have to be taken in first.
    Inbox,
    /// The caller's mistake, or what the store as a whole refuses.
    Refused(Error),
}

/// The result of a statement.
pub(crate) type Sql<T> = Result<T, Abort>;

impl From<ostler_sql::Unreadable> for Abort {
    fn from(error: ostler_sql::Unreadable) -> Self {
        Self::Foreign(error.0)
    }
}

impl From<tokio_postgres::Error> for Abort {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl Abort {
    /// A connection could not be opened: the server said why, or there was none.
    pub(crate) fn unconnected(error: tokio_postgres::Error) -> Self {
        if error.as_db_error().is_some() {
            return Self::Server(error);
        }
        match distrust(&error) {
            Some(why) => Self::Refused(Error::invalid(format!(
                "the certificate of the PostgreSQL server is not one to trust ({why}): sslrootcert must name the root that has signed \
                 it, and the URL the server by the name that it has there"
            ))),
            None => Self::Away(with_source(&error)),
        }
    }

    /// Whether the same transaction may go through when it is tried again at once. Nothing of it was written.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Server(error) => match error.code() {
                Some(code) => is_passing(code),
                None => error.is_closed() || is_io(error),
            },
            Self::Needs(_) | Self::Inbox => true,
            Self::Away(_) | Self::Silent | Self::Foreign(_) | Self::Refused(_) => false,
        }
    }

    /// Whether the server has too much of something, such as notices that nobody has fetched.
    pub(crate) fn is_over_a_limit(&self) -> bool {
        matches!(self, Self::Server(error) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED))
    }

    /// Whether nobody can say what the server did with the last statement.
    pub(crate) fn is_open_question(&self) -> bool {
        match self {
            Self::Server(error) => error.code().is_none_or(is_about_the_connection),
            Self::Silent => true,
            Self::Away(_) | Self::Foreign(_) | Self::Needs(_) | Self::Inbox | Self::Refused(_) => false,
        }
    }
}

/// Whether a code is about the connection, as the server says it when it ends one, or a pooler that has lost the server.
fn is_about_the_connection(code: &SqlState) -> bool {
    ["57P", "08"].iter().any(|class| code.code().starts_with(class))
}

/// Two transactions were in each other's way, or the server is on its way down, or a pooler has lost it.
fn is_passing(code: &SqlState) -> bool {
    if code.code() == GIVEN_UP || code.code().starts_with("08") {
        return true;
    }
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(code)
}

/// Why the certificate of a server was refused, if that is what went wrong.
fn distrust(error: &tokio_postgres::Error) -> Option<String> {
    use std::error::Error as _;
    let io = error.source()?.downcast_ref::<std::io::Error>()?;
    let rustls::Error::InvalidCertificate(why) = io.get_ref()?.downcast_ref::<rustls::Error>()? else {
        return None;
    };
    Some(why.to_string())
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}

/// The error with a sentence for people and a kind for programs.
#[allow(clippy::needless_pass_by_value, reason = "used as `map_err(fault)`")]
pub(crate) fn fault(stop: Abort) -> Error {
    match stop {
        Abort::Refused(error) => error,
        Abort::Foreign(what) => Error::new(
            ErrorKind::BadRow,
            format!("a row of the store holds what Ostler never writes ({what}); was it edited by hand?"),
        ),
        Abort::Away(why) => {
            Error::new(ErrorKind::Unavailable, format!("the PostgreSQL server cannot be reached: {why}"))
        }
        Abort::Silent => Error::new(ErrorKind::Unavailable, "the PostgreSQL server did not answer in time"),
        Abort::Needs(locks) => Error::new(
            ErrorKind::Busy,
            format!("the store is too busy: a verb needed more and more locks ({locks})"),
        ),
        Abort::Inbox => Error::new(
            ErrorKind::Busy,
            "the store is too busy: its inbox fills faster than it can be taken in",
        ),
        Abort::Server(error) => server_fault(&error),
    }
}

fn server_fault(error: &tokio_postgres::Error) -> Error {
    let Some(db) = error.as_db_error() else {
        let message = format!("the connection to the PostgreSQL server is lost: {}", with_source(error));
        return Error::new(ErrorKind::Unavailable, message);
    };
    let kind = kind_of(db.code().code());
    let said = db.message();
    let sentence = match kind {
        ErrorKind::Full => {
            "the disk of the PostgreSQL server is full; it goes on when there is room again".into()
        }
        ErrorKind::Busy => format!("others have held the store for too long ({said})"),
        ErrorKind::ReadOnly => format!("the store may not be written: {said}"),
        ErrorKind::Replaced => format!("the tables of the store are gone: {said}"),
        ErrorKind::Damaged => format!("the database is damaged: {said}"),
        ErrorKind::Unavailable => format!("the PostgreSQL server is not available: {said}"),
        ErrorKind::Invalid => format!("the PostgreSQL server does not let us in: {said}"),
        ErrorKind::Moving => said.to_owned(),
        ErrorKind::Foreign
        | ErrorKind::BadRow
        | ErrorKind::TooNew
        | ErrorKind::Moved
        | ErrorKind::Closed
        | ErrorKind::Internal => {
            format!("a defect in the shared store: {said} ({})", db.code().code())
        }
    };
    Error::new(kind, sentence)
}

/// What a code of the SQL standard or of PostgreSQL means.
fn kind_of(code: &str) -> ErrorKind {
    match code {
        "53100" => ErrorKind::Full,
        "40001" | "40P01" | "55P03" | "57014" | GIVEN_UP => ErrorKind::Busy,
        "25006" | "42501" => ErrorKind::ReadOnly,
        "42P01" | "3F000" => ErrorKind::Replaced,
        "XX001" | "XX002" => ErrorKind::Damaged,
        "3D000" => ErrorKind::Invalid,
        REFUSES_WHILE_ARRIVING => ErrorKind::Moving,
        code if code.starts_with("28") => ErrorKind::Invalid,
        code if ["08", "53", "57"].iter().any(|class| code.starts_with(class)) => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

/// An error with what is behind it: on its own it only says at what it failed.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What was read; nothing, where a row cannot be understood. For whoever works through many rows: one that somebody
/// edited by hand must not hold the others up.
pub(crate) fn readable<T>(read: Sql<T>) -> Sql<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Abort::Foreign(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}
