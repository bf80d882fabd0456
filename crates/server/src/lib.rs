//! The HTTP API of a node: JSON under `/api/v1`, live streams, and who may come in. A second front end beside the command line: it calls
//! the same use cases of `ostler-ops`, answers with the same views of `ostler-wire`, and never sees an executor.
//!
//! - `operations.rs`: the one table of operations. It makes the router (`router.rs`), the description (`openapi.rs`) and the permissions.
//!   The folder `operations` has what each of them does. Nothing is reachable that is not in the table.
//! - `guard.rs`: who may ask for what: Host, Origin, Fetch Metadata, tokens. A pure function. `tokens.rs`: tokens of a file.
//!   `sessions.rs`: login links and cookies. `audit.rs`: the record of changes.
//! - `page/mod.rs`: the dashboard, as pages in HTML over the same views.
//! - `task_events.rs`, `overview_feed.rs`: live streams, with one watcher for all readers. `sse.rs`: their form on the wire.
//! - `metrics/mod.rs`: metrics in OpenMetrics text. `bulk.rs`: actions on many tasks, with progress and a stop.
//! - `local.rs`: operations without HTTP, over a store that the program opened. `mcp/mod.rs`: tools for agents, made from the table.
//! - `server.rs`: listens, accepts, and stops. `listen.rs`: addresses. `dispatch.rs`: one request. `headers.rs`: headers of every answer.

mod answer;
mod audit;
mod bulk;
mod call;
mod dispatch;
mod guard;
mod headers;
mod listen;
mod local;
pub mod mcp;
mod metrics;
pub mod openapi;
pub mod operations;
mod overview_feed;
mod page;
mod router;
mod server;
mod sessions;
mod sse;
mod task_events;
mod tokens;

pub use audit::Audit;
pub use guard::{
    AllowedCaller, ApiRefusal, Caller, CookieTransport, Credential, Guard, GuardPolicy, RequestFacts, Verdict,
};
pub use headers::CSP;
pub use listen::{BoundSocket, ListenAddress, ListenError};
pub use local::{LocalApi, LocalParts};
pub use metrics::{Durations, LaneCounts, MetricsAccess, NodeCounters, NodeCounts, PoolCounts};
pub use server::{Examiner, MAX_PROCESSES, ProcessLister, ReadinessProbe, Server, ServerLimits, ServerParts};
pub use tokens::{Access, TokenError, Tokens};
