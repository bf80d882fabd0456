//! Address of a store: the URL of its database, with options for the store itself.
//!
//! Two options of the URL are Ostler's own: `schema` names the schema of the tables, `connections` limits the connections
//! that the verbs share. The URL may contain a password, so an address is displayed without it.

use std::fmt;

use ostler_store::Error;

use crate::open::{Options, check_schema};
use crate::tls::certificates;
use crate::url::servers;

/// The upper bound of `connections`.
const MAX_CONNECTIONS: usize = 1_000;
/// The replacement for a password.
const HIDDEN: &str = "***";

/// The address of a store. `Display` and `Debug` hide its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The URL as given.
    text: String,
    /// The URL without our own options.
    url: String,
    schema: Option<String>,
    connections: Option<usize>,
}

impl Address {
    /// Parses a URL such as `postgres://user@host/database?schema=jobs`.
    ///
    /// # Errors
    /// If it cannot be parsed. The error does not repeat the input: it may contain a password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (place, query) = split(text);
        let (mut schema, mut connections) = (None, None);
        let mut theirs = Vec::new();
        for option in query.iter().flat_map(|query| query.split('&')) {
            match option.split_once('=') {
                Some(("schema", name)) => schema = Some(name.to_owned()),
                Some(("connections", count)) => connections = Some(count_of(count)?),
                Some(_) | None => theirs.push(option),
            }
        }
        let url = if theirs.is_empty() { place.to_owned() } else { format!("{place}?{}", theirs.join("&")) };
        servers(&certificates(&url).0)?;
        if let Some(schema) = &schema {
            check_schema(schema)?;
        }
        Ok(Self { text: text.to_owned(), url, schema, connections })
    }

    /// The URL as given, with its password.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.text
    }

    /// The URL for the server, without our own options.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Applies the options of the address, which take precedence.
    pub(crate) fn options(&self, options: &Options) -> Options {
        let mut options = options.clone();
        if let Some(schema) = &self.schema {
            options.schema.clone_from(schema);
        }
        options.connections = self.connections.unwrap_or(options.connections);
        options
    }
}

/// Splits off the query. A question mark before the host belongs to a password.
fn split(text: &str) -> (&str, Option<&str>) {
    let host = text.find('@').map_or(0, |at| at + 1);
    match text[host..].find('?') {
        Some(at) => (&text[..host + at], Some(&text[host + at + 1..])),
        None => (text, None),
    }
}

fn count_of(text: &str) -> Result<usize, Error> {
    let count = text.parse().ok().filter(|count| (1..=MAX_CONNECTIONS).contains(count));
    count.ok_or_else(|| {
        Error::invalid(format!(
            "connections must be a whole number from 1 to {MAX_CONNECTIONS} in the URL of the store"
        ))
    })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.text.split_once("://").unwrap_or(("postgres", HIDDEN));
        // The last "@": a password with an unescaped "@" is hidden as well.
        let (who, place) = match rest.rsplit_once('@') {
            Some((who, place)) => (Some(who), place),
            None => (None, rest),
        };
        write!(f, "{scheme}://")?;
        match who.map(|who| who.split_once(':')) {
            Some(Some((user, _))) => write!(f, "{user}:{HIDDEN}@")?,
            Some(None) => write!(f, "{}@", who.unwrap_or_default())?,
            None => {}
        }
        match place.split_once('?') {
            Some((place, query)) => {
                let shown: Vec<String> = query.split('&').map(shown).collect();
                write!(f, "{place}?{}", shown.join("&"))
            }
            None => f.write_str(place),
        }
    }
}

/// Formats an option, hiding the value of a password.
fn shown(option: &str) -> String {
    match option.split_once('=') {
        Some((key, _)) if key.contains("pass") => format!("{key}={HIDDEN}"),
        Some(_) | None => option.to_owned(),
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_the_store_is_and_what_is_said_of_it() {
        for (text, url, schema, connections) in [
            ("postgres://anna@db/jobs", "postgres://anna@db/jobs", "ostler", 8),
            ("postgresql://db/jobs?schema=mine", "postgresql://db/jobs", "mine", 8),
            ("postgres://db/jobs?connections=3&schema=mine", "postgres://db/jobs", "mine", 3),
            (
                "postgres://db/jobs?connect_timeout=5&schema=a&application_name=x",
                "postgres://db/jobs?connect_timeout=5&application_name=x",
                "a",
                8,
            ),
            (
                "postgres://db/jobs?sslmode=verify-full&sslrootcert=/ca.pem&schema=a",
                "postgres://db/jobs?sslmode=verify-full&sslrootcert=/ca.pem",
                "a",
                8,
            ),
            ("postgres://anna:p?schema=x@db/jobs", "postgres://anna:p?schema=x@db/jobs", "ostler", 8),
        ] {
            let address = Address::parse(text).expect(text);
            let options = address.options(&Options::default());
            assert_eq!(
                (address.url(), options.schema.as_str(), options.connections),
                (url, schema, connections)
            );
        }
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_with_a_sentence_and_without_a_password() {
        for (text, words) in [
            ("postgres://anna:secret@db/jobs?schema=A-B", "is not a valid schema name"),
            ("postgres://anna:secret@db/jobs?connections=0", "connections must be a whole number"),
            ("postgres://anna:secret@db/jobs?connections=many", "connections must be a whole number"),
            ("postgres://anna:secret@db/jobs?colour=red", "unknown option `colour`"),
            ("postgres://anna:secret@db:port/jobs", "cannot be read"),
            ("postgres:///jobs", "names no host"),
        ] {
            let sentence = Address::parse(text).expect_err(text).to_string();
            assert!(sentence.contains(words), "{text}: {sentence}");
            assert!(!sentence.contains("secret"), "{sentence}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (text, shown) in [
            ("postgres://anna@db/jobs", "postgres://anna@db/jobs"),
            ("postgres://db/jobs?schema=a", "postgres://db/jobs?schema=a"),
            ("postgres://anna:secret@db:6432/jobs?schema=a", "postgres://anna:***@db:6432/jobs?schema=a"),
            ("postgres://anna:sec@secret@db/jobs", "postgres://anna:***@db/jobs"),
            (
                "postgres://anna@db/jobs?password=secret&schema=a",
                "postgres://anna@db/jobs?password=***&schema=a",
            ),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.secret(), text);
        }
    }
}
