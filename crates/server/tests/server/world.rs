//! A server on loopback with a real store, and a small HTTP client that sends exactly what a test says.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{
    ErrorClass, EventBody, Failure, Id, Level, LogStream, Outcome, SessionId, TaskId, Timestamp, TreeProcess,
};
use ostler_server::{
    Audit, Examiner, ListenAddress, MetricsAccess, NodeCounters, NodeCounts, ProcessLister, ReadinessProbe,
    Server, ServerLimits, ServerParts, Tokens,
};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Fenced, Kinds, Ran, Report, Retention};
use ostler_store::{Bounds, Clock, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempSchema, TempStore};
use ostler_wire::system::{FindingView, WorkerView};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

pub(crate) const FULL: &str = "full-token-of-the-tests";
pub(crate) const READ: &str = "read-token-of-the-tests";
pub(crate) const QUEUE: &str = "mail";

struct Content;

#[async_trait]
impl Examiner for Content {
    async fn examine(&self) -> Vec<FindingView> {
        vec![
            FindingView::warning(
                "queue-paused",
                "queue \"reports\" is paused, and 2 tasks wait: the database is moved tonight",
                "To resume it: ostler resume reports",
            ),
            FindingView::info("test", "a sentence", "advice"),
        ]
    }
}

impl ProcessLister for Content {
    fn processes(&self, worker: &WorkerView) -> Vec<TreeProcess> {
        let process = |number: u32, depth, name: &str| TreeProcess {
            pid: worker.pid.expect("the worker is a process") + number,
            depth,
            name: name.to_owned(),
            memory_bytes: u64::from(number + 1) << 20,
        };
        vec![process(0, 0, "python3"), process(1, 1, "convert"), process(2, 2, "gs"), process(3, 1, "curl")]
    }
}

impl ReadinessProbe for Content {
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// The clock of this machine, which a test sets ahead.
#[derive(Default)]
pub(crate) struct AheadClock {
    ahead_ms: AtomicU64,
}

impl AheadClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead_ms.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed))
    }
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(self.ahead())
    }

    fn uptime(&self) -> Duration {
        SystemClock.uptime() + self.ahead()
    }
}

/// A server, with what nodes do to its store.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) server: Option<Server>,
    pub(crate) address: String,
    pub(crate) ids: Ids,
    pub(crate) place: Arc<StorePlace>,
    /// The clock of the server, not of the store.
    pub(crate) clock: Arc<AheadClock>,
    /// What the node of the server did.
    pub(crate) counts: Arc<KnownCounts>,
}

/// Where the store of a world is: a file, or a schema of a server.
pub(crate) enum StorePlace {
    File(TempStore),
    Server(TempSchema),
}

impl StorePlace {
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::File(files) => files.folder(),
            Self::Server(schema) => schema.folder(),
        }
    }

    /// What another process opens the store by.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::File(files) => files.path().display().to_string(),
            Self::Server(schema) => schema.url().to_owned(),
        }
    }

    async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::File(files) => files.second(),
            Self::Server(schema) => schema.second().await,
        }
    }
}

/// Makes two tests of each function: one on SQLite, one on PostgreSQL.
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_file() {
                super::$test(crate::world::World::new().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_a_server() {
                super::$test(crate::world::World::on_server().await).await;
            }
        })+
    };
}
pub(crate) use on_each_store;

/// Counts that a test sets.
pub(crate) struct KnownCounts(pub(crate) Mutex<NodeCounts>);

impl NodeCounters for KnownCounts {
    fn counts(&self) -> NodeCounts {
        self.0.lock().expect("no test panics with it").clone()
    }
}

