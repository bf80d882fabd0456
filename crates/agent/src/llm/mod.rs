//! Models over HTTP: the `llm` executor asks the API of a provider, or of a local server, directly.
//!
//! ```text
//! LlmTask ──► LlmApi::request ──► body ──► HTTP ──► head ──► RateHeaders     until when to wait, how many more requests go through
//!                                           │
//!                                           └─► SSE events ──► LlmApi::read ──► Answer ──► facts: pieces of the transcript, usage
//!                                                                                 └──► conclude: an answer, or a Trouble with its Reason
//! ```
//!
//! The transcript, the meter, prices, reasons, prompt templates and the check of schemas are those of agents; the only new thing is the
//! wire. Nothing here does I/O but `attempt.rs`, `exchange.rs` and `unanswered.rs`.
//!
//! - `api.rs`: the three APIs. `anthropic.rs`, `chat.rs`, `responses.rs`: how each of them asks and answers.
//! - `answer.rs`: what is known of an answer while it arrives, and how it ended. `errors.rs`: errors by their type.
//! - `rate_headers.rs`: what the head of an answer says about limits.
//! - `policy.rs`: the settings of a pool. `payload.rs`: those of a task. `kind.rs`: how a pool is read from the config.
//! - `executor.rs`: the executor. `attempt.rs`: one attempt. `exchange.rs`: one request of it.
//! - `unanswered.rs`: what a request has used whose node is killed.
//!
//! There is one request per attempt, and one more for each answer that a schema does not allow. No API can be asked for an answer a
//! second time: if it is lost, the next attempt pays again, and the transcript says so.

mod answer;
mod anthropic;
mod api;
mod attempt;
mod chat;
mod errors;
mod exchange;
mod executor;
mod kind;
mod payload;
mod policy;
mod rate_headers;
mod responses;
mod unanswered;

pub use api::LlmApi;
pub use executor::{LlmExecutor, LlmPolicyError};
pub use kind::LlmKind;
pub use policy::LlmPolicy;
