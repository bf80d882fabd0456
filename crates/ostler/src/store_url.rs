//! Store URLs: `sqlite:PATH`, a plain path, or `postgres://…`. The library and the command line both parse them here, so
//! the same text names the same store in both.

use std::fmt;
use std::path::{Path, PathBuf};

#[cfg(feature = "postgres")]
use ostler_postgres::Address;

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// One SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database. Displayed without its password.
    #[cfg(feature = "postgres")]
    Postgres(Address),
}

/// Why a text is not a store URL. The text may contain a password and is never repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    /// The text or its path is empty.
    #[error("expected sqlite:PATH, such as sqlite:ostler.db, or postgres://user@host/database")]
    Empty,
    /// The PostgreSQL URL is invalid, with the reason.
    #[error("{0}")]
    Postgres(ostler_store::Error),
    /// An in-memory database, which would not outlive the process.
    #[error("a store is a file that outlives the program; write sqlite:PATH")]
    InMemory,
    /// A store that this program was built without: the name of the feature.
    #[error("this program was built without the feature \"{0}\" of ostler")]
    LeftOut(&'static str),
    /// An unknown scheme.
    #[error(
        "unknown store \"{0}:\"; use sqlite:PATH (for a path with a colon: sqlite:./PATH) or postgres://…"
    )]
    Unknown(String),
}

impl StoreUrl {
    /// Parses a store URL. Text without a scheme is the path of an SQLite file.
    ///
    /// # Errors
    /// When the text is not a store URL. The error does not repeat the text, which may contain a password.
    pub fn parse(text: &str) -> Result<Self, StoreUrlError> {
        let (scheme, path) = match text.split_once(':') {
            Some((scheme, path)) if is_scheme(scheme) => (scheme, path),
            Some(_) | None => ("sqlite", text),
        };
        match scheme {
            // Other tools write two slashes; a third one starts an absolute path.
            "sqlite" => Self::sqlite(path.strip_prefix("//").unwrap_or(path)),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                Address::parse(text).map(Self::Postgres).map_err(StoreUrlError::Postgres)
            }
            #[cfg(not(feature = "postgres"))]
            "postgres" | "postgresql" => Err(StoreUrlError::LeftOut("postgres")),
            other => Err(StoreUrlError::Unknown(other.to_owned())),
        }
    }

    fn sqlite(path: &str) -> Result<Self, StoreUrlError> {
        match path {
            "" => Err(StoreUrlError::Empty),
            ":memory:" => Err(StoreUrlError::InMemory),
            path => Ok(Self::Sqlite(PathBuf::from(path))),
        }
    }

    /// Resolves a relative SQLite path against `folder`. Other URLs stay unchanged.
    #[must_use]
    pub fn beside(self, folder: &Path) -> Self {
        match self {
            Self::Sqlite(path) => Self::Sqlite(folder.join(path)),
            #[cfg(feature = "postgres")]
            Self::Postgres(address) => Self::Postgres(address),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Postgres(address) => write!(f, "{address}"),
        }
    }
}

/// Whether this is a URL scheme rather than the start of a path.
fn is_scheme(text: &str) -> bool {
    const MAX_SCHEME_BYTES: usize = 32;
    let word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    (1..=MAX_SCHEME_BYTES).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_path_with_or_without_its_scheme() {
        for (text, path) in [
            ("sqlite:ostler.db", "ostler.db"),
            ("ostler.db", "ostler.db"),
            ("/var/lib/ostler.db", "/var/lib/ostler.db"),
            ("sqlite:/var/lib/ostler.db", "/var/lib/ostler.db"),
            ("sqlite:///var/lib/ostler.db", "/var/lib/ostler.db"),
            ("sqlite://ostler.db", "ostler.db"),
            ("./a:b.db", "./a:b.db"),
            ("sqlite:a:b.db", "a:b.db"),
        ] {
            let url = StoreUrl::parse(text).expect(text);
            assert_eq!(url, StoreUrl::Sqlite(PathBuf::from(path)), "{text}");
            assert_eq!(StoreUrl::parse(&url.to_string()), Ok(url), "{text}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_database_is_a_store_and_its_password_is_not_shown() {
        for text in ["postgres://anna:secret@db/jobs", "postgresql://anna:secret@db/jobs?schema=ostler_2"] {
            let url = StoreUrl::parse(text).expect(text);
            assert!(matches!(&url, StoreUrl::Postgres(address) if address.secret() == text));
            for shown in [url.to_string(), format!("{url:?}"), url.beside(Path::new("/etc")).to_string()] {
                assert!(shown.contains("anna") && !shown.contains("secret"), "{shown}");
            }
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn what_is_no_store_is_refused_and_not_repeated() {
        for (text, sentence) in [
            ("", "expected sqlite:PATH"),
            ("sqlite:", "expected sqlite:PATH"),
            ("sqlite::memory:", "outlives the program"),
            (":memory:", "outlives the program"),
            ("postgres:anna:secret@db/x", "postgres://user@host/database"),
            ("postgres://anna:secret@db:x/y", "postgres://user@host/database"),
            ("postgresql://anna:secret@db/x?color=red", "unknown option `color`"),
            ("redis://anna:secret@cache", "unknown store \"redis:\""),
            ("a:b.db", "unknown store \"a:\""),
        ] {
            let error = StoreUrl::parse(text).expect_err(text).to_string();
            assert!(error.contains(sentence), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_relative_path_begins_where_it_is_told() {
        let beside =
            |text: &str| StoreUrl::parse(text).expect(text).beside(Path::new("/etc/ostler")).to_string();
        assert_eq!(beside("data/ostler.db"), "sqlite:/etc/ostler/data/ostler.db");
        assert_eq!(beside("/data/ostler.db"), "sqlite:/data/ostler.db");
    }
}