/// A node that has done nothing.
fn idle(node: String, session: SessionId) -> NodeCounts {
    NodeCounts {
        node,
        session,
        running: 0,
        lanes: Vec::new(),
        pools: Vec::new(),
        heartbeats: 0,
        store_errors: 0,
        store_outages: 0,
        fenced: 0,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::serving(Arc::new(StorePlace::File(TempStore::real())), MetricsAccess::Token).await
    }

    /// A server whose store is on PostgreSQL.
    pub(crate) async fn on_server() -> Self {
        Self::serving(Arc::new(StorePlace::Server(TempSchema::make())), MetricsAccess::Token).await
    }

    /// Another server on the same store.
    pub(crate) async fn beside(&self) -> Self {
        Self::serving(Arc::clone(&self.place), MetricsAccess::Token).await
    }

    /// A server on this store, with metrics for these readers.
    pub(crate) async fn serving(place: Arc<StorePlace>, metrics: MetricsAccess) -> Self {
        Self::at(place, metrics, 0, Some("https://ostler.example.org/ostler")).await
    }

    /// A server that a browser reaches without a proxy, at this port.
    pub(crate) async fn for_browser(place: Arc<StorePlace>, port: u16) -> Self {
        Self::at(place, MetricsAccess::Token, port, None).await
    }

    /// A server with other limits.
    pub(crate) async fn limited(limits: ServerLimits) -> Self {
        let place = Arc::new(StorePlace::File(TempStore::real()));
        Self::with(place, MetricsAccess::Token, 0, Some("https://ostler.example.org/ostler"), limits).await
    }

    async fn at(place: Arc<StorePlace>, metrics: MetricsAccess, port: u16, public_url: Option<&str>) -> Self {
        Self::with(place, metrics, port, public_url, ServerLimits::default()).await
    }

    async fn with(
        place: Arc<StorePlace>,
        metrics: MetricsAccess,
        port: u16,
        public_url: Option<&str>,
        limits: ServerLimits,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let store = place.open().await;
        let (parts, counts) = parts(Arc::clone(&store), place.folder(), number, metrics);
        let clock = Arc::<AheadClock>::default();
        let parts = ServerParts {
            clock: Arc::<AheadClock>::clone(&clock),
            limits,
            base_path: if public_url.is_some() { parts.base_path } else { String::new() },
            public_url: public_url.map(str::to_owned),
            ..parts
        };
        let bound = ListenAddress::Tcp(([127, 0, 0, 1], port).into()).bind().await.expect("it listens");
        let server = Server::start(parts, bound).expect("it starts");
        let address = server.address().to_string();
        Self { store, server: Some(server), address, ids: Ids::new(number), place, clock, counts }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.address).await
    }

    /// Sends one request with the full token.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Reply {
        self.client().await.ask(method, path, &[("authorization", &format!("Bearer {FULL}"))], body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, body).await
    }

    /// Puts something there, and expects that it is taken.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        let reply = self.ask("PUT", path, &body.to_string()).await;
        assert!((200..300).contains(&reply.status), "{path}: {reply:?}");
        reply
    }

    pub(crate) async fn node(&self) -> SessionId {
        let node = self.ids.new_session("runner", Duration::from_secs(600));
        let session = node.id;
        assert_eq!(self.store.join(node).await, Ok(Fenced::Recorded));
        session
    }

    pub(crate) async fn enqueue(&self, count: usize) -> Vec<TaskId> {
        let tasks = self.ids.new_tasks(count, QUEUE, "send");
        let ids = tasks.iter().map(|task| task.id).collect();
        for some in tasks.chunks(ostler_store::MAX_BATCH) {
            self.store.enqueue(some.to_vec()).await.expect("they are accepted");
        }
        ids
    }

    pub(crate) async fn claim(&self, session: SessionId, limit: usize) -> Vec<Claimed> {
        let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit };
        match self.store.claim(claim).await.expect("a claim is answered") {
            ClaimAnswer::Tasks { tasks, .. } => tasks,
            other @ ClaimAnswer::SessionEnded => panic!("{other:?}"),
        }
    }

    pub(crate) async fn finish(&self, claimed: Vec<Claimed>, outcome: &Outcome) {
        let report = |claimed: Claimed| Report {
            lease: claimed.lease,
            ran: Some(Ran { worker: self.ids.worker(), took: Duration::from_millis(7) }),
            outcome: outcome.clone(),
            output: (*outcome == Outcome::Success).then(|| r#""done""#.to_owned()),
            reading: None,
        };
        self.store.finish(claimed.into_iter().map(report).collect()).await.expect("they are reported");
    }

    /// Fails waiting tasks for good.
    pub(crate) async fn fail(&self, count: usize) {
        /// Tasks of one session: it does not renew, and must not expire.
        const OF_A_SESSION: usize = 5_000;
        let failure = Failure::new(ErrorClass::Permanent, "no such host");
        let mut left = count;
        while left > 0 {
            let (session, last) = (self.node().await, left.saturating_sub(OF_A_SESSION));
            while left > last {
                let claimed = self.claim(session, (left - last).min(1_000)).await;
                assert!(!claimed.is_empty(), "{left} tasks wait");
                left -= claimed.len();
                self.finish(claimed, &Outcome::Failed(failure.clone())).await;
            }
            self.store.leave(session).await.expect("it leaves");
        }
    }
}

