//! Headers of every answer: Content-Security-Policy with Trusted Types, and the others that keep a browser from guessing and sharing.

use hyper::HeaderMap;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// The policy of every answer, errors included. No inline script, no style attribute, nothing from elsewhere.
pub const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// What an output file may do in a browser: nothing.
pub(crate) const SANDBOX: &str = "default-src 'none'; sandbox";

const OTHERS: [(HeaderName, &str); 3] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers of every answer. One that an operation has set stays.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CSP));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // A browser that must send no referrer sends no origin with a form either, only `null`. Other sites are told nothing.
    let is_page = headers.get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"text/html"));
    let referrer = HeaderValue::from_static(if is_page { "same-origin" } else { "no-referrer" });
    headers.insert(REFERRER_POLICY, referrer);
    for (name, value) in OTHERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
