//! The HTTP API, as a service of the node: which address, which tokens, and the parts of the node that it shows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use ostler_core::{TaskId, TreeProcess};
use ostler_exec::ThreadEnvironment;
use ostler_process::process_tree;
use ostler_process::supervisor::Supervisor;
use ostler_runtime::{Drained, MetricsService, NodeHandle, NodeState};
use ostler_server::{
    Audit, BoundSocket, Examiner, ListenAddress, ListenError, MAX_PROCESSES, ProcessLister, ReadinessProbe,
    Server, ServerLimits, ServerParts, Tokens,
};
use ostler_store::{Store, SystemClock};
use ostler_wire::system::{FindingView, WorkerView};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::NodePlan;
use super::metrics::CountersOfNode;
use super::service::Service;
use crate::config::{Config, Listen, StoreUrl};
use crate::doctor::{Subject, examine};
use crate::exit::{Code, refused, say};
use crate::leftovers::mark_of;
use crate::store_location::state_folder;

/// The variable that has the full token of a start.
const TOKEN: &str = "OSTLER_TOKEN";
/// How long the process that has the address may take to say who it is.
const MAX_ANSWER: Duration = Duration::from_millis(500);
/// Bytes of its answer.
const MAX_ANSWER_BYTES: u64 = 16 * 1024;
/// How long requests under way may take when the node stops.
const MAX_STOP: Duration = Duration::from_secs(5);

pub(super) struct ApiService(Server);

#[async_trait]
impl Service for ApiService {
    /// It is stopped first: streams are closed, and their readers go on at another node.
    async fn stop(self: Box<Self>, patience: Duration) -> Drained {
        self.0.stop(patience.min(MAX_STOP)).await;
        Drained::default()
    }
}

/// Where the API listens.
pub(crate) struct ApiAddress {
    pub(crate) listen: String,
    /// The file with the tokens; `None`: the token is in the environment.
    pub(crate) tokens: Option<PathBuf>,
    /// A link by which a browser logs in, once; `None`: it listens on a Unix socket, or there is no full token.
    pub(crate) login: Option<String>,
}

/// Whether a node has an API.
pub(super) enum ApiStart {
    Serve(BoundSocket),
    /// Another process has the usual address.
    Taken,
    None,
}

impl ApiStart {
    /// Whether metrics will be served.
    pub(super) const fn metrics(&self) -> MetricsService {
        match self {
            Self::Serve(_) => MetricsService::Served,
            Self::Taken | Self::None => MetricsService::Absent,
        }
    }
}

/// Binds the address before anything else is started, so that one that is taken refuses the start.
pub(super) async fn bind(plan: &NodePlan) -> anyhow::Result<ApiStart> {
    let api = &plan.config.api;
    let (address, explicit) = match &api.listen {
        Listen::Nowhere => return Ok(ApiStart::None),
        Listen::Usual => (ListenAddress::usual(), false),
        Listen::At(address) => (address.clone(), true),
    };
    if !address.is_local() && api.hosts.is_empty() && api.public_url.is_none() {
        return Err(refused(Code::BadInput, format!("listen: {}", ListenError::Hosts(address))));
    }
    if beside(plan.place.url(), "token").is_err() {
        let sentence =
            "the HTTP API keeps its tokens and its audit in your state folder: set XDG_STATE_HOME or HOME";
        if explicit {
            return Err(refused(Code::BadInput, sentence));
        }
        say(&format!("no HTTP API: {sentence}"));
        return Ok(ApiStart::None);
    }
    match address.bind().await {
        Ok(bound) => Ok(ApiStart::Serve(bound)),
        Err(ListenError::Taken(_)) if !explicit => Ok(ApiStart::Taken),
        Err(error) => Err(refused(Code::BadInput, format!("listen: {error}"))),
    }
}

impl ApiService {
    pub(super) fn start(
        plan: &NodePlan,
        bound: BoundSocket,
        store: Arc<dyn Store>,
        node: &NodeHandle,
        supervisor: &Supervisor,
    ) -> anyhow::Result<(Self, ApiAddress)> {
        let config = &plan.config;
        let (tokens, file) = tokens(plan.place.url())?;
        let audit = beside(plan.place.url(), "audit.jsonl")?;
        let audit = Audit::open(&audit).with_context(|| format!("cannot open {}", audit.display()))?;
        let parts = ServerParts {
            store,
            clock: Arc::new(SystemClock),
            ids: ostler::ids().context("cannot get random bytes from the system")?,
            bounds: plan.place.bounds(),
            limits: ServerLimits::default(),
            keep: config.keep,
            strays: config.strays,
            tokens,
            audit,
            examiner: Arc::new(NodeExaminer {
                store: plan.place.url().clone(),
                config: config.clone(),
                supervisor: supervisor.clone(),
            }),
            readiness: Arc::new(NodeReadiness(node.clone())),
            processes: Arc::new(ProcessesOfNode(node.clone())),
            counters: Arc::new(CountersOfNode { name: plan.name.clone(), node: node.clone() }),
            metrics: config.api.metrics,
            node: node.session().to_string(),
            hosts: config.api.hosts.clone(),
            base_path: config.api.base_path.clone(),
            public_url: config.api.public_url.clone(),
            trusted_proxies: config.api.trusted_proxies.clone(),
        };
        let server = Server::start(parts, bound)
            .map_err(|error| refused(Code::BadInput, format!("listen: {error}")))?;
        let login = server.login_text().filter(|_| matches!(server.address(), ListenAddress::Tcp(_)));
        let api = &config.api;
        let login = login.map(|text| {
            login_address(server.address(), api.public_url.as_deref(), &api.base_path, None, &text)
        });
        let address = ApiAddress { listen: server.address().to_string(), tokens: file, login };
        Ok((Self(server), address))
    }
}

