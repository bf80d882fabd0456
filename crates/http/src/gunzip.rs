//! Gunzip: the body of an answer that its server compressed, with a bound on what comes out of it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::GzDecoder;

use crate::error::HttpError;

/// Compressed bytes that are decoded at once. No byte becomes more than about a thousand, so this many become a megabyte at most.
const STEP_BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Gunzip(GzDecoder<Vec<u8>>);

impl Gunzip {
    pub(crate) fn new() -> Self {
        Self(GzDecoder::new(Vec::new()))
    }

    /// Decodes a piece of the body. More than `room` bytes are not decoded: the limit of the answer is `limit`.
    pub(crate) fn push(&mut self, piece: &[u8], room: usize, limit: usize) -> Result<Bytes, HttpError> {
        let mut decoded = Vec::new();
        for step in piece.chunks(STEP_BYTES) {
            let written = self.0.write_all(step).and_then(|()| self.0.flush());
            written.map_err(|error| HttpError::Undecodable(error.to_string()))?;
            decoded.append(self.0.get_mut());
            if decoded.len() > room {
                return Err(HttpError::AnswerTooLarge { limit });
            }
        }
        Ok(decoded.into())
    }
}
