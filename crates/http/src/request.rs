//! A request, and the limits that hold for it and for its answer.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Uri};

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub method: Method,
    /// With a user and a password in it, they are sent as basic authentication.
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub limits: HttpLimits,
}

impl HttpRequest {
    #[must_use]
    pub fn get(uri: Uri) -> Self {
        let (headers, body, limits) = (HeaderMap::new(), Bytes::new(), HttpLimits::default());
        Self { method: Method::GET, uri, headers, body, limits }
    }

    #[must_use]
    pub fn post(uri: Uri, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(uri) }
    }

    /// The same with this header instead of any other of its name.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    #[must_use]
    pub fn with_limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }
}

/// How long a request may take, and how large it and its answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Until there is a connection, with TLS and proxy.
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub answer: Duration,
    /// Between two pieces of the body.
    pub idle: Duration,
    /// All of it, the body included. A stream may have none.
    pub total: Option<Duration>,
    /// The body of the request.
    pub request_bytes: usize,
    /// The body of the answer.
    pub answer_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            answer: seconds(60),
            idle: seconds(60),
            total: Some(seconds(60)),
            request_bytes: 64 << 20,
            answer_bytes: 16 << 20,
        }
    }
}

impl HttpLimits {
    /// At most this long in all.
    #[must_use]
    pub fn within(total: Duration) -> Self {
        Self { connect: total, answer: total, idle: total, total: Some(total), ..Self::default() }
    }

    /// For an answer that is a stream: without a limit in all, as long as pieces keep coming.
    #[must_use]
    pub fn streaming(idle: Duration) -> Self {
        Self { idle, total: None, ..Self::default() }
    }
}
