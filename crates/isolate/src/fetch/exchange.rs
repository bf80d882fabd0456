//! One `fetch`: resolves the host, checks the addresses, connects to one of them, sends, and does so again at every redirect.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ostler_core::cut;
use ostler_http::{HttpAnswer, HttpLimits, HttpRequest, Method, Uri};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::body::{ResponseBody, failed};
use super::error::FetchError;
use super::fetcher::Fetcher;
use super::headers::ContentEncoding;
use super::limits::{MAX_ADDRESSES, MAX_NAMED_BYTES, MAX_REDIRECTS};
use super::redirect::{AfterAnswer, Hop, after};
use super::rules::admit_resolved;
use super::target::{FetchTarget, TargetHost};
use super::{headers, target};
use crate::host::{FetchHead, FetchRequest};

/// A response whose head has arrived, and its body if it has one.
pub(crate) struct Fetched {
    pub(crate) head: FetchHead,
    pub(crate) body: Option<ResponseBody>,
}

/// Sends a request, and follows redirects as it says.
pub(crate) async fn run(fetcher: &Fetcher, request: FetchRequest) -> Result<Fetched, FetchError> {
    let began = Instant::now();
    let FetchRequest { response, redirect, .. } = request;
    let mut hop = first_hop(request)?;
    for redirects in 0..=MAX_REDIRECTS {
        let answer = send(fetcher, &hop, began).await?;
        match after(&hop, redirect, answer.status, &answer.headers)? {
            AfterAnswer::Follow(next) => hop = *next,
            AfterAnswer::Deliver => {
                let has_body =
                    hop.method != Method::HEAD && !matches!(answer.status.as_u16(), 204 | 205 | 304);
                let encoding =
                    if has_body { headers::encoding(&answer.headers)? } else { ContentEncoding::Identity };
                let head = FetchHead {
                    response,
                    status: answer.status.as_u16(),
                    status_text: answer.status.canonical_reason().unwrap_or_default().to_owned(),
                    url: hop.url.into(),
                    redirected: redirects > 0,
                    headers: headers::received(&answer.headers, encoding),
                };
                let body = has_body.then(|| ResponseBody::new(answer, encoding, &fetcher.limits));
                return Ok(Fetched { head, body });
            }
        }
    }
    Err(FetchError::TooManyRedirects)
}

fn first_hop(request: FetchRequest) -> Result<Hop, FetchError> {
    let refused = || FetchError::Method { method: cut(&request.method, MAX_NAMED_BYTES) };
    let method = Method::from_bytes(request.method.as_bytes()).map_err(|_| refused())?;
    // A tunnel is no request, and a trace shows headers that proxies add.
    if ["CONNECT", "TRACE", "TRACK"].iter().any(|no| method.as_str().eq_ignore_ascii_case(no)) {
        return Err(refused());
    }
    Ok(Hop {
        method,
        url: target::parse(&request.url)?,
        headers: headers::to_send(&request.headers)?,
        body: request.body.unwrap_or_default().into(),
    })
}

/// Sends a request to one host, and waits for the head of its answer.
async fn send(fetcher: &Fetcher, hop: &Hop, began: Instant) -> Result<HttpAnswer, FetchError> {
    let limits = &fetcher.limits;
    let target = target::of(&hop.url)?;
    fetcher.rules.admit(&target)?;
    let left = limits.total.saturating_sub(began.elapsed());
    let connecting = Instant::now();
    let plain = tokio::time::timeout(limits.connect.min(left), connect(fetcher, &target))
        .await
        .map_err(|_| timed_out(limits.connect, left, limits.total))??;
    let sent = HttpLimits {
        // What is left of it is for TLS.
        connect: limits.connect.saturating_sub(connecting.elapsed()),
        answer: limits.answer,
        idle: limits.idle,
        total: Some(limits.total.saturating_sub(began.elapsed())),
        request_bytes: limits.request_bytes,
        answer_bytes: limits.response_bytes,
    };
    let uri = hop.url.as_str().parse::<Uri>().map_err(|error| FetchError::Url(error.to_string()))?;
    let request = HttpRequest {
        method: hop.method.clone(),
        uri,
        headers: hop.headers.clone(),
        body: hop.body.clone(),
        limits: sent,
    };
    fetcher.client.send_over(request, plain).await.map_err(|error| failed(error, limits.total))
}

fn timed_out(connect: Duration, left: Duration, total: Duration) -> FetchError {
    if connect <= left {
        FetchError::Connecting { limit: connect }
    } else {
        FetchError::Total { limit: total }
    }
}

/// Connects to the first address of the host that answers. Names are resolved once: the addresses that were checked are those that are
/// connected to.
async fn connect(fetcher: &Fetcher, target: &FetchTarget) -> Result<TcpStream, FetchError> {
    let unresolved = |why: io::Error| FetchError::Unresolved { host: target.to_string(), why };
    let addresses: Vec<SocketAddr> = match &target.host {
        TargetHost::Address(address) => vec![SocketAddr::new(*address, target.port)],
        TargetHost::Name(name) => {
            let found = fetcher.network.resolve(name, target.port).await.map_err(unresolved)?;
            admit_resolved(name, found.iter().map(SocketAddr::ip))?;
            // The port is the URL's, whatever the resolver says.
            found.into_iter().map(|found| SocketAddr::new(found.ip(), target.port)).collect()
        }
    };
    if addresses.is_empty() {
        return Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "it has no address")));
    }
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        match fetcher.network.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(FetchError::Unreachable { host: target.to_string(), why: last })
}