fn tokens(store: &StoreUrl) -> anyhow::Result<(Tokens, Option<PathBuf>)> {
    let wrong = |error: ostler_server::TokenError| refused(Code::BadInput, error.to_string());
    match std::env::var(TOKEN) {
        Ok(token) if !token.is_empty() => Ok((Tokens::one(&token).map_err(wrong)?, None)),
        Ok(_) | Err(_) => {
            let path = token_file(store)?;
            Ok((Tokens::file(&path).map_err(wrong)?, Some(path)))
        }
    }
}

/// The address by which a browser logs in with the text of a link. The text is behind the `#`, so it reaches no log and no other site.
pub(crate) fn login_address(
    address: &ListenAddress,
    public_url: Option<&str>,
    base_path: &str,
    task: Option<TaskId>,
    text: &str,
) -> String {
    let root = public_url
        .map_or_else(|| format!("http://{address}{base_path}"), |url| url.trim_end_matches('/').to_owned());
    login_link(&root, task, text)
}

/// The same at the root of the pages.
pub(crate) fn login_link(root: &str, task: Option<TaskId>, text: &str) -> String {
    let to = task.map(|task| format!("?to=tasks/{task}")).unwrap_or_default();
    format!("{root}/login{to}#{text}")
}

/// A full token of the nodes of a store.
pub(crate) fn api_token(store: &StoreUrl) -> anyhow::Result<String> {
    if let Some(token) = std::env::var(TOKEN).ok().filter(|token| !token.is_empty()) {
        return Ok(token);
    }
    let path = token_file(store)?;
    let none = |why: String| {
        refused(Code::NotFound, format!("{}: {why}; a node creates it: ostler up", path.display()))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| none(error.to_string()))?;
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let full = lines
        .filter(|words| words.get(1) == Some(&"full"))
        .find_map(|words| words.get(2).map(|token| (*token).to_owned()));
    full.ok_or_else(|| none("it has no full token".to_owned()))
}

/// The file with the tokens of a node on this store.
pub(crate) fn token_file(store: &StoreUrl) -> anyhow::Result<PathBuf> {
    beside(store, "token")
}

/// A file beside the store; for a store on a server, in the user's state folder.
pub(crate) fn beside(store: &StoreUrl, ending: &str) -> anyhow::Result<PathBuf> {
    match store {
        StoreUrl::Sqlite(path) => {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{ending}"));
            Ok(name.into())
        }
        StoreUrl::Postgres(_) => {
            let folder = state_folder()?;
            Ok(folder.join(format!("api-{}.{ending}", mark_of(store).0)))
        }
    }
}

/// Says who has the usual address.
pub(super) async fn name_holder(store: &dyn Store) {
    let address = ListenAddress::usual();
    let session = tokio::time::timeout(MAX_ANSWER, ask(&address)).await.ok().flatten();
    let holder = match &session {
        None => "another program".to_owned(),
        Some(session) => {
            let nodes = store.survey().await.map(|survey| survey.nodes).unwrap_or_default();
            let known = nodes.iter().find(|node| node.session.to_string() == *session);
            known.map_or_else(
                || format!("node {session} of another store"),
                |node| format!("node \"{}\" (process {})", node.name, node.pid),
            )
        }
    };
    say(&format!(
        "no HTTP API: {address} is taken by {holder}; to have one here too, set listen to another address"
    ));
}

/// The session of the node that listens there.
async fn ask(address: &ListenAddress) -> Option<String> {
    let ListenAddress::Tcp(socket) = address else { return None };
    let mut stream = tokio::net::TcpStream::connect(socket).await.ok()?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {socket}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER_BYTES).read_to_string(&mut answer).await.ok()?;
    let body: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    body.get("service").filter(|service| *service == "ostler")?;
    Some(body.get("node")?.as_str()?.to_owned())
}

/// `ostler doctor`, for this node.
struct NodeExaminer {
    store: StoreUrl,
    config: Config,
    supervisor: Supervisor,
}

#[async_trait]
impl Examiner for NodeExaminer {
    async fn examine(&self) -> Vec<FindingView> {
        examine(Subject {
            store: Some(self.store.clone()),
            config: Some(Ok(self.config.clone())),
            containment: Some(Ok(self.supervisor.containment())),
            threads: Some(ThreadEnvironment::here()),
            clock: Arc::new(SystemClock),
        })
        .await
    }
}

struct NodeReadiness(NodeHandle);

struct ProcessesOfNode(NodeHandle);

impl ProcessLister for ProcessesOfNode {
    fn processes(&self, worker: &WorkerView) -> Vec<TreeProcess> {
        // A pid of another machine means nothing here.
        let pid = worker.pid.filter(|_| worker.node == self.0.session().to_string());
        pid.map_or_else(Vec::new, |pid| process_tree(pid, MAX_PROCESSES))
    }
}

impl ReadinessProbe for NodeReadiness {
    fn trouble(&self) -> Option<String> {
        let state = *self.0.state().borrow();
        match state {
            NodeState::Running => None,
            NodeState::Draining => Some("the node is draining".to_owned()),
            NodeState::Fenced => Some("the node has lost its lease, and rejoins".to_owned()),
            NodeState::Ended => Some("the node has ended".to_owned()),
        }
    }
}
