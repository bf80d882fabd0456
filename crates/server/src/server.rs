//! The server: accepts connections within bounds, serves them, and stops politely: it takes no new ones, closes its streams, and lets
//! requests under way end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ostler_core::{Id, TreeProcess};
use ostler_store::calls::Retention;
use ostler_store::{Bounds, Clock, Store};
use ostler_wire::system::{FindingView, WorkerView};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::bulk::BulkActions;
use crate::call::App;
use crate::dispatch::{ClientConnection, Dispatcher};
use crate::guard::{CookieTransport, Guard, GuardPolicy};
use crate::listen::{BoundSocket, ListenAddress, ListenError, names};
use crate::metrics::{Metrics, MetricsAccess, NodeCounters};
use crate::overview_feed::OverviewFeed;
use crate::router::Router;
use crate::sessions::BrowserSessions;
use crate::task_events::TaskStreams;
use crate::tokens::{Tokens, random_text};

/// Bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// The pause after a failed accept: there may be no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Finds problems of the node, as `ostler doctor` does.
#[async_trait]
pub trait Examiner: Send + Sync {
    async fn examine(&self) -> Vec<FindingView>;
}

/// Whether the node takes work.
pub trait ReadinessProbe: Send + Sync {
    /// `None`: it does; otherwise why not.
    fn trouble(&self) -> Option<String>;
}

/// Lists the processes of workers.
pub trait ProcessLister: Send + Sync {
    /// The process of a worker and those that it has started, each below its parent, at most [`MAX_PROCESSES`]; empty if another node has
    /// it, or it is gone.
    fn processes(&self, worker: &WorkerView) -> Vec<TreeProcess>;
}

/// The most processes of a worker that are shown.
pub const MAX_PROCESSES: usize = 50;

/// What a server bears at once, and how long it waits for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at once. Further ones wait until they are accepted.
    pub connections: usize,
    /// Streams at once. Further ones are refused.
    pub streams: usize,
    /// How long the head of a request may take, and a connection may be idle.
    pub head_time: Duration,
    /// How long the body of a request may take.
    pub body_time: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 2_048,
            streams: 1_024,
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(60),
        }
    }
}

/// What a server is made of.
pub struct ServerParts {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Makes ids for new tasks.
    pub ids: Arc<dyn Fn() -> Id + Send + Sync>,
    pub bounds: Bounds,
    pub limits: ServerLimits,
    /// How long `prune` keeps finished tasks, and rows without a task.
    pub keep: Retention,
    pub strays: Duration,
    pub tokens: Tokens,
    pub audit: Audit,
    pub examiner: Arc<dyn Examiner>,
    pub readiness: Arc<dyn ReadinessProbe>,
    pub processes: Arc<dyn ProcessLister>,
    /// What the node did, for its metrics, and who may read them.
    pub counters: Arc<dyn NodeCounters>,
    pub metrics: MetricsAccess,
    /// The node's session.
    pub node: String,
    /// Names by which the server is called, besides its address.
    pub hosts: Vec<String>,
    /// The path before all paths; empty: none.
    pub base_path: String,
    /// The address by which browsers reach the server, such as `https://ostler.example.org/tasks`.
    pub public_url: Option<String>,
    pub trusted_proxies: Vec<ipnet::IpNet>,
}

