//! Chunks: texts that are too long for a row, compressed and in parts.
//!
//! A chunk belongs to a task and to an owner in it: the number of an event, or zero for the task's output.

use ostler_store::events::TextPart;

use crate::params;
use crate::tx::{Snapshot, Tx};
use crate::value::{Row, Unreadable};

/// Texts up to this many bytes stay in their row; longer ones are cut into parts of it.
pub const CHUNK_BYTES: usize = 64 * 1024;
/// The owner of the chunks of a task's output.
pub const OUTPUT: u64 = 0;

/// zstd's own default.
const LEVEL: i32 = 3;

/// The compressed parts of a text that is too long for its row.
#[must_use]
pub fn chunks_of(text: &str) -> Vec<Vec<u8>> {
    if text.len() <= CHUNK_BYTES {
        return Vec::new();
    }
    // Compression to memory fails only when there is none left.
    text.as_bytes()
        .chunks(CHUNK_BYTES)
        .map(|part| zstd::bulk::compress(part, LEVEL).unwrap_or_default())
        .collect()
}

fn unpacked<S: Snapshot>(packed: &[u8]) -> Result<Vec<u8>, S::Error> {
    zstd::bulk::decompress(packed, CHUNK_BYTES).map_err(|error| S::unreadable(Unreadable(error.to_string())))
}

/// An output that fits into the task's row, or one that does not.
#[must_use]
pub fn split_output(output: Option<&str>) -> (Option<&str>, Option<&str>) {
    match output {
        Some(long) if long.len() > CHUNK_BYTES => (None, Some(long)),
        short => (short, None),
    }
}

/// Writes the output of a task that is too long for its row.
///
/// # Errors
/// When a statement fails.
pub async fn put_output<T: Tx>(tx: &T, slot: i64, output: &str) -> Result<(), T::Error> {
    tx.exec("DELETE FROM ostler.chunk WHERE task = $1 AND owner = 0", params![slot]).await?;
    put(tx, slot, OUTPUT, output.len(), &chunks_of(output)).await
}

/// Writes the parts of a text of `size` bytes.
///
/// # Errors
/// When a statement fails.
pub async fn put<T: Tx>(
    tx: &T,
    slot: i64,
    owner: u64,
    size: usize,
    chunks: &[Vec<u8>],
) -> Result<(), T::Error> {
    for (part, bytes) in chunks.iter().enumerate() {
        tx.exec(
            "INSERT INTO ostler.chunk(task, owner, part, size, bytes) VALUES($1, $2, $3, $4, $5)",
            params![slot, owner, part, size, bytes],
        )
        .await?;
    }
    Ok(())
}

/// The size of a text in bytes. `None`: this owner has no chunks.
///
/// # Errors
/// When the statement fails.
pub async fn size<S: Snapshot>(snapshot: &S, slot: i64, owner: u64) -> Result<Option<u64>, S::Error> {
    let sql = "SELECT size FROM ostler.chunk WHERE task = $1 AND owner = $2 AND part = 0";
    snapshot.row(sql, params![slot, owner]).await?.map(|row| row.get(0)).transpose()
}

/// A range of a text. `None`: this owner has no chunks.
///
/// # Errors
/// When a statement fails, or a chunk cannot be unpacked.
pub async fn read<S: Snapshot>(
    snapshot: &S,
    slot: i64,
    owner: u64,
    from: u64,
    most: usize,
) -> Result<Option<TextPart>, S::Error> {
    let Some(size) = size(snapshot, slot, owner).await? else { return Ok(None) };
    let end = from.saturating_add(most as u64).min(size);
    let first = from / CHUNK_BYTES as u64;
    let mut bytes = Vec::new();
    if from < end {
        let last = (end - 1) / CHUNK_BYTES as u64;
        let rows = snapshot
            .rows(
                "SELECT bytes FROM ostler.chunk WHERE task = $1 AND owner = $2 AND part BETWEEN $3 AND $4 ORDER BY part",
                params![slot, owner, first, last],
            )
            .await?;
        for row in &rows {
            bytes.extend(unpacked::<S>(&row.get::<Vec<u8>>(0)?)?);
        }
        let skipped =
            usize::try_from(from - first * CHUNK_BYTES as u64).unwrap_or(usize::MAX).min(bytes.len());
        bytes.drain(..skipped);
        bytes.truncate(most);
    }
    Ok(Some(TextPart { bytes, size }))
}

/// A text from its beginning, up to `most` bytes, cut at a character boundary, and its size. `None`: this owner has no
/// chunks.
///
/// # Errors
/// When a statement fails, or the text is not UTF-8.
pub async fn read_str<S: Snapshot>(
    snapshot: &S,
    slot: i64,
    owner: u64,
    most: usize,
) -> Result<Option<(String, u64)>, S::Error> {
    let Some(TextPart { mut bytes, size }) = read(snapshot, slot, owner, 0, most).await? else {
        return Ok(None);
    };
    if (bytes.len() as u64) < size {
        let whole = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        bytes.truncate(whole);
    }
    let text = String::from_utf8(bytes).map_err(|error| S::unreadable(Unreadable(error.to_string())))?;
    Ok(Some((text, size)))
}
