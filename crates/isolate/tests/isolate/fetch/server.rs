//! A server on loopback that answers by path, and a canary that counts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ostler_testkit::MAX_WAIT;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify, mpsc, watch};

/// Requests that are kept; more than any test sends.
const MAX_REQUESTS: usize = 1_024;
/// Between two bytes of a drip.
const DRIP: Duration = Duration::from_millis(2);

/// What a server sends after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// This, and closes.
    Whole(Vec<u8>),
    /// This, and then nothing.
    Open(Vec<u8>),
    /// This, and then byte after byte.
    Drip(Vec<u8>),
    /// The first part, and the second when the test says so.
    Released(Vec<u8>, Arc<Notify>, Vec<u8>),
}

impl Reply {
    pub(crate) fn text(body: &str) -> Self {
        Self::with("200 OK", &[], body.as_bytes())
    }

    pub(crate) fn redirect(status: u16, location: &str) -> Self {
        Self::with(&format!("{status} Redirect"), &[("location", location)], b"moved")
    }

    pub(crate) fn with(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Self::Whole([head.as_bytes(), body].concat())
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Mutex<mpsc::Receiver<String>>,
    /// Connections that the client has closed.
    gone: watch::Sender<usize>,
}

impl Server {
    /// A server that answers each request by its text.
    pub(crate) async fn start(route: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::wrapped(route, |stream| async { Some(stream) }).await
    }

    /// A server that answers every request alike.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    /// A server whose connections pass through this first, such as TLS.
    pub(crate) async fn wrapped<S, F>(
        route: impl Fn(&str) -> Reply + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (sent, requests) = mpsc::channel(MAX_REQUESTS);
        let gone = watch::Sender::new(0);
        let (route, counted) = (Arc::new(route), gone.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (wrapped, route, sent) = (wrap(stream), Arc::clone(&route), sent.clone());
                let counted = counted.clone();
                tokio::spawn(async move {
                    if let Some(mut stream) = wrapped.await {
                        let request = read_request(&mut stream).await;
                        let reply = route(&request);
                        let _ = sent.send(request).await;
                        answer(&mut stream, reply).await;
                    }
                    counted.send_modify(|count| *count += 1);
                });
            }
        });
        Self { address, requests: Mutex::new(requests), gone }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// This server as an entry of rules.
    pub(crate) fn entry(&self) -> String {
        self.address.to_string()
    }

    /// The next request: head and body as they came.
    pub(crate) async fn request(&self) -> String {
        let mut requests = self.requests.lock().await;
        let next = tokio::time::timeout(MAX_WAIT, requests.recv());
        next.await.expect("a request comes").expect("the server runs")
    }

    /// Waits until the client has closed so many connections.
    pub(crate) async fn gone(&self, count: usize) {
        let mut gone = self.gone.subscribe();
        let closed = tokio::time::timeout(MAX_WAIT, gone.wait_for(|gone| *gone >= count));
        closed.await.expect("the client closes").expect("the server runs");
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = String::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
            if body.len() >= head.lines().find_map(length).unwrap_or(0) {
                return text;
            }
        }
        if read == 0 {
            return text;
        }
    }
}

/// Answers, and returns when the client has closed the connection.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), reply: Reply) {
    match reply {
        Reply::Whole(bytes) => {
            send(stream, &bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Open(bytes) => {
            send(stream, &bytes).await;
        }
        Reply::Drip(head) => {
            send(stream, &head).await;
            while send(stream, b"x").await {
                tokio::time::sleep(DRIP).await;
            }
        }
        Reply::Released(first, release, second) => {
            send(stream, &first).await;
            release.notified().await;
            send(stream, &second).await;
            let _ = stream.shutdown().await;
        }
    }
    while stream.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {}
}

/// Sends bytes at once. False: the client has closed.
async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> bool {
    stream.write_all(bytes).await.is_ok() && stream.flush().await.is_ok()
}

/// Listens, and counts connections. It stands for a service inside.
pub(crate) struct Canary {
    pub(crate) address: SocketAddr,
    /// The other ends of the connections.
    peers: watch::Sender<Vec<SocketAddr>>,
}

impl Canary {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let peers = watch::Sender::new(Vec::new());
        let counted = peers.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, peer)) = listener.accept().await {
                counted.send_modify(|peers: &mut Vec<SocketAddr>| peers.push(peer));
                // One that is reached answers, so that a test fails for the right reason.
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await;
            }
        });
        Self { address, peers }
    }

    /// How many connections there were. They are accepted in order: after one of ours, all earlier ones are counted.
    pub(crate) async fn connections(&self) -> usize {
        let mut counted = self.peers.subscribe();
        let own = TcpStream::connect(self.address).await.expect("it listens");
        let own = own.local_addr().expect("it is connected");
        let seen = tokio::time::timeout(MAX_WAIT, counted.wait_for(|peers| peers.contains(&own)));
        let count = seen.await.expect("it accepts").expect("it runs").len();
        self.peers.send_modify(|peers| peers.retain(|peer| *peer != own));
        count - 1
    }
}
