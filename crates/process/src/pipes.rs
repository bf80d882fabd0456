//! Pipes of a child that may be closed already.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;

/// Reads the next chunk, up to the capacity of the buffer. Never completes on a closed pipe.
///
/// # Errors
/// As of the pipe.
pub async fn read(pipe: &mut Option<pipe::Receiver>, chunk: &mut Vec<u8>) -> io::Result<usize> {
    chunk.clear();
    match pipe {
        Some(pipe) => pipe.read_buf(chunk).await,
        None => std::future::pending().await,
    }
}

/// Writes what fits. Never completes on a closed pipe.
///
/// # Errors
/// As of the pipe.
pub async fn write(pipe: &mut Option<pipe::Sender>, rest: &[u8]) -> io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.write(rest).await,
        None => std::future::pending().await,
    }
}
