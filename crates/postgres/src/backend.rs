//! Server backends: the identity of a connection at the server. A node's death is detected by the end of one connection,
//! which is identified by the server process's pid and start time, under one start of the server.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use crate::conn::{Conn, get};
use crate::fault::Sql;

/// The size of a cancel request: length, code, pid and secret.
const REQUEST: usize = 16;
/// The position of the pid in it.
const PID: std::ops::Range<usize> = 8..12;

/// The server process behind a connection. Timestamps are in microseconds, the server's own resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// The pid. The operating system reuses it later.
    pub(crate) pid: i32,
    /// The process's start time.
    pub(crate) since: i64,
    /// The server's start time.
    pub(crate) server: i64,
}

impl Backend {
    /// Identifies the server process of this connection. `None`: a pooler is in between. The pid reported when the
    /// connection was opened is then the pooler's, and the pooler's server connections say nothing about this node.
    pub(crate) async fn of(conn: &Conn, reported: Option<i32>) -> Sql<Option<Self>> {
        let row = conn
            .row(
                "SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint,
                    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
                 FROM pg_stat_activity WHERE pid = pg_backend_pid() AND backend_start IS NOT NULL",
                &[],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let backend = Self { pid: get(&row, 0)?, since: get(&row, 1)?, server: get(&row, 2)? };
        Ok(Some(backend).filter(|backend| Some(backend.pid) == reported))
    }
}

/// The pid reported at connection start, by the server or by a pooler. A client exposes it only in a cancel request: so
/// one is written, and read instead of being sent.
pub(crate) async fn told_pid(client: &Client) -> Option<i32> {
    let written = RecordedBytes::default();
    client.cancel_token().cancel_query_raw(written.clone(), Unwrapped).await.ok()?;
    let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner);
    let request = bytes.len().checked_sub(REQUEST).map(|start| &bytes[start..])?;
    Some(i32::from_be_bytes(request[PID].try_into().ok()?))
}

/// Records the bytes written, and accepts the TLS request.
#[derive(Clone, Default)]
struct RecordedBytes(Arc<Mutex<Vec<u8>>>);

impl AsyncRead for RecordedBytes {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // The only question is whether to encrypt; the reply is an S.
        buf.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordedBytes {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for RecordedBytes {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Encrypts nothing: the bytes never leave the process.
struct Unwrapped;

impl TlsConnect<RecordedBytes> for Unwrapped {
    type Stream = RecordedBytes;
    type Error = io::Error;
    type Future = Ready<io::Result<RecordedBytes>>;

    fn connect(self, stream: RecordedBytes) -> Self::Future {
        ready(Ok(stream))
    }
}
