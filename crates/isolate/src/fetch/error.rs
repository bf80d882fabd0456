//! Why a `fetch` failed. A function gets the sentence as a `TypeError`.

use std::net::IpAddr;
use std::time::Duration;

use ostler_http::HttpError;

use super::limits::{MAX_HEADER_BYTES, MAX_HEADERS, MAX_REDIRECTS, MAX_URL_BYTES};
use crate::host::HostError;

/// Why a request was refused, or has no response. Names at most the host of a URL, since the rest may be secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(
        "fetch is refused: the pool lists no hosts. Its key `fetch` allows them, as in fetch = [\"api.example.org\"]"
    )]
    NoRules,
    #[error(
        "fetch is refused: {target} is not in the list `fetch` of the pool. An entry without a port stands for the ports 80 and 443"
    )]
    NotListed { target: String },
    #[error(
        "fetch is refused: {address} is not a public address. It is reached only if the list `fetch` of the pool has \"{target}\""
    )]
    NotPublic { address: IpAddr, target: String },
    #[error(
        "fetch is refused: {host} resolves to {address}, which is not a public address. Only its address itself can be listed in `fetch`"
    )]
    ResolvesInside { host: String, address: IpAddr },
    #[error("the URL is invalid: {0}")]
    Url(String),
    #[error("the URL has more than {MAX_URL_BYTES} bytes")]
    LongUrl,
    #[error("fetch sends only http: and https: requests, not {scheme}:")]
    Scheme { scheme: String },
    #[error("the URL has a user or a password; send the header Authorization instead")]
    UserInfo,
    #[error("the method {method} is not allowed")]
    Method { method: String },
    #[error("the header \"{name}\" cannot be sent")]
    Header { name: String },
    #[error("the request has more than {MAX_HEADERS} headers")]
    TooManyHeaders,
    #[error("the headers of the request have more than {MAX_HEADER_BYTES} bytes")]
    LongHeaders,
    #[error("{host} answered with a redirect, and the request has redirect: \"error\"")]
    Redirected { host: String },
    #[error("more than {MAX_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("{host} redirects from https to http")]
    Downgrade { host: String },
    #[error("the response has the content encoding \"{encoding}\"; only gzip is decoded")]
    Encoding { encoding: String },
    #[error("the response is not valid gzip")]
    Gzip,
    #[error("the response has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the request took longer than {limit:?}")]
    Total { limit: Duration },
    #[error("{host} was not found: {why}")]
    Unresolved { host: String, why: std::io::Error },
    #[error("cannot connect to {host}: {why}")]
    Unreachable { host: String, why: std::io::Error },
    #[error("connecting took longer than {limit:?}")]
    Connecting { limit: Duration },
    #[error("{open} responses are open; read or cancel one before the next fetch")]
    TooManyOpen { open: usize },
    #[error("an attempt may make {limit} requests")]
    TooManyRequests { limit: u32 },
    #[error("the attempt has no open response {response}")]
    NotOpen { response: u32 },
    #[error("the response {response} was requested before")]
    Repeated { response: u32 },
    #[error("the request was aborted")]
    Aborted,
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl From<FetchError> for HostError {
    fn from(error: FetchError) -> Self {
        Self(error.to_string())
    }
}
