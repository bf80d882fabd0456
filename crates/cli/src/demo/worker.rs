//! A worker process of the demo: a node with a pool for each executor.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ostler_exec::{Context, Inline, TaskError, ThreadPolicy, Threads};
use ostler_isolate::{IsolateExecutor, IsolatePolicy};
use ostler_process::supervisor::{Supervisor, SupervisorProgram};
use ostler_process::{Command, CommandPolicy, Environment};
use ostler_runtime::{Node, NodeConfig, NodeDeps, PoolConfig, StartMode};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Store, SystemClock};
use tokio::io::AsyncReadExt as _;

use super::{DOCUMENTS, FUNCTIONS, NAME, SHELL, SUMS};
use crate::up::SUPERVISOR;

/// The duration of a task: long enough for a kill to hit one.
const READING: Duration = Duration::from_millis(15);
/// Workers per pool.
const HANDS: usize = 4;
/// Threads for handlers that are not `Send`, and hosts of functions.
const THREADS: usize = 2;
/// How long a node may take to drain.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) fn run(store: &Path, name: &str) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(store, name))
}

async fn serve(path: &Path, name: &str) -> anyhow::Result<()> {
    let supervisor = Supervisor::start(SupervisorProgram::this([SUPERVISOR]), Vec::new()).await?;
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(path, Arc::new(SystemClock), Options::default())?);
    let inline = Inline::new().handle(DOCUMENTS.kind, count_words);
    let threads = Threads::start(ThreadPolicy::for_cores(THREADS))
        .context("no threads for the demo")?
        .handle(SUMS.kind, sum_up);
    let policy = CommandPolicy::new(["sh", "-c", "{{ payload.script }}"]);
    let environment = Environment { set: vec![(NAME.to_owned(), name.to_owned())], ..Environment::default() };
    let command = Command::new(supervisor.clone(), CommandPolicy { environment, ..policy })?;
    // Beside the store, with the functions of the tour.
    let scripts = path.with_file_name(FUNCTIONS.queue);
    let policy = IsolatePolicy::new(FUNCTIONS.queue, scripts);
    let isolates = IsolateExecutor::in_hosts(&policy, supervisor.clone())?;
    // Attempts are recorded before they start, so that the demo can show their outcome.
    let lazy = |queue: &str, executor, workers| PoolConfig {
        beginning: StartMode::Durable,
        ..PoolConfig::new(queue, executor, workers)
    };
    let pools = vec![
        lazy(DOCUMENTS.queue, Arc::new(inline), HANDS),
        lazy(SUMS.queue, Arc::new(threads), THREADS),
        PoolConfig::durable(SHELL.queue, Arc::new(command), HANDS),
        PoolConfig::durable(FUNCTIONS.queue, isolates, THREADS),
    ];
    let parts = NodeDeps { store, clock: Arc::new(SystemClock), ids: ostler::ids()? };
    let config = NodeConfig { guard: Some(Arc::new(supervisor.clone())), ..NodeConfig::new(name, pools) };
    let node = Node::start(parts, config).await?;
    // The demo closes this pipe when it ends or dies.
    let mut closed = [0u8; 1];
    let _ = tokio::io::stdin().read(&mut closed).await;
    node.drain(DRAIN).await;
    supervisor.stop().await;
    Ok(())
}

async fn count_words(payload: String, context: Context) -> Result<Option<String>, TaskError> {
    tokio::time::sleep(READING).await;
    let payload = read(&payload)?;
    if payload["flaky"] == true && context.attempt() < 3 {
        return Err(TaskError::transient("the network was away for a moment"));
    }
    let text = payload["text"].as_str().ok_or_else(|| TaskError::permanent("the document has no text"))?;
    Ok(Some(format!("{{\"words\":{}}}", text.split_whitespace().count())))
}

/// The values held across the wait are not `Send`.
async fn sum_up(payload: String, _: Context) -> Result<Option<String>, TaskError> {
    let numbers = Rc::new(read(&payload)?);
    tokio::time::sleep(READING).await;
    let sum: i64 = numbers.as_array().into_iter().flatten().filter_map(serde_json::Value::as_i64).sum();
    Ok(Some(sum.to_string()))
}

fn read(payload: &str) -> Result<serde_json::Value, TaskError> {
    serde_json::from_str(payload)
        .map_err(|error| TaskError::permanent(format!("the payload is not JSON: {error}")))
}
