//! Requests to elsewhere over HTTP/1.1: TLS, timeouts, size limits, proxies, and rules about addresses.
//!
//! - [`HttpClient`]: sends a [`HttpRequest`] and returns a [`HttpAnswer`], whose body is read whole or piece by piece.
//! - [`HttpLimits`]: timeouts and sizes of one request. [`AddressRules`]: which addresses may be connected to.
//! - [`SseParser`]: the events of a streamed answer.
//! - `connect.rs`: from a host to a connection, through a proxy if there is one. `tls.rs`: encryption (feature `tls`).
//!
//! A status is data, not an error, and redirects are not followed. Each request has a connection of its own.

mod address;
mod answer;
mod client;
mod connect;
mod error;
mod gunzip;
mod request;
mod sse;
#[cfg(feature = "tls")]
mod tls;

pub use address::{AddressRules, Allowed, BadAllowed, is_public};
pub use answer::HttpAnswer;
pub use client::{HttpClient, Proxies};
pub use error::{HttpError, HttpFault, Stage};
pub use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, StatusCode, Uri};
pub use request::{HttpLimits, HttpRequest};
pub use sse::{EventTooLong, MAX_EVENT_BYTES, SseEvent, SseParser};
