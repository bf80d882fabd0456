//! Redirects of `fetch`: whether one is followed, and what it changes about the request. It decides, and sends nothing.

use bytes::Bytes;
use ostler_http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, COOKIE, LOCATION,
};
use ostler_http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::error::FetchError;
use super::target;
use crate::host::FetchRedirect;

/// A request as it is sent to one host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hop {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What follows an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum AfterAnswer {
    /// It is the response.
    Deliver,
    Follow(Box<Hop>),
}

/// Decides what follows an answer to this request.
pub(crate) fn after(
    hop: &Hop,
    mode: FetchRedirect,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<AfterAnswer, FetchError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(AfterAnswer::Deliver);
    }
    let host = || hop.url.host_str().unwrap_or_default().to_owned();
    match mode {
        FetchRedirect::Manual => return Ok(AfterAnswer::Deliver),
        FetchRedirect::Error => return Err(FetchError::Redirected { host: host() }),
        FetchRedirect::Follow => {}
    }
    let Some(location) = headers.get(LOCATION) else { return Ok(AfterAnswer::Deliver) };
    let unreadable = |_| FetchError::Url("the header Location is not text".to_owned());
    let location = std::str::from_utf8(location.as_bytes()).map_err(unreadable)?;
    let url = target::join(&hop.url, location)?;
    if hop.url.scheme() == "https" && url.scheme() == "http" {
        return Err(FetchError::Downgrade { host: host() });
    }
    let mut next = Hop { url, ..hop.clone() };
    if changes_to_get(status, &hop.method) {
        next.method = Method::GET;
        next.body = Bytes::new();
        for name in [CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE] {
            next.headers.remove(name);
        }
    }
    // A login is for the origin that the function named.
    if next.url.origin() != hop.url.origin() {
        for name in [AUTHORIZATION, COOKIE] {
            next.headers.remove(name);
        }
    }
    Ok(AfterAnswer::Follow(Box::new(next)))
}

/// As browsers do: 303 asks for another resource, and 301 and 302 do so after a POST.
fn changes_to_get(status: StatusCode, method: &Method) -> bool {
    match status.as_u16() {
        303 => *method != Method::GET && *method != Method::HEAD,
        301 | 302 => *method == Method::POST,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ostler_http::HeaderValue;

    use super::*;

    fn hop(method: Method, url: &str) -> Hop {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, COOKIE, CONTENT_TYPE] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        Hop { method, url: target::parse(url).expect(url), headers, body: Bytes::from_static(b"body") }
    }

    fn follow(hop: &Hop, status: u16, location: &str) -> Result<Hop, FetchError> {
        let status = StatusCode::from_u16(status).expect("a status");
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_str(location).expect("a header"));
        after(hop, FetchRedirect::Follow, status, &headers).map(|after| match after {
            AfterAnswer::Follow(next) => *next,
            AfterAnswer::Deliver => panic!("it is followed"),
        })
    }

    #[test]
    fn methods_and_bodies_change_as_in_browsers() {
        for (status, method, expected, body) in [
            (301, Method::POST, Method::GET, false),
            (302, Method::POST, Method::GET, false),
            (301, Method::PUT, Method::PUT, true),
            (302, Method::HEAD, Method::HEAD, true),
            (303, Method::PUT, Method::GET, false),
            (303, Method::HEAD, Method::HEAD, true),
            (307, Method::POST, Method::POST, true),
            (308, Method::DELETE, Method::DELETE, true),
        ] {
            let next =
                follow(&hop(method.clone(), "http://a.example/x"), status, "y").expect("it is followed");
            assert_eq!((next.method, !next.body.is_empty()), (expected, body), "{status} {method}");
            assert_eq!(next.headers.contains_key(CONTENT_TYPE), body, "{status} {method}");
            assert_eq!(next.url.as_str(), "http://a.example/y");
        }
    }

    #[test]
    fn logins_stay_with_their_origin() {
        for (location, kept) in [
            ("/other", true),
            ("//a.example/", true),
            ("https://a.example:443/", true),
            ("https://a.example:8443/", false),
            ("https://b.example/", false),
            ("https://a.example.b.example/", false),
        ] {
            let next = follow(&hop(Method::GET, "https://a.example/"), 302, location).expect(location);
            assert_eq!(next.headers.contains_key(AUTHORIZATION), kept, "{location}");
            assert_eq!(next.headers.contains_key(COOKIE), kept, "{location}");
        }
        let upgraded =
            follow(&hop(Method::GET, "http://a.example/"), 301, "https://a.example/").expect("https");
        assert!(!upgraded.headers.contains_key(AUTHORIZATION), "another scheme is another origin");
    }

    #[test]
    fn redirects_to_something_else_than_safer_http_are_refused() {
        let secure = hop(Method::GET, "https://a.example/");
        assert!(matches!(follow(&secure, 302, "http://a.example/"), Err(FetchError::Downgrade { .. })));
        assert!(matches!(follow(&secure, 302, "file:///etc/passwd"), Err(FetchError::Scheme { .. })));
        assert!(matches!(follow(&secure, 302, "https://anna:x@a.example/"), Err(FetchError::UserInfo)));
        assert!(matches!(follow(&secure, 302, "https://"), Err(FetchError::Url(_))));
    }

    #[test]
    fn other_answers_are_delivered_and_modes_are_kept() {
        let hop = hop(Method::GET, "https://a.example/");
        let mut headers = HeaderMap::new();
        let deliver = |mode, status, headers: &HeaderMap| {
            matches!(after(&hop, mode, status, headers), Ok(AfterAnswer::Deliver))
        };
        assert!(deliver(FetchRedirect::Follow, StatusCode::FOUND, &headers), "it leads nowhere");
        headers.insert(LOCATION, HeaderValue::from_static("/y"));
        for status in
            [StatusCode::OK, StatusCode::CREATED, StatusCode::NOT_MODIFIED, StatusCode::MULTIPLE_CHOICES]
        {
            assert!(deliver(FetchRedirect::Follow, status, &headers), "{status}");
            assert!(deliver(FetchRedirect::Error, status, &headers), "{status}");
        }
        assert!(deliver(FetchRedirect::Manual, StatusCode::FOUND, &headers));
        let refused = after(&hop, FetchRedirect::Error, StatusCode::FOUND, &headers);
        assert!(matches!(refused, Err(FetchError::Redirected { .. })));
    }
}
