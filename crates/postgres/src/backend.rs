//! Who a connection is at the server. A node's death is known by the end of one connection, so that it has to be known which one that
//! is: the server's process with its number and its start, under one start of the server.

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

/// Bytes of a cancel request: its length, its code, the number of the process, and a secret.
const REQUEST: usize = 16;
/// Where in it the number of the process stands.
const PID: std::ops::Range<usize> = 8..12;

/// The server's end of a connection. Moments are in microseconds, as exact as the server has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// The number of the process. It is used again by others later.
    pub(crate) pid: i32,
    /// When it was started.
    pub(crate) since: i64,
    /// When the server was.
    pub(crate) server: i64,
}

impl Backend {
    /// The server's end of this connection. `None`: there is a pooler between, whose number was told when the connection was opened,
    /// and whose connections to the server tell nothing of us.
    pub(crate) async fn of(conn: &Conn, told: Option<i32>) -> Sql<Option<Self>> {
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
        Ok(Some(backend).filter(|backend| Some(backend.pid) == told))
    }
}

/// The number of the process that whoever answered has told, be it the server or a pooler. A client only says it in a
/// request to cancel: so one is written, and read instead of being sent.
pub(crate) async fn told_pid(client: &Client) -> Option<i32> {
    let written = RecordedBytes::default();
    client.cancel_token().cancel_query_raw(written.clone(), Unwrapped).await.ok()?;
    let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner);
    let request = bytes.len().checked_sub(REQUEST).map(|start| &bytes[start..])?;
    Some(i32::from_be_bytes(request[PID].try_into().ok()?))
}

/// Keeps what is written, and agrees to whatever is asked.
#[derive(Clone, Default)]
struct RecordedBytes(Arc<Mutex<Vec<u8>>>);

impl AsyncRead for RecordedBytes {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // The one thing that is asked is whether it is to be encrypted, and the answer is an S.
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

/// Encrypts nothing: what is written stays here.
struct Unwrapped;

impl TlsConnect<RecordedBytes> for Unwrapped {
    type Stream = RecordedBytes;
    type Error = io::Error;
    type Future = Ready<io::Result<RecordedBytes>>;

    fn connect(self, stream: RecordedBytes) -> Self::Future {
        ready(Ok(stream))
    }
}
