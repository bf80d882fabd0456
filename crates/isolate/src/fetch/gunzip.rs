//! Streaming gzip decompression with a bound: a bomb ends where the bound is reached, not where its memory would be.

use std::io::{self, Write};
use std::mem;

use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;

use super::error::FetchError;

/// Bytes that a piece has at least, unless the input ends before. The decoder adds at most its own buffer of 32 KiB.
const PIECE_BYTES: usize = 32 << 10;

/// Decompresses one response, piece by piece.
pub(crate) struct Gunzip {
    decoder: MultiGzDecoder<BoundedBuffer>,
    input: Bytes,
    began: bool,
}

impl Gunzip {
    pub(crate) fn new(limit: usize) -> Self {
        let buffer = BoundedBuffer { bytes: Vec::new(), left: limit, limit };
        Self { decoder: MultiGzDecoder::new(buffer), input: Bytes::new(), began: false }
    }

    /// Takes compressed bytes, when [`next`](Self::next) has used up the last ones.
    pub(crate) fn feed(&mut self, input: Bytes) {
        self.began |= !input.is_empty();
        self.input = input;
    }

    /// The next piece of what was fed. It is empty when more has to be fed.
    pub(crate) fn next(&mut self) -> Result<Vec<u8>, FetchError> {
        while !self.input.is_empty() && self.decoder.get_ref().bytes.len() < PIECE_BYTES {
            let used = self.decoder.write(&self.input);
            match self.checked(used)? {
                0 => return Err(FetchError::Gzip),
                used => self.input.advance(used),
            }
        }
        if self.input.is_empty() {
            // What was fed is delivered now, without waiting for more.
            let flushed = self.decoder.flush();
            self.checked(flushed)?;
        }
        Ok(mem::take(&mut self.decoder.get_mut().bytes))
    }

    /// The last piece, when nothing more is fed. A response without a body, such as that of a HEAD, was never compressed.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>, FetchError> {
        if self.began {
            let finished = self.decoder.try_finish();
            self.checked(finished)?;
        }
        Ok(mem::take(&mut self.decoder.get_mut().bytes))
    }

    fn checked<T>(&self, result: io::Result<T>) -> Result<T, FetchError> {
        let buffer = self.decoder.get_ref();
        result.map_err(|_| match buffer.left {
            0 => FetchError::TooLarge { limit: buffer.limit },
            _ => FetchError::Gzip,
        })
    }
}

/// What the decoder writes to. It refuses to hold more than the rest of the bound.
struct BoundedBuffer {
    bytes: Vec<u8>,
    left: usize,
    limit: usize,
}

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            self.left = 0;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.left -= bytes.len();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Decodes in inputs of this size. Returns the whole, and the length of the largest piece.
    fn decode(compressed: &[u8], step: usize, limit: usize) -> Result<(Vec<u8>, usize), FetchError> {
        let mut gunzip = Gunzip::new(limit);
        let (mut whole, mut largest) = (Vec::new(), 0);
        for input in compressed.chunks(step) {
            gunzip.feed(Bytes::copy_from_slice(input));
            loop {
                let piece = gunzip.next()?;
                if piece.is_empty() {
                    break;
                }
                largest = largest.max(piece.len());
                whole.extend(piece);
            }
        }
        whole.extend(gunzip.finish()?);
        Ok((whole, largest))
    }

    #[test]
    fn pieces_of_any_size_are_decoded() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| (n % 251).to_le_bytes()).collect();
        let compressed = gzip(&text);
        for step in [1, 7, 1_000, compressed.len()] {
            assert_eq!(decode(&compressed, step, text.len()).expect("it is valid").0, text, "{step}");
        }
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(decode(&two, 5, 100).expect("two members").0, b"one two");
        assert_eq!(decode(b"", 1, 100).expect("nothing").0, b"");
    }

    #[test]
    fn a_bomb_ends_at_the_bound_and_never_holds_more_than_a_piece() {
        let bomb = gzip(&vec![0; 50 << 20]);
        assert!(bomb.len() < 64 << 10, "{} bytes", bomb.len());
        let error = decode(&bomb, bomb.len(), 10 << 20).expect_err("it is too large");
        assert!(matches!(error, FetchError::TooLarge { limit } if limit == 10 << 20), "{error}");
        let (whole, largest) = decode(&bomb, bomb.len(), 50 << 20).expect("within the bound");
        assert_eq!(whole.len(), 50 << 20);
        assert!(largest <= PIECE_BYTES + (64 << 10), "a piece has {largest} bytes");
    }

    #[test]
    fn what_is_not_gzip_or_ends_early_is_refused() {
        let whole = gzip(b"some text that is long enough");
        let mut damaged = whole.clone();
        let end = damaged.len() - 6;
        damaged[end] ^= 0xff;
        for bad in [
            &b"plain text"[..],
            &whole[..whole.len() - 3],
            &whole[..5],
            &damaged,
            &[&whole[..], b"x"].concat(),
        ] {
            assert!(matches!(decode(bad, 4, 1_000), Err(FetchError::Gzip)), "{bad:?}");
        }
    }
}
