//! Limits of `fetch`: times and sizes of a request, and how many an attempt may make.

use std::time::Duration;

/// Redirects of one request that are followed.
pub(crate) const MAX_REDIRECTS: usize = 5;
/// Addresses of a host that are tried, one after the other.
pub(crate) const MAX_ADDRESSES: usize = 8;
/// Bytes of a URL.
pub(crate) const MAX_URL_BYTES: usize = 16 << 10;
/// Headers of a request.
pub(crate) const MAX_HEADERS: usize = 100;
/// Bytes of all headers of a request, names and values.
pub(crate) const MAX_HEADER_BYTES: usize = 32 << 10;
/// Bytes of a name in a message.
pub(crate) const MAX_NAMED_BYTES: usize = 100;

/// What a request of a function may use, and how many requests one attempt may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Until there is a connection to one host, with TLS. Each redirect has this time again.
    pub connect: Duration,
    /// From a request to the head of its answer.
    pub answer: Duration,
    /// Between two pieces of a body.
    pub idle: Duration,
    /// All of it, with redirects and the body.
    pub total: Duration,
    /// The body of a request.
    pub request_bytes: usize,
    /// The body of a response, as it is sent and after decompression.
    pub response_bytes: usize,
    /// Responses of an attempt that are open at once: requested, and not read to their end.
    pub open_responses: usize,
    /// Requests of an attempt.
    pub requests: u32,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            total: Duration::from_secs(300),
            request_bytes: 16 << 20,
            response_bytes: 64 << 20,
            open_responses: 100,
            requests: 1_000,
        }
    }
}
