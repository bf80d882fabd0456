//! Reasons why a verb aborts, and the classification of PostgreSQL errors into store error kinds.

use ostler_store::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

use crate::commit_mark::GIVEN_UP;
use crate::locks::Locks;
use crate::move_target::REFUSES_WHILE_ARRIVING;

/// The reason why a verb was not executed.
#[derive(Debug)]
pub(crate) enum Abort {
    /// The server rejected a statement, or the connection is lost.
    Server(tokio_postgres::Error),
    /// No connection is available.
    Away(String),
    /// The reply timed out.
    Silent,
    /// A row holds a value that Ostler never writes.
    Foreign(String),
    /// The transaction needs a queue or a session that it has not locked. It restarts with these locks added.
    Needs(Locks),
    /// Tasks enqueued by a foreign transaction have to be taken from the inbox first.
    Inbox,
    /// The caller's mistake, or a refusal by the store as a whole.
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
    /// Classifies a failure to connect: refused by the server, an untrusted certificate, or unreachable at its hosts and ports.
    pub(crate) fn unconnected(error: tokio_postgres::Error, place: &str) -> Self {
        if error.as_db_error().is_some() {
            return Self::Server(error);
        }
        match distrust(&error) {
            Some(why) => Self::Refused(Error::invalid(format!(
                "the certificate of the PostgreSQL server is not trusted ({why}): sslrootcert must name the root that signed \
                 it, and the URL must use the name in the certificate"
            ))),
            None => Self::Away(format!("{place}: {}", with_source(&error))),
        }
    }

    /// Whether the same transaction may succeed when it is retried at once. Nothing of it was written.
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

    /// Whether a server limit is exceeded, such as the queue of unread notifications.
    pub(crate) fn is_over_a_limit(&self) -> bool {
        matches!(self, Self::Server(error) if error.code() == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED))
    }

    /// Whether it is unknown if the server executed the last statement.
    pub(crate) fn is_open_question(&self) -> bool {
        match self {
            Self::Server(error) => error.code().is_none_or(is_about_the_connection),
            Self::Silent => true,
            Self::Away(_) | Self::Foreign(_) | Self::Needs(_) | Self::Inbox | Self::Refused(_) => false,
        }
    }
}

/// Whether the code concerns the connection: the server closed it, or a pooler lost the server.
fn is_about_the_connection(code: &SqlState) -> bool {
    ["57P", "08"].iter().any(|class| code.code().starts_with(class))
}

/// Whether the failure is transient: transactions conflicted, the server is shutting down, or a pooler lost it.
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

/// Returns why the certificate of a server was rejected, if that is the cause.
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

/// Converts an abort into a message for people and a kind for programs.
#[allow(clippy::needless_pass_by_value, reason = "used as `map_err(fault)`")]
pub(crate) fn fault(stop: Abort) -> Error {
    match stop {
        Abort::Refused(error) => error,
        Abort::Foreign(what) => Error::new(
            ErrorKind::BadRow,
            format!(
                "a row of the store has a value that Ostler never writes ({what}); was it edited by hand?"
            ),
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
            "the store is too busy: its inbox fills faster than it can be emptied",
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
            "the disk of the PostgreSQL server is full; work continues when there is space again".into()
        }
        ErrorKind::Busy => format!("other transactions have locked the store for too long ({said})"),
        ErrorKind::ReadOnly => match missing_grant(said) {
            Some(grant) => format!("the store is not writable: {said}; its owner can run: {grant} TO <user>"),
            None => format!("the store is not writable: {said}"),
        },
        ErrorKind::Replaced => format!("the tables of the store are gone: {said}"),
        ErrorKind::Damaged => format!("the database is damaged: {said}"),
        ErrorKind::Unavailable => format!("the PostgreSQL server is not available: {said}"),
        ErrorKind::Invalid => format!("the PostgreSQL server refuses the login: {said}"),
        ErrorKind::Moving => said.to_owned(),
        ErrorKind::Foreign
        | ErrorKind::BadRow
        | ErrorKind::TooNew
        | ErrorKind::Moved
        | ErrorKind::Closed
        | ErrorKind::Internal => {
            format!("a bug in the PostgreSQL store: {said} ({})", db.code().code())
        }
    };
    Error::new(kind, sentence)
}

/// The beginning of the GRANT that is missing. Servers whose messages are not English get none.
fn missing_grant(said: &str) -> Option<String> {
    let (what, name) = said.strip_prefix("permission denied for ")?.rsplit_once(' ')?;
    Some(match what {
        "database" => format!("GRANT CREATE ON DATABASE {name}"),
        "schema" => format!("GRANT USAGE ON SCHEMA {name}"),
        "table" | "relation" => format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {name}"),
        "view" => format!("GRANT SELECT ON {name}"),
        "sequence" => format!("GRANT USAGE, SELECT ON SEQUENCE {name}"),
        "function" => format!("GRANT EXECUTE ON FUNCTION {name}"),
        _ => return None,
    })
}

/// Classifies a SQLSTATE code.
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

/// Formats an error with its sources: on its own it only names the failed operation.
pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Maps a row that cannot be decoded to `None`, for code that processes many rows: a row edited by hand must not block
/// the others.
pub(crate) fn readable<T>(read: Sql<T>) -> Sql<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Abort::Foreign(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grant_that_is_missing_is_named() {
        for (said, grant) in [
            ("permission denied for database jobs", Some("GRANT CREATE ON DATABASE jobs")),
            ("permission denied for schema ostler", Some("GRANT USAGE ON SCHEMA ostler")),
            ("permission denied for table task", Some("GRANT SELECT, INSERT, UPDATE, DELETE ON task")),
            ("permission denied to set parameter \"x\"", None),
            ("cannot execute INSERT in a read-only transaction", None),
        ] {
            assert_eq!(missing_grant(said).as_deref(), grant, "{said}");
        }
    }
}
