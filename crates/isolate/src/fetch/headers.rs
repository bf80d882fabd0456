//! Headers of `fetch`: which ones a function may send, and which ones it gets.

use ostler_core::cut;
use ostler_http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use ostler_http::{HeaderMap, HeaderName, HeaderValue};

use super::error::FetchError;
use super::limits::{MAX_HEADER_BYTES, MAX_HEADERS, MAX_NAMED_BYTES};

/// Headers that belong to the connection or its framing, which is the node's. A function that sets one is not refused: copied headers of
/// another request have them.
const OF_THE_CONNECTION: [&str; 12] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// How the body of a response is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
}

/// The headers of a request, without those of the connection, and with what `fetch` asks for itself.
pub(crate) fn to_send(list: &[(String, String)]) -> Result<HeaderMap, FetchError> {
    if list.len() > MAX_HEADERS {
        return Err(FetchError::TooManyHeaders);
    }
    if list.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEADER_BYTES {
        return Err(FetchError::LongHeaders);
    }
    let mut headers = HeaderMap::new();
    for (text, value) in list {
        let invalid = || FetchError::Header { name: cut(text, MAX_NAMED_BYTES) };
        let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(&latin1(value).ok_or_else(invalid)?).map_err(|_| invalid())?;
        if !is_of_the_connection(&name) {
            headers.append(name, value);
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    Ok(headers)
}

/// The headers that a function gets. Those of the connection are left out, and of an encoding that is removed here.
pub(crate) fn received(headers: &HeaderMap, encoding: ContentEncoding) -> Vec<(String, String)> {
    let decoded = match encoding {
        ContentEncoding::Gzip => [Some(CONTENT_ENCODING), Some(CONTENT_LENGTH)],
        ContentEncoding::Identity => [None, None],
    };
    let visible = headers.iter().filter(|(name, _)| {
        (**name == CONTENT_LENGTH || !is_of_the_connection(name))
            && !decoded.iter().flatten().any(|gone| gone == *name)
    });
    // Bytes beyond ASCII are characters of Latin-1, as `fetch` has them.
    let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect();
    visible.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// How a response is encoded. Only gzip was asked for.
pub(crate) fn encoding(headers: &HeaderMap) -> Result<ContentEncoding, FetchError> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (first, second) = (values.next(), values.next());
    let Some(first) = first else { return Ok(ContentEncoding::Identity) };
    let word = String::from_utf8_lossy(first.as_bytes()).trim().to_ascii_lowercase();
    match word.as_str() {
        "gzip" | "x-gzip" if second.is_none() => Ok(ContentEncoding::Gzip),
        "" | "identity" if second.is_none() => Ok(ContentEncoding::Identity),
        _ => Err(FetchError::Encoding { encoding: cut(&word, MAX_NAMED_BYTES) }),
    }
}

fn is_of_the_connection(name: &HeaderName) -> bool {
    OF_THE_CONNECTION.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}

/// The bytes of a text whose characters are all of Latin-1.
fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_of_the_connection_are_not_sent() {
        let list = pairs(&[
            ("Host", "internal.example"),
            ("Connection", "upgrade"),
            ("Content-Length", "7"),
            ("Transfer-Encoding", "chunked"),
            ("Accept-Encoding", "br"),
            ("Proxy-Authorization", "x"),
            ("Upgrade", "h2c"),
            ("Authorization", "Bearer x"),
            ("X-Name", "\u{fc}"),
        ]);
        let sent = to_send(&list).expect("they are valid");
        let mut names: Vec<&str> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "accept-encoding", "authorization", "x-name"]);
        assert_eq!(sent[ACCEPT_ENCODING], "gzip");
        assert_eq!(sent["x-name"].as_bytes(), [0xfc]);
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused() {
        for bad in [("a b", "x"), ("", "x"), ("x", "a\r\nhost: b"), ("x", "a\0"), ("x", "\u{20ac}")] {
            assert!(matches!(to_send(&pairs(&[bad])), Err(FetchError::Header { .. })), "{bad:?}");
        }
        assert!(matches!(to_send(&pairs(&[("x", "y"); MAX_HEADERS + 1])), Err(FetchError::TooManyHeaders)));
        let long = "y".repeat(MAX_HEADER_BYTES);
        assert!(matches!(to_send(&pairs(&[("x", &long)])), Err(FetchError::LongHeaders)));
    }

    #[test]
    fn a_decoded_response_does_not_say_that_it_is_encoded() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-encoding", "GZIP"),
            ("content-length", "9"),
            ("connection", "close"),
            ("x-a", "\u{e4}"),
        ] {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_bytes(&latin1(value).expect("Latin-1")).expect("a value"));
        }
        assert_eq!(encoding(&headers).expect("known"), ContentEncoding::Gzip);
        assert_eq!(received(&headers, ContentEncoding::Gzip), pairs(&[("x-a", "\u{e4}")]));
        assert_eq!(received(&headers, ContentEncoding::Identity).len(), 3);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip, br"));
        assert!(matches!(encoding(&headers), Err(FetchError::Encoding { .. })));
    }
}