/// A running server.
pub struct Server {
    address: ListenAddress,
    app: Arc<App>,
    stopping: CancellationToken,
    connections: TaskTracker,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Serves on a bound socket.
    ///
    /// # Errors
    /// When the address can be reached from elsewhere, and there is no list of hosts.
    pub fn start(parts: ServerParts, bound: BoundSocket) -> Result<Self, ListenError> {
        let address =
            bound.address().map_err(|error| ListenError::Io { address: ListenAddress::usual(), error })?;
        if !address.is_local() && parts.hosts.is_empty() && parts.public_url.is_none() {
            return Err(ListenError::Hosts(address));
        }
        let (stopping, connections) = (CancellationToken::new(), TaskTracker::new());
        let app = Arc::new(app(parts, &address, stopping.clone()));
        let dispatcher = Arc::new(Dispatcher {
            app: Arc::clone(&app),
            router: Router::new(),
            wrong_tokens: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(bound, dispatcher, stopping.clone(), connections.clone()));
        Ok(Self { address, app, stopping, connections, accepting })
    }

    /// The address with the real port.
    #[must_use]
    pub const fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// A one-time text with which a browser logs in: `http://ADDRESS/login#TEXT`.
    #[must_use]
    pub fn login_text(&self) -> Option<String> {
        self.app.tokens.owner().map(|owner| self.app.sessions.link(owner))
    }

    /// The watchers of tasks that run now: none if there is no reader.
    #[must_use]
    pub fn task_watchers(&self) -> usize {
        self.app.streams.watchers()
    }

    /// The streams that are open now.
    #[must_use]
    pub fn streams_open(&self) -> usize {
        self.app.limits.streams - self.app.stream_places.available_permits()
    }

    /// Stops: no new connections, streams are closed, and requests under way have `patience` to end.
    pub async fn stop(self, patience: Duration) {
        self.stopping.cancel();
        let _ = self.accepting.await;
        self.connections.close();
        let _ = tokio::time::timeout(patience, self.connections.wait()).await;
        if let ListenAddress::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The parts as operations see them.
pub(crate) fn app(parts: ServerParts, address: &ListenAddress, stopping: CancellationToken) -> App {
    let (mut hosts, mut origins) = names(address, &parts.hosts);
    let public = parts.public_url.as_deref().and_then(|url| url.split_once("://"));
    if let Some((scheme, rest)) = public {
        let host = rest.split('/').next().unwrap_or_default().to_ascii_lowercase();
        origins.push(format!("{scheme}://{host}"));
        hosts.push(host);
    }
    let port = match address {
        ListenAddress::Tcp(socket) => socket.port().to_string(),
        ListenAddress::Unix(_) => "unix".to_owned(),
    };
    let policy = GuardPolicy {
        hosts,
        origins,
        base_path: parts.base_path,
        trusted_proxies: parts.trusted_proxies,
        metrics: parts.metrics,
        // Cookies know no ports: two nodes of one machine would overwrite each other's.
        cookie: format!("ostler-{port}"),
        cookie_transport: match public {
            Some(("https", _)) => CookieTransport::TlsOnly,
            Some(_) | None => CookieTransport::Any,
        },
    };
    App {
        streams: TaskStreams::new(Arc::clone(&parts.store)),
        overview: OverviewFeed::new(
            Arc::clone(&parts.store),
            Arc::clone(&parts.clock),
            random_text()[..12].to_owned(),
        ),
        bulk: Arc::new(BulkActions::default()),
        metrics: Metrics::new(Arc::clone(&parts.store), parts.counters),
        page: crate::page::PageState::default(),
        store: parts.store,
        clock: parts.clock,
        ids: parts.ids,
        bounds: parts.bounds,
        limits: parts.limits,
        keep: parts.keep,
        strays: parts.strays,
        guard: Guard { policy },
        tokens: parts.tokens,
        sessions: BrowserSessions::default(),
        audit: parts.audit,
        examiner: parts.examiner,
        readiness: parts.readiness,
        processes: parts.processes,
        node: parts.node,
        stream_places: Arc::new(Semaphore::new(parts.limits.streams)),
        keyed: tokio::sync::Mutex::new(()),
        stopping,
    }
}

async fn accept(
    bound: BoundSocket,
    dispatcher: Arc<Dispatcher>,
    stopping: CancellationToken,
    connections: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(dispatcher.app.limits.connections));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place.expect("the semaphore is never closed"),
            () = stopping.cancelled() => return,
        };
        let accepted = tokio::select! {
            accepted = accept_one(&bound) => accepted,
            () = stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let serving = serve(stream, peer, Arc::clone(&dispatcher), stopping.clone(), place);
                connections.spawn(serving);
            }
            Err(error) => {
                tracing::warn!(target: "ostler::server", "a connection cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A stream of either kind.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

async fn accept_one(bound: &BoundSocket) -> io::Result<(Box<dyn ByteStream>, Option<IpAddr>)> {
    match bound {
        BoundSocket::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            let _ = stream.set_nodelay(true);
            Ok((Box::new(stream), Some(peer.ip().to_canonical())))
        }
        BoundSocket::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            Ok((Box::new(stream), None))
        }
    }
}

async fn serve(
    stream: Box<dyn ByteStream>,
    peer: Option<IpAddr>,
    dispatcher: Arc<Dispatcher>,
    stopping: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    let close = CancellationToken::new();
    let head_time = dispatcher.app.limits.head_time;
    let closed = close.clone();
    let service = service_fn(move |request| {
        let (dispatcher, connection) =
            (Arc::clone(&dispatcher), ClientConnection { peer, close: close.clone() });
        async move { Ok::<_, Infallible>(dispatcher.answer(request, connection).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_time)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut asked = false;
    loop {
        tokio::select! {
            // A broken connection is the client's affair.
            _ = connection.as_mut() => return,
            () = closed.cancelled() => return,
            () = stopping.cancelled(), if !asked => {
                asked = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
