//! Targets of `fetch`: which URLs are sent at all, and the host and port that the rules see.

use std::fmt;
use std::net::IpAddr;

use ostler_core::cut;
use url::{Host, Url};

use super::error::FetchError;
use super::limits::{MAX_NAMED_BYTES, MAX_URL_BYTES};

/// The host and port of a URL. A name is in lower case, without a dot at its end; an address is one however the URL spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FetchTarget {
    pub(crate) host: TargetHost,
    pub(crate) port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetHost {
    Name(String),
    Address(IpAddr),
}

impl fmt::Display for FetchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            TargetHost::Name(name) => write!(f, "{name}:{}", self.port),
            TargetHost::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            TargetHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Parses the URL of a request. It has no fragment, which is never sent.
pub(crate) fn parse(text: &str) -> Result<Url, FetchError> {
    if text.len() > MAX_URL_BYTES {
        return Err(FetchError::LongUrl);
    }
    normal(Url::parse(text).map_err(|error| FetchError::Url(error.to_string()))?)
}

/// The URL that a redirect leads to.
pub(crate) fn join(base: &Url, location: &str) -> Result<Url, FetchError> {
    if location.len() > MAX_URL_BYTES {
        return Err(FetchError::LongUrl);
    }
    normal(base.join(location).map_err(|error| FetchError::Url(error.to_string()))?)
}

/// Host and port, of a URL that [`parse`] or [`join`] returned.
pub(crate) fn of(url: &Url) -> Result<FetchTarget, FetchError> {
    let missing = || FetchError::Url("it has no host".to_owned());
    let host = match url.host().ok_or_else(missing)? {
        Host::Domain(name) => TargetHost::Name(name.to_owned()),
        Host::Ipv4(address) => TargetHost::Address(address.into()),
        Host::Ipv6(address) => TargetHost::Address(address.into()),
    };
    Ok(FetchTarget { host, port: url.port_or_known_default().ok_or_else(missing)? })
}

/// Refuses what is never sent. The URL then has one spelling for each host.
fn normal(mut url: Url) -> Result<Url, FetchError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FetchError::Scheme { scheme: cut(url.scheme(), MAX_NAMED_BYTES) });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::UserInfo);
    }
    url.set_fragment(None);
    // `example.org.` is the same host, and would not match its own entry or certificate.
    let plain = url.domain().and_then(|name| name.strip_suffix('.')).map(str::to_owned);
    if let Some(plain) = plain {
        url.set_host(Some(&plain)).map_err(|error| FetchError::Url(error.to_string()))?;
    }
    match url.domain() {
        Some(name) if name.split('.').any(str::is_empty) => {
            Err(FetchError::Url("its host has an empty label".to_owned()))
        }
        Some(_) | None => Ok(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> String {
        parse(text)
            .and_then(|url| of(&url))
            .map_or_else(|error| error.to_string(), |target| target.to_string())
    }

    #[test]
    fn every_spelling_of_a_host_is_one_target() {
        for (url, expected) in [
            ("http://example.org", "example.org:80"),
            ("https://EXAMPLE.org./a#b", "example.org:443"),
            ("https://example.org:8443/", "example.org:8443"),
            ("http://b\u{fc}cher.example/", "xn--bcher-kva.example:80"),
            ("http://ex%61mple.org/", "example.org:80"),
            ("http://\u{ff45}xample.org/", "example.org:80"),
            ("http://0x7f.1:81/", "127.0.0.1:81"),
            ("http://2130706433/", "127.0.0.1:80"),
            ("http://0177.0.0.1/", "127.0.0.1:80"),
            ("http://127.1/", "127.0.0.1:80"),
            ("http://127.0.0.1./", "127.0.0.1:80"),
            ("http://127\u{3002}0\u{3002}0\u{3002}1/", "127.0.0.1:80"),
            ("http://[::FFFF:127.0.0.1]/", "[::ffff:127.0.0.1]:80"),
            ("https://[0:0::1]:9/", "[::1]:9"),
            ("http:\\\\example.org\\@10.0.0.1", "example.org:80"),
        ] {
            assert_eq!(target(url), expected, "{url}");
        }
    }

    #[test]
    fn what_is_not_plain_http_is_refused() {
        for (url, expected) in [
            ("ftp://example.org/", "fetch sends only http: and https: requests, not ftp:"),
            ("file:///etc/passwd", "fetch sends only http: and https: requests, not file:"),
            ("data:,x", "fetch sends only http: and https: requests, not data:"),
            ("http://anna:secret@example.org/", "the URL has a user or a password"),
            ("http://anna@example.org/", "the URL has a user or a password"),
            ("http://example.org@10.0.0.1/", "the URL has a user or a password"),
            ("http://:x@example.org/", "the URL has a user or a password"),
            ("http://", "the URL is invalid"),
            ("http://1.2.3.4.5/", "the URL is invalid"),
            ("http://256.1.1.1/", "the URL is invalid"),
            ("http://example.org../", "the URL is invalid"),
            ("http://a..example.org/", "the URL is invalid"),
            ("http://./", "the URL is invalid"),
            ("http://[fe80::1%25eth0]/", "the URL is invalid"),
            ("nothing", "the URL is invalid"),
        ] {
            let said = target(url);
            assert!(said.starts_with(expected), "{url}: {said}");
        }
        assert!(matches!(
            parse(&format!("http://x/{}", "a".repeat(MAX_URL_BYTES))),
            Err(FetchError::LongUrl)
        ));
    }
}
