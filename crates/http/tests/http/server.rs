//! A server that answers every connection in the same way, and keeps what it was sent.

use std::sync::Arc;

use ostler_http::{AddressRules, HttpClient, Proxies, Uri};
use ostler_testkit::MAX_WAIT;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};

/// Requests that are kept; more than any test sends.
const MAX_REQUESTS: usize = 64;

/// What a server does with a connection, after it has read the request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these pieces, and closes.
    Pieces(Vec<String>),
    /// Sends these, and then nothing, with the connection open.
    ThenSilence(Vec<String>),
    /// Sends this head, and then bytes without end.
    Endless(String),
}

pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Mutex<mpsc::Receiver<String>>,
}

impl Server {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::with(reply, |stream| async { Some(stream) }).await
    }

    /// A server whose connections pass through this first, such as TLS.
    pub(crate) async fn with<S, F>(
        reply: Reply,
        wrap: impl Fn(tokio::net::TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (sent, requests) = mpsc::channel(MAX_REQUESTS);
        let wrap = Arc::new(wrap);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (wrapped, reply, sent) = (wrap(stream), reply.clone(), sent.clone());
                tokio::spawn(async move {
                    if let Some(mut stream) = wrapped.await {
                        let _ = sent.send(read_request(&mut stream).await).await;
                        answer(stream, reply).await;
                    }
                });
            }
        });
        Self { port, requests: Mutex::new(requests) }
    }

    pub(crate) fn uri(&self, path: &str) -> Uri {
        format!("http://127.0.0.1:{}{path}", self.port).parse().expect("an address")
    }

    /// The next request: head and body as they came.
    pub(crate) async fn request(&self) -> String {
        let mut requests = self.requests.lock().await;
        let next = tokio::time::timeout(MAX_WAIT, requests.recv());
        next.await.expect("a request comes").expect("the server runs")
    }
}

pub(crate) fn pieces(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|piece| (*piece).to_owned()).collect()
}

/// A client without rules and proxies.
pub(crate) fn client() -> HttpClient {
    HttpClient::new(AddressRules::Any, Proxies::None)
}

pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    let mut buffer = vec![0; 4_096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if read == 0 {
            return text;
        }
    }
}

async fn answer(mut stream: impl AsyncWrite + AsyncRead + Unpin, reply: Reply) {
    let (pieces, endless, silent) = match reply {
        Reply::Pieces(pieces) => (pieces, false, false),
        Reply::ThenSilence(pieces) => (pieces, false, true),
        Reply::Endless(head) => (vec![head], true, false),
    };
    for piece in pieces {
        if stream.write_all(piece.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
    // Until the client closes.
    while endless && stream.write_all(&[b'x'; 8_192]).await.is_ok() {}
    if silent {
        let _ = stream.read(&mut [0]).await;
    }
    let _ = stream.shutdown().await;
}
