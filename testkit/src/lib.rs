//! Test support shared by all crates. Never part of the product.
//!
//! - [`ManualClock`]: a clock set by a test. `signal.rs`: an event that a test waits for.
//! - `scratch.rs`: temporary folders, and stores in them. `ids.rs`: ids from a seed.
//! - `postgres.rs`: a private PostgreSQL server. `schema.rs`: a store on it. `pgbouncer.rs`: a private pooler in front of it. `redis.rs`: a private Redis.
//! - `proxy.rs`: a faulty network in front of a server. `llm.rs`: a scripted server with the API of a model.
//! - `npm.rs`: real programs from the package registry. `page_forms.rs`: forms of pages.
//! - `views.rs`: what the views for people must show.
//! - `twin.rs`: the test binary, started again as another process.
//! - [`history`]: compares what was acknowledged with what is stored.

pub mod history;
mod ids;
mod llm;
mod npm;
mod page_forms;
mod pgbouncer;
mod postgres;
mod proxy;
mod redis;
#[cfg(feature = "postgres")]
mod schema;
mod scratch;
mod signal;
mod twin;
mod views;

pub use ids::Ids;
pub use llm::{LlmReply, LlmRequest, LlmServer, ReplyEnd, anthropic_events, chat_events, responses_events};
pub use npm::npm_modules;
pub use ostler_conformance::{ManualClock, Memory, note, one_of_each};
pub use page_forms::{PageForm, form_body};
pub use pgbouncer::{PoolMode, PrivatePgbouncer};
pub use postgres::{Disk, PrivatePostgres};
pub use proxy::{Proxy, Weather};
pub use redis::{Heard, PrivateRedis};
pub use rustix::process::Signal as ProcessSignal;
#[cfg(feature = "postgres")]
pub use schema::{TempSchema, open_store};
pub use scratch::{TempStore, scratch};
pub use signal::{MAX_WAIT, Signal};
pub use twin::{Twin, Voice};
pub use views::{ViewCase, view_cases};
