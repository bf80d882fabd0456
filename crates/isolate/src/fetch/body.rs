//! The body of a response: pieces as they arrive, decompressed, within the limits.

use std::time::Duration;

use ostler_http::{HttpAnswer, HttpError, Stage};

use super::error::FetchError;
use super::gunzip::Gunzip;
use super::headers::ContentEncoding;
use super::limits::FetchLimits;

/// A body that is being read. Dropping it closes the connection.
pub(crate) struct ResponseBody {
    answer: HttpAnswer,
    decoding: Decoding,
    total: Duration,
}

enum Decoding {
    None,
    Gzip(Box<Gunzip>),
    /// The last piece was taken.
    Over,
}

impl ResponseBody {
    pub(crate) fn new(answer: HttpAnswer, encoding: ContentEncoding, limits: &FetchLimits) -> Self {
        let decoding = match encoding {
            ContentEncoding::Identity => Decoding::None,
            ContentEncoding::Gzip => Decoding::Gzip(Box::new(Gunzip::new(limits.response_bytes))),
        };
        Self { answer, decoding, total: limits.total }
    }

    /// The next bytes, never empty; `None` at the end. Cancel safe: what was read is kept.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
        loop {
            match &mut self.decoding {
                Decoding::Over => return Ok(None),
                Decoding::None => {}
                Decoding::Gzip(gunzip) => {
                    let piece = gunzip.next()?;
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                }
            }
            let chunk = self.answer.chunk().await.map_err(|error| failed(error, self.total))?;
            match (chunk, &mut self.decoding) {
                (Some(bytes), _) if bytes.is_empty() => {}
                (Some(bytes), Decoding::Gzip(gunzip)) => gunzip.feed(bytes),
                (Some(bytes), Decoding::None | Decoding::Over) => return Ok(Some(bytes.into())),
                (None, Decoding::Gzip(gunzip)) => {
                    let last = gunzip.finish()?;
                    self.decoding = Decoding::Over;
                    return Ok(Some(last).filter(|last| !last.is_empty()));
                }
                (None, Decoding::None | Decoding::Over) => {
                    self.decoding = Decoding::Over;
                    return Ok(None);
                }
            }
        }
    }
}

/// An error of a request, with the limit that the caller knows: a redirect has only the rest of the time in all.
pub(crate) fn failed(error: HttpError, total: Duration) -> FetchError {
    if let HttpError::TimedOut { stage: Stage::Request, .. } = error {
        return FetchError::Total { limit: total };
    }
    if let HttpError::AnswerTooLarge { limit } = error {
        return FetchError::TooLarge { limit };
    }
    FetchError::Http(error)
}
