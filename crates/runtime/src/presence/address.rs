//! The Redis address: a URL, displayed without its password.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// Replaces the password.
const HIDDEN: &str = "***";
/// Without and with TLS.
const SCHEMES: [&str; 2] = ["redis://", "rediss://"];

/// The address of a Redis server. Displayed without its password.
#[derive(Clone)]
pub struct RedisAddress {
    /// As given.
    text: String,
    info: ConnectionInfo,
}

/// Why a text is not an address. The text may contain a password and is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRedisAddress {
    /// An unknown scheme, or none.
    #[error("expected redis://host:port, or rediss://host:port for TLS")]
    Scheme,
    /// The rest of the URL is invalid.
    #[error(
        "write redis://user:password@host:port/number, where all but the host is optional; in a password, write @ as %40, \
         / %2F, # %23 and ? %3F"
    )]
    Unreadable,
    /// The URL has options, and none are supported.
    #[error(
        "nothing may follow the number of the database: there are no options, and the certificate of a TLS server is always checked"
    )]
    Options,
}

impl RedisAddress {
    /// Parses a URL such as `redis://cache.example.org:6379`.
    ///
    /// # Errors
    /// When the URL is invalid. The error does not repeat it: it may contain a password.
    pub fn parse(text: &str) -> Result<Self, BadRedisAddress> {
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or(BadRedisAddress::Scheme)?;
        let info = text.into_connection_info().map_err(|_| BadRedisAddress::Unreadable)?;
        if rest.contains(['?', '#']) {
            return Err(BadRedisAddress::Options);
        }
        if info.redis_settings().db() < 0 {
            return Err(BadRedisAddress::Unreadable);
        }
        Ok(Self { text: text.to_owned(), info })
    }

    pub(super) const fn info(&self) -> &ConnectionInfo {
        &self.info
    }

    pub(super) fn encrypts(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Composed from the parts, so that nothing leaks by accident.
        f.write_str(if self.encrypts() { SCHEMES[1] } else { SCHEMES[0] })?;
        let settings = self.info.redis_settings();
        match (settings.username(), settings.password()) {
            (None, None) => {}
            (Some(user), None) => write!(f, "{user}@")?,
            (user, Some(_)) => write!(f, "{}:{HIDDEN}@", user.unwrap_or_default())?,
        }
        write!(f, "{}", self.info.addr())?;
        match settings.db() {
            0 => Ok(()),
            number => write!(f, "/{number}"),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for RedisAddress {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for RedisAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (text, shown) in [
            ("redis://cache", "redis://cache:6379"),
            ("redis://cache:7000/3", "redis://cache:7000/3"),
            ("rediss://cache:7000", "rediss://cache:7000"),
            ("redis://:secret@127.0.0.1", "redis://:***@127.0.0.1:6379"),
            ("redis://anna:secret@cache/", "redis://anna:***@cache:6379"),
            ("rediss://anna:sec%40secret@cache", "rediss://anna:***@cache:6379"),
            ("redis://anna@cache", "redis://anna@cache:6379"),
        ] {
            let address = RedisAddress::parse(text).expect(text);
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_sentence_and_not_repeated() {
        for (text, words) in [
            ("", "redis://host:port"),
            ("cache:6379", "redis://host:port"),
            ("http://anna:secret@cache", "redis://host:port"),
            ("unix:///run/secret.sock", "redis://host:port"),
            ("redis:secret@cache", "redis://host:port"),
            ("redis://", "all but the host"),
            ("redis://anna:secret@", "all but the host"),
            ("redis://anna:secret@cache:port", "all but the host"),
            ("redis://anna:secret@cache:70000", "all but the host"),
            ("redis://anna:secret@cache/jobs", "all but the host"),
            ("redis://anna:secret@cache/-1", "all but the host"),
            ("redis://anna:secret@0.0.0.0", "all but the host"),
            ("redis://anna:se/secret@cache", "all but the host"),
            ("rediss://anna:secret@cache/#insecure", "is always checked"),
            ("redis://anna:secret@cache?protocol=resp3", "there are no options"),
        ] {
            let sentence = RedisAddress::parse(text).expect_err(text).to_string();
            assert!(sentence.contains(words), "{text}: {sentence}");
            assert!(!sentence.contains("secret"), "{sentence}");
        }
    }
}
