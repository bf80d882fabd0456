//! Agents: queues whose tasks are conversations with a command-line agent, such as Claude Code or Codex, or with any program that
//! reads a prompt and writes an answer.
//!
//! An [`AgentPolicy`] makes a queue one of agents. Its defaults are those of a pool in the config: four workers, ten minutes for the
//! whole attempt, retries from 30 seconds on, and the account of the agent's login, so that a usage limit that one conversation
//! reaches holds all of them. The payload of a task is its prompt, or an object with `prompt` and settings of its own, or the
//! variables of the policy's template. The output is the answer. Prompt, messages, tool calls, session and cost are kept with the
//! attempt: [`Client::show`](crate::Client::show) has the sums, [`Client::transcript`](crate::Client::transcript) the text, and
//! callbacks get the record. The next attempt of a task resumes its conversation.
//!
//! Handlers ask an agent themselves through [`Builder::gateway`](crate::Builder::gateway).
//!
//! ```standalone_crate
//! use std::time::Duration;
//!
//! use ostler::agent::{AgentPolicy, Dialect};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First: the program is also the supervisor of its children.
//!     ostler::process::init();
//!     let folder = tempfile::tempdir()?;
//!     // `Dialect::Claude` runs claude, with the login of this user, and needs no command.
//!     let agents = AgentPolicy {
//!         command: vec!["tr".into(), "a-z".into(), "A-Z".into()],
//!         prompt: Some("summary of {{ title }}".into()),
//!         ..AgentPolicy::new("summaries", Dialect::Command)
//!     };
//!     tokio::runtime::Runtime::new()?.block_on(async {
//!         let pool = ostler::open(folder.path().join("jobs.db"))?
//!             .queue("summaries")
//!             .executor(agents)
//!             .start()
//!             .await?;
//!         let id = pool.submit("summarize", &serde_json::json!({ "title": "Dune" })).await?;
//!         assert_eq!(pool.wait_as::<String>(id).await?, "SUMMARY OF DUNE");
//!         let attempt = &pool.show(id).await?.attempts[0];
//!         assert_eq!(attempt.conversation.prompt.as_ref().unwrap().text, "summary of Dune");
//!         pool.drain(Duration::from_secs(30)).await;
//!         Ok(())
//!     })
//! }
//! ```

pub use ostler_agent::executor::SchemaSource;
pub use ostler_agent::gateway::{GatewayAddress, GatewayPolicy, GatewaySettings, GatewayWorkers};
pub use ostler_agent::price::{Price, PriceTable, TokenPrice};
pub use ostler_agent::settings::{Denials, ModelProvider, Permission, ToolRules};
pub use ostler_agent::{AgentPolicy, Dialect};