/// What a server is made of. Each has a number of its own; those with one store write one audit, as nodes of one machine do.
pub(crate) fn parts(
    store: Arc<dyn Store>,
    folder: &Path,
    number: u64,
    metrics: MetricsAccess,
) -> (ServerParts, Arc<KnownCounts>) {
    let tokens = folder.join("tokens");
    if !tokens.exists() {
        std::fs::write(&tokens, format!("# tests\nowner full {FULL}\nviewer read {READ}\n"))
            .expect("it is written");
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("it is private");
    }
    let ids = Arc::new(Ids::new(1_000 + number));
    let counts = Arc::new(KnownCounts(Mutex::new(idle(format!("node-{number}"), ids.session()))));
    let parts = ServerParts {
        store,
        clock: Arc::new(SystemClock),
        ids: Arc::new(move || -> Id { ids.task().0 }),
        bounds: Bounds::default(),
        limits: ServerLimits::default(),
        keep: Retention::default(),
        strays: Duration::from_secs(3_600),
        tokens: Tokens::file(&tokens).expect("they are read"),
        audit: Audit::open(&folder.join("audit.jsonl")).expect("it opens"),
        examiner: Arc::new(Content),
        readiness: Arc::new(Content),
        processes: Arc::new(Content),
        counters: Arc::<KnownCounts>::clone(&counts),
        metrics,
        node: "01JC8Z0Q4M9T7N3V5X1B2D6F8H".to_owned(),
        hosts: Vec::new(),
        base_path: "/ostler".to_owned(),
        public_url: Some("https://ostler.example.org/ostler".to_owned()),
        trusted_proxies: vec!["127.0.0.1/32".parse().expect("a network")],
    };
    (parts, counts)
}

/// A log line.
pub(crate) fn line(text: String) -> EventBody {
    EventBody::Log { level: Level::Info, stream: LogStream::Stderr, text }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The code of an error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// A connection that is kept.
pub(crate) struct Client {
    address: String,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self::over(TcpStream::connect(address).await.expect("it connects"), address)
    }

    /// A client on this connection, for the server at this address.
    pub(crate) fn over(stream: TcpStream, address: &str) -> Self {
        let (reader, writer) = stream.into_split();
        Self { address: address.to_owned(), reader: BufReader::new(reader), writer }
    }

    /// Reads the head of an answer. Its status; `None`: the connection was closed before its end.
    pub(crate) async fn status(&mut self) -> Option<u16> {
        let mut status = None;
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(MAX_WAIT, self.reader.read_line(&mut line)).await;
            let read = read.expect("it is answered or closed").unwrap_or(0);
            if read == 0 || !line.ends_with('\n') {
                return None;
            }
            if line.trim_end().is_empty() {
                return status;
            }
            status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        }
    }

    /// Sends a request with the right Host, and reads the whole answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let address = self.address.clone();
        let mut all = vec![("host", address.as_str())];
        all.extend(headers);
        self.raw(method, path, &all, body).await;
        tokio::time::timeout(MAX_WAIT, self.reply()).await.expect("it is answered")
    }

    /// Sends exactly this.
    pub(crate) async fn raw(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                text.push_str("content-type: application/json\r\n");
            }
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.send(&text).await;
    }

    /// Sends these bytes.
    pub(crate) async fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.expect("it is sent");
    }

    /// Reads the head of an answer.
    pub(crate) async fn head(&mut self) -> Reply {
        let mut reply = Reply { status: 0, headers: Vec::new(), body: String::new() };
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).await.expect("it can be read");
            assert!(read > 0, "the connection ended before the head: {reply:?}");
            let line = line.trim_end();
            if line.is_empty() {
                return reply;
            }
            match line.split_once(": ") {
                Some((name, value)) if reply.status != 0 => {
                    reply.headers.push((name.to_ascii_lowercase(), value.to_owned()));
                }
                _ => {
                    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
                    reply.status = status.unwrap_or_else(|| panic!("no status: {line}"));
                }
            }
        }
    }

    async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        let bytes = match (reply.header("content-length"), reply.header("transfer-encoding")) {
            (Some(length), _) => {
                let mut bytes = vec![0; length.parse().expect("a length")];
                self.reader.read_exact(&mut bytes).await.expect("the body is whole");
                bytes
            }
            (None, Some(_)) => {
                let mut all = Vec::new();
                while let Some(piece) = self.chunk().await {
                    all.extend(piece);
                }
                all
            }
            (None, None) => Vec::new(),
        };
        reply.body = String::from_utf8_lossy(&bytes).into_owned();
        reply
    }

    /// The next chunk of a stream; `None`: it has ended, or the connection was closed.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut size = String::new();
        self.reader.read_line(&mut size).await.ok().filter(|read| *read > 0)?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        let mut bytes = vec![0; size + 2];
        self.reader.read_exact(&mut bytes).await.ok()?;
        bytes.truncate(size);
        (size > 0).then_some(bytes)
    }

    /// The next server-sent event, without comments.
    pub(crate) async fn event(&mut self, rest: &mut String) -> Option<Sent> {
        loop {
            if let Some((event, left)) =
                rest.split_once("\n\n").map(|(one, two)| (one.to_owned(), two.to_owned()))
            {
                *rest = left;
                let field = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                        .map(str::to_owned)
                };
                if let Some(data) = field("data") {
                    return Some(Sent { id: field("id"), name: field("event"), data });
                }
                continue;
            }
            let piece = tokio::time::timeout(MAX_WAIT, self.chunk()).await.expect("something is sent")?;
            rest.push_str(&String::from_utf8_lossy(&piece));
        }
    }
}

/// A server-sent event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}
