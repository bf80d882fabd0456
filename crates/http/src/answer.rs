//! The answer to a request: status and headers at once, the body whole or piece by piece.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, HeaderMap, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{HttpError, Stage};
use crate::gunzip::Gunzip;
use crate::request::HttpLimits;

/// An answer, whatever its status. Dropping it closes the connection.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    /// `None`: the body is passed on as it came.
    gunzip: Option<Box<Gunzip>>,
    /// After decoding.
    read_bytes: usize,
    limits: HttpLimits,
    began: Instant,
    _connection: AbortOnDropHandle<()>,
}

impl HttpAnswer {
    pub(crate) fn new(
        response: Response<Incoming>,
        limits: HttpLimits,
        began: Instant,
        connection: AbortOnDropHandle<()>,
    ) -> Self {
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, head.headers);
        Self { status, headers, body, gunzip: None, read_bytes: 0, limits, began, _connection: connection }
    }

    /// The header `Retry-After`: seconds, or a date.
    #[must_use]
    pub fn retry_after(&self) -> Option<&str> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()
    }

    /// Where a redirect leads. It is not followed.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.headers.get(LOCATION)?.to_str().ok()
    }

    /// The same, whose body is decompressed as it is read. Its size limit holds for what comes out.
    ///
    /// # Errors
    /// When the server has encoded it in another way than by gzip.
    pub fn decoded(mut self) -> Result<Self, HttpError> {
        let encoding = self.headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim());
        match encoding.map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "identity") => {}
            Some("gzip" | "x-gzip") => self.gunzip = Some(Box::new(Gunzip::new())),
            Some(other) => return Err(HttpError::Undecodable(format!("its encoding is {other}"))),
        }
        Ok(self)
    }

    /// The next piece of the body, as it arrives; `None` at its end. Cancel safe.
    ///
    /// # Errors
    /// When the connection breaks, a time limit has passed, or the body is too large. Then nothing more can be read.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = within(&self.limits, self.began, Stage::Reading, self.body.frame()).await?;
            let Some(frame) = frame.transpose()? else { return Ok(None) };
            // Other frames are trailers.
            let Ok(mut data) = frame.into_data() else { continue };
            if let Some(gunzip) = &mut self.gunzip {
                let limit = self.limits.answer_bytes;
                data = gunzip.push(&data, limit.saturating_sub(self.read_bytes), limit)?;
                if data.is_empty() {
                    continue;
                }
            }
            self.read_bytes = self.read_bytes.saturating_add(data.len());
            if self.read_bytes > self.limits.answer_bytes {
                return Err(HttpError::AnswerTooLarge { limit: self.limits.answer_bytes });
            }
            return Ok(Some(data));
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// As for [`chunk`](Self::chunk).
    pub async fn bytes(mut self) -> Result<Bytes, HttpError> {
        let mut whole = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            whole.extend_from_slice(&data);
        }
        Ok(whole.freeze())
    }
}

/// Waits no longer than this stage, and the request as a whole, may take.
pub(crate) async fn within<T>(
    limits: &HttpLimits,
    began: Instant,
    stage: Stage,
    work: impl Future<Output = T>,
) -> Result<T, HttpError> {
    let limit = match stage {
        Stage::Connecting => limits.connect,
        Stage::Answering => limits.answer,
        Stage::Reading => limits.idle,
        Stage::Request => limits.total.unwrap_or(limits.answer),
    };
    let (own, whole) = (Instant::now() + limit, limits.total.map(|total| (began + total, total)));
    let (until, stage, limit) = match whole {
        Some((end, total)) if end <= own => (end, Stage::Request, total),
        Some(_) | None => (own, stage, limit),
    };
    tokio::time::timeout_at(until, work).await.map_err(|_| HttpError::TimedOut { stage, limit })
}
