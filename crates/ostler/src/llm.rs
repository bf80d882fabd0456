//! Models over HTTP: queues whose tasks are requests to the API of a provider, or of a local server.
//!
//! An [`LlmPolicy`] makes a queue one of a model. Its defaults are those of a pool in the config: four workers and ten minutes for an
//! attempt. The payload of a task is its prompt, or an object with `prompt` or `messages` and settings of its own, or the variables of
//! the policy's template. The output is the answer. Prompt, answer, usage and cost are kept with the attempt, and what the provider says
//! about its limits is heeded by every queue of the account.
//!
//! ```no_run
//! use ostler::llm::{LlmApi, LlmPolicy};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let model = LlmPolicy {
//!     model: Some("qwen3".into()),
//!     base_url: Some("http://127.0.0.1:11434".into()),
//!     prompt: Some("Summarize {{ title }} in one sentence.".into()),
//!     ..LlmPolicy::new(LlmApi::OpenAi)
//! };
//! let pool = ostler::open("jobs.db")?.queue("summaries").executor(model).start().await?;
//! let id = pool.submit("summarize", &serde_json::json!({ "title": "Dune" })).await?;
//! println!("{}", pool.wait_as::<String>(id).await?);
//! pool.drain(std::time::Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```

pub use ostler_agent::executor::SchemaSource;
pub use ostler_agent::llm::{LlmApi, LlmPolicy};
pub use ostler_agent::price::{Price, PriceTable, TokenPrice};
