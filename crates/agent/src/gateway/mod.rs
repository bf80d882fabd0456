//! Gateways: sessions with an agent, in which queries are asked one after the other. The contract is `ostler_exec::Gateway`.
//!
//! - `in_process.rs`: an agent that this node runs, by the dialects and the executor of this crate. The default.
//! - `external.rs`: a server elsewhere, over HTTP. `wire.rs`: its format, which `docs/guide/gateway.md` documents.
//! - `executor.rs` and `kind.rs`: `executor = "http"`, pools whose tasks are queries to such a server.
//! - `workers.rs`: how worker processes ask the gateway of their pool. `handler_events.rs`: the events that they get. `settings.rs`: `gateway = …` of such a pool.

mod executor;
mod external;
mod handler_events;
mod in_process;
mod kind;
mod settings;
mod wire;
mod workers;

pub use executor::HttpExecutor;
pub use external::{ExternalGateway, GatewayAddress, GatewayPolicy, MAX_STREAM_BYTES};
pub use in_process::AgentGateway;
pub use kind::HttpKind;
pub use settings::{GatewaySettings, GatewayWorkers, ProcessWithGateway};
