//! JavaScript functions: queues whose tasks are calls of functions in a folder, each within limits, and out of reach of everything else.
//!
//! An [`IsolatePolicy`] makes a queue one of functions: a file of its folder serves the kind of its name, and a changed file is used from
//! the next task on. Functions run in host processes, which are this program, started again: [`process::init`](crate::process::init) must
//! be called first. A script that does not end is ended with its host. Defaults are those of a pool in the config: as many hosts as
//! cores, 30 seconds for an attempt, [`FunctionLimits`], no requests ([`FetchRules`]), no secrets.
//!
//! ```standalone_crate
//! use std::time::Duration;
//!
//! use ostler::Overrides;
//! use ostler::isolate::{FunctionLimits, IsolatePolicy};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First: the program is also the supervisor of its children, and the host of its functions.
//!     ostler::process::init();
//!     let folder = tempfile::tempdir()?;
//!     std::fs::write(folder.path().join("total.js"), "export default ({ prices }) => prices.reduce((a, b) => a + b)")?;
//!     std::fs::write(folder.path().join("bomb.js"), "export default () => { for (;;); }")?;
//!     let functions = IsolatePolicy {
//!         limits: FunctionLimits { cpu: Duration::from_millis(200), ..FunctionLimits::default() },
//!         ..IsolatePolicy::new("functions", folder.path())
//!     };
//!     tokio::runtime::Runtime::new()?.block_on(async {
//!         let pool = ostler::open(folder.path().join("jobs.db"))?
//!             .queue("functions")
//!             .executor(functions)
//!             .defaults(Overrides { attempts: Some(1), ..Overrides::NONE })
//!             .start()
//!             .await?;
//!         let id = pool.submit("total", &serde_json::json!({ "prices": [1, 2, 3] })).await?;
//!         assert_eq!(pool.wait_as::<u32>(id).await?, 6);
//!         let bomb = pool.wait(pool.submit("bomb", &()).await?).await?;
//!         assert_eq!(bomb.last_failure.unwrap().message, "the function used more CPU time than its limit");
//!         pool.drain(Duration::from_secs(30)).await;
//!         Ok(())
//!     })
//! }
//! ```

pub use ostler_isolate::{
    EngineName, FetchRules, FunctionLimits, HostProgram, IsolatePolicy, Isolation, Reuse, WarmPolicy,
};
