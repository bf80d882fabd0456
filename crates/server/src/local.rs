//! Operations of the table without HTTP: a program that opened a store runs them in its own process, as `ostler mcp` does.
//!
//! The way of a call is that of a request, from the guard on: the same permission at the operation, the same time, the same audit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use ostler_core::{Id, SessionId, TreeProcess};
use ostler_store::calls::Retention;
use ostler_store::{Bounds, Clock, Store};
use ostler_wire::system::WorkerView;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, RequestError};
use crate::audit::Audit;
use crate::call::{ApiCall, App};
use crate::dispatch::run_operation;
use crate::guard::{AllowedCaller, ApiRefusal, Caller, Credential, RequestFacts};
use crate::listen::ListenAddress;
use crate::metrics::{MetricsAccess, NodeCounters, NodeCounts};
use crate::operations::{Answers, Operation};
use crate::server::{Examiner, ProcessLister, ReadinessProbe, ServerLimits, ServerParts, app};
use crate::tokens::{Access, Tokens};

/// What operations need of the program.
pub struct LocalParts {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    /// Makes ids for new tasks.
    pub ids: Arc<dyn Fn() -> Id + Send + Sync>,
    pub bounds: Bounds,
    /// How long `prune` keeps finished tasks, and rows without a task.
    pub keep: Retention,
    pub strays: Duration,
    pub audit: Audit,
    pub examiner: Arc<dyn Examiner>,
    /// The name in the audit.
    pub who: &'static str,
    /// What may be done.
    pub access: Access,
}

/// Runs operations for one caller.
pub struct LocalApi {
    app: Arc<App>,
    caller: Caller,
}

/// What is asked of an operation.
#[derive(Debug, Default)]
pub(crate) struct LocalRequest {
    pub(crate) params: Vec<(String, String)>,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl LocalApi {
    #[must_use]
    pub fn new(parts: LocalParts) -> Self {
        let LocalParts { store, clock, ids, bounds, keep, strays, audit, examiner, who, access } = parts;
        let nowhere = Arc::new(NoNode { session: SessionId(ids()) });
        let parts = ServerParts {
            store,
            clock,
            ids,
            bounds,
            limits: ServerLimits::default(),
            keep,
            strays,
            tokens: Tokens::none(),
            audit,
            examiner,
            readiness: Arc::clone(&nowhere) as Arc<dyn ReadinessProbe>,
            processes: Arc::clone(&nowhere) as Arc<dyn ProcessLister>,
            counters: nowhere,
            metrics: MetricsAccess::Token,
            node: String::new(),
            hosts: Vec::new(),
            base_path: String::new(),
            public_url: None,
            trusted_proxies: Vec::new(),
        };
        // As on a Unix socket, there is no Host and no browser.
        let address = ListenAddress::Unix("/".into());
        let app = Arc::new(app(parts, &address, CancellationToken::new()));
        Self { app, caller: Caller { name: who.to_owned(), access } }
    }

    pub(crate) const fn access(&self) -> Access {
        self.caller.access
    }

    /// Runs an operation, if the caller may.
    pub(crate) async fn run(
        &self,
        operation: &'static Operation,
        request: LocalRequest,
    ) -> Result<Answer, RequestError> {
        match operation.answers {
            Answers::Json(_) | Answers::Lines(_) => {}
            Answers::Events(_)
            | Answers::File
            | Answers::OpenMetrics
            | Answers::Nothing
            | Answers::Page
            | Answers::PageFile => {
                return Err(RequestError::invalid(format!("{} is for HTTP only", operation.id)));
            }
        }
        let credential = Credential::Bearer(self.caller.clone());
        let admitted = self.app.guard.admit(operation, &RequestFacts::default(), &credential);
        let caller = match admitted.map_err(ApiRefusal::error)? {
            AllowedCaller::Anyone => None,
            AllowedCaller::By(caller) => Some(caller),
        };
        let target = format!("{} {}", operation.method.name(), path(operation, &request.params));
        let LocalRequest { params, query, headers, body } = request;
        let connection = CancellationToken::new();
        let app = Arc::clone(&self.app);
        let call = ApiCall { app, params, query, headers, body, caller, peer: None, connection };
        run_operation(operation, call, target).await
    }
}

/// The path of an operation with its parameters, for the audit.
fn path(operation: &Operation, params: &[(String, String)]) -> String {
    params.iter().fold(operation.path.to_owned(), |path, (name, value)| {
        let value = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        path.replace(&format!("{{{name}}}"), &value)
    })
}

/// There is no node in this process.
struct NoNode {
    session: SessionId,
}

impl ReadinessProbe for NoNode {
    fn trouble(&self) -> Option<String> {
        Some("there is no node in this process".to_owned())
    }
}

impl ProcessLister for NoNode {
    fn processes(&self, _: &WorkerView) -> Vec<TreeProcess> {
        Vec::new()
    }
}

impl NodeCounters for NoNode {
    fn counts(&self) -> NodeCounts {
        NodeCounts {
            node: String::new(),
            session: self.session,
            running: 0,
            lanes: Vec::new(),
            pools: Vec::new(),
            heartbeats: 0,
            store_errors: 0,
            store_outages: 0,
            fenced: 0,
        }
    }
}
