//! The fetch session: the requests and the open responses of one attempt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::body::ResponseBody;
use super::error::FetchError;
use super::exchange::{self, Fetched};
use super::fetcher::Fetcher;
use crate::host::{FetchHead, FetchRequest, HostError};

/// The open responses of one attempt. Dropping it closes their connections; a call that still runs borrows it, and is dropped first.
pub struct FetchSession {
    fetcher: Fetcher,
    responses: Mutex<Responses>,
}

#[derive(Default)]
struct Responses {
    /// Requests that were made so far.
    requests: u32,
    /// By the number that the function gave to the request. About as many as requests may be made.
    known: HashMap<u32, KnownResponse>,
}

enum KnownResponse {
    /// Its head has not arrived.
    Requested(CancellationToken),
    Open(OpenResponse),
    /// It was read to its end, or has no body.
    Read,
    /// The function gave it up, perhaps before the request was seen here.
    Closed,
}

#[derive(Clone)]
struct OpenResponse {
    closed: CancellationToken,
    body: Arc<tokio::sync::Mutex<ResponseBody>>,
}

impl FetchSession {
    pub(crate) fn new(fetcher: Fetcher) -> Self {
        Self { fetcher, responses: Mutex::default() }
    }

    /// Sends a request, and waits for the head of its response. Dropping the future gives the request up.
    ///
    /// # Errors
    /// A sentence for the function: the request was refused, or has no response.
    pub async fn fetch(&self, request: FetchRequest) -> Result<FetchHead, HostError> {
        Ok(self.request(request).await?)
    }

    /// The next bytes of a response's body, or `None` at its end.
    ///
    /// # Errors
    /// A sentence for the function: the response broke off, went beyond a limit, or is not open. After an error it is closed.
    pub async fn body(&self, response: u32) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.read(response).await?)
    }

    /// Closes a response, whether its head has arrived or not: the connection is closed, and calls that wait for it end. A request of this
    /// number that comes later is refused: a close may overtake it.
    pub fn close(&self, response: u32) {
        let mut responses = self.lock();
        match responses.known.get(&response) {
            Some(KnownResponse::Requested(closed) | KnownResponse::Open(OpenResponse { closed, .. })) => {
                closed.cancel();
            }
            Some(KnownResponse::Read | KnownResponse::Closed) => return,
            None if responses.known.len() >= self.fetcher.limits.requests as usize => return,
            None => {}
        }
        responses.known.insert(response, KnownResponse::Closed);
    }

    async fn request(&self, request: FetchRequest) -> Result<FetchHead, FetchError> {
        let reserved = self.reserve(request.response)?;
        let Fetched { head, body } = tokio::select! {
            biased;
            () = reserved.closed.cancelled() => return Err(FetchError::Aborted),
            fetched = exchange::run(&self.fetcher, request) => fetched?,
        };
        reserved.arrived(body)?;
        Ok(head)
    }

    async fn read(&self, response: u32) -> Result<Option<Vec<u8>>, FetchError> {
        let open = match self.lock().known.get(&response) {
            Some(KnownResponse::Open(open)) => open.clone(),
            Some(KnownResponse::Read) => return Ok(None),
            Some(KnownResponse::Closed) => return Err(FetchError::Aborted),
            Some(KnownResponse::Requested(_)) | None => return Err(FetchError::NotOpen { response }),
        };
        let reading = async { open.body.lock().await.next().await };
        let piece = tokio::select! {
            biased;
            () = open.closed.cancelled() => return Err(FetchError::Aborted),
            piece = reading => piece,
        };
        match piece {
            Ok(Some(bytes)) => return Ok(Some(bytes)),
            Ok(None) => self.settle(response, &open.closed, Some(KnownResponse::Read)),
            Err(_) => self.settle(response, &open.closed, None),
        }
        piece
    }

    /// Takes a place among the open responses.
    fn reserve(&self, response: u32) -> Result<ReservedResponse<'_>, FetchError> {
        let limits = &self.fetcher.limits;
        let mut responses = self.lock();
        match responses.known.get(&response) {
            Some(KnownResponse::Closed) => return Err(FetchError::Aborted),
            Some(KnownResponse::Requested(_) | KnownResponse::Open(_) | KnownResponse::Read) => {
                return Err(FetchError::Repeated { response });
            }
            None => {}
        }
        if responses.requests >= limits.requests {
            return Err(FetchError::TooManyRequests { limit: limits.requests });
        }
        let open = responses.known.values().filter(|known| known.is_open()).count();
        if open >= limits.open_responses {
            return Err(FetchError::TooManyOpen { open });
        }
        let closed = CancellationToken::new();
        responses.requests += 1;
        responses.known.insert(response, KnownResponse::Requested(closed.clone()));
        Ok(ReservedResponse { session: self, response, closed })
    }

    /// Replaces or removes a response, unless it was closed.
    fn settle(&self, response: u32, closed: &CancellationToken, by: Option<KnownResponse>) {
        let mut responses = self.lock();
        if closed.is_cancelled() {
            return;
        }
        match by {
            Some(by) => responses.known.insert(response, by),
            None => responses.known.remove(&response),
        };
    }

    fn lock(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownResponse {
    const fn is_open(&self) -> bool {
        match self {
            Self::Requested(_) | Self::Open(_) => true,
            Self::Read | Self::Closed => false,
        }
    }
}

/// A request without a response yet. Dropped before one arrives, it gives its place back.
struct ReservedResponse<'a> {
    session: &'a FetchSession,
    response: u32,
    closed: CancellationToken,
}

impl ReservedResponse<'_> {
    fn arrived(self, body: Option<ResponseBody>) -> Result<(), FetchError> {
        let known = match body {
            Some(body) => KnownResponse::Open(OpenResponse {
                closed: self.closed.clone(),
                body: Arc::new(tokio::sync::Mutex::new(body)),
            }),
            None => KnownResponse::Read,
        };
        self.session.settle(self.response, &self.closed, Some(known));
        if self.closed.is_cancelled() { Err(FetchError::Aborted) } else { Ok(()) }
    }
}

impl Drop for ReservedResponse<'_> {
    fn drop(&mut self) {
        let mut responses = self.session.lock();
        let waits = matches!(responses.known.get(&self.response), Some(KnownResponse::Requested(_)));
        if waits && !self.closed.is_cancelled() {
            responses.known.remove(&self.response);
        }
    }
}
