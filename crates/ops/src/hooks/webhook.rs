//! A webhook: posts the notice to an HTTP address.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{ErrorClass, class_of_status};
use ostler_http::{
    AddressRules, HeaderName, HeaderValue, HttpClient, HttpLimits, HttpRequest, Proxies, Uri, header,
};

use super::{HookAttempt, HookError, HookNotice};

/// A webhook's address. It may contain a secret: only the host is ever shown.
#[derive(Clone, Debug, PartialEq)]
pub struct WebAddress(Uri);

impl WebAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// A sentence that does not repeat the address.
    pub fn parse(text: &str) -> Result<Self, String> {
        let right = "expected an address such as http://127.0.0.1:8080/dead";
        let uri: Uri = text.parse().map_err(|error| format!("cannot be read ({error}), {right}"))?;
        let host = uri.host().is_some_and(|host| !host.is_empty());
        match uri.scheme_str() {
            Some("http") if host => Ok(Self(uri)),
            Some("https") if host && cfg!(feature = "tls") => Ok(Self(uri)),
            Some("https") if host => {
                Err("begins with https, and this program was built without the feature \"tls\"".to_owned())
            }
            Some("http" | "https") => Err(format!("has no host, {right}")),
            Some(other) => Err(format!("begins with \"{other}:\", {right}")),
            None => Err(format!("does not begin with http:// or https://, {right}")),
        }
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.0.port().map(|port| format!(":{port}")).unwrap_or_default();
        write!(f, "{}://{}{port}", self.0.scheme_str().unwrap_or("http"), self.0.host().unwrap_or_default())
    }
}

/// The header by which a receiver recognizes a repeated notice.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub struct Webhook {
    client: HttpClient,
    address: WebAddress,
    timeout: Duration,
}

impl Webhook {
    #[must_use]
    pub fn new(address: WebAddress, timeout: Duration) -> Self {
        // The address is the operator's own, and often of this machine.
        Self { client: HttpClient::new(AddressRules::Any, Proxies::Environment), address, timeout }
    }
}

#[async_trait]
impl HookAttempt for Webhook {
    // The request has the timeout, which covers connecting too.
    async fn run(&self, notice: &HookNotice, _timeout: Duration) -> Result<(), HookError> {
        let mut request = HttpRequest::post(self.address.0.clone(), notice.view.json())
            .with_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .with_limits(HttpLimits::within(self.timeout));
        if let Ok(key) = HeaderValue::from_str(&format!("{}-{}", notice.task, notice.sequence)) {
            request = request.with_header(IDEMPOTENCY_KEY, key);
        }
        // Without an answer, a retry may succeed: the host's name, network or certificate may be fixed.
        let answer =
            self.client.send(request).await.map_err(|error| HookError::MayPass(error.to_string()))?;
        let status = answer.status;
        if status.is_success() {
            return Ok(());
        }
        if status.is_redirection() {
            // Redirects are not followed: only the configured host receives the notice.
            let to = answer.location().unwrap_or("nowhere");
            return Err(HookError::Never(format!(
                "it answered {status}, a redirect to {to}; redirects are not followed: configure the final address"
            )));
        }
        let sentence = format!("it answered {status}");
        Err(match class_of_status(status.as_u16(), None) {
            ErrorClass::Permanent | ErrorClass::QueueStop => HookError::Never(sentence),
            ErrorClass::Transient
            | ErrorClass::Partial
            | ErrorClass::Timeout
            | ErrorClass::Stuck
            | ErrorClass::RateLimited
            | ErrorClass::UsageLimit
            | ErrorClass::Crash
            | ErrorClass::Budget => HookError::MayPass(sentence),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        let address = WebAddress::parse("http://anna:hunter2@127.0.0.1:8080/T0K3N?key=secret").unwrap();
        assert_eq!(address.to_string(), "http://127.0.0.1:8080");
    }

    #[test]
    fn what_cannot_be_posted_to_is_refused_without_being_repeated() {
        for (text, words) in [
            ("secret", "does not begin with http://"),
            ("/secret", "does not begin with http://"),
            ("ftp://secret/x", "begins with \"ftp:\""),
            ("http://", "cannot be read"),
            ("http:///secret", "cannot be read"),
            ("http://se cret/", "cannot be read"),
        ] {
            let error = WebAddress::parse(text).expect_err(text);
            assert!(error.contains(words) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn https_is_for_programs_with_tls() {
        assert_eq!(WebAddress::parse("https://example.org/x").is_ok(), cfg!(feature = "tls"));
    }
}
