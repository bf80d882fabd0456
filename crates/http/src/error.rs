//! Why a request got no answer.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Why there is no answer, or only a part of it. Names at most the host of an address, since the rest may be secret.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the address is invalid: {0}")]
    Address(String),
    #[error("the request has {bytes} bytes; the limit is {limit}")]
    RequestTooLarge { bytes: usize, limit: usize },
    /// The rules do not allow the addresses of the host.
    #[error("{host} is {address}, which is not a public address; requests to it are not allowed")]
    Forbidden { host: String, address: IpAddr },
    #[error("{host} was not found: {why}")]
    Unresolved { host: String, why: std::io::Error },
    #[error("cannot connect to {host}: {why}")]
    Unreachable { host: String, why: std::io::Error },
    #[error("no secure connection to {host}: {why}")]
    Tls { host: String, why: String },
    #[error("the proxy {proxy} did not connect: {why}")]
    Proxy { proxy: String, why: String },
    #[error("{stage} took longer than {limit:?}")]
    TimedOut { stage: Stage, limit: Duration },
    /// The connection broke, or the answer is not HTTP.
    #[error("the connection failed: {0}")]
    Broken(#[from] hyper::Error),
    /// The body is compressed, and cannot be decompressed.
    #[error("the answer cannot be decoded: {0}")]
    Undecodable(String),
    #[error("the answer has more than {limit} bytes")]
    AnswerTooLarge { limit: usize },
}

/// What a caller may want to know about an error: whether another attempt can succeed is decided by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpFault {
    /// The address of the request is wrong.
    Address,
    RequestTooLarge,
    TimedOut,
    AnswerTooLarge,
    /// The host, the network, or what the host sent.
    Connection,
}

impl HttpError {
    #[must_use]
    pub const fn fault(&self) -> HttpFault {
        match self {
            Self::Address(_) => HttpFault::Address,
            Self::RequestTooLarge { .. } => HttpFault::RequestTooLarge,
            Self::TimedOut { .. } => HttpFault::TimedOut,
            Self::AnswerTooLarge { .. } => HttpFault::AnswerTooLarge,
            Self::Forbidden { .. }
            | Self::Unresolved { .. }
            | Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::Proxy { .. }
            | Self::Broken(_)
            | Self::Undecodable(_) => HttpFault::Connection,
        }
    }
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    /// From the request to the head of the answer.
    Answering,
    /// The next piece of the body.
    Reading,
    /// All of it.
    Request,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Answering => "the answer",
            Self::Reading => "the next part of the answer",
            Self::Request => "the request",
        })
    }
}
