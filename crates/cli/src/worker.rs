//! One worker process of the demo: a node that counts the words of the texts in its tasks.

use std::sync::Arc;
use std::time::Duration;

use ostler_exec::{Context, Inline, TaskError};
use ostler_runtime::{Node, NodeConfig, Parts, PoolConfig};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::{Store, SystemClock};
use tokio::io::AsyncReadExt as _;

/// The queue of the demo.
pub(crate) const QUEUE: &str = "documents";
/// The kind of its tasks.
pub(crate) const KIND: &str = "count";
/// How long a document takes: long enough to be caught in the middle of one.
const READING: Duration = Duration::from_millis(15);
/// Documents at a time.
const HANDS: usize = 4;
/// How long a worker may take to end what it has.
const DRAIN: Duration = Duration::from_secs(5);

pub(crate) fn run(store: &str, name: &str) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(store, name))
}

async fn serve(path: &str, name: &str) -> anyhow::Result<()> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(path, Arc::new(SystemClock), Options::default())?);
    // Its attempts are on disk before they begin, so that the demo can show what became of them.
    let pool = PoolConfig::durable(QUEUE, Arc::new(Inline::new().handle(KIND, count_words)), HANDS);
    let parts = Parts { store, clock: Arc::new(SystemClock), ids: ostler::ids()? };
    let node = Node::start(parts, NodeConfig::new(name, vec![pool])).await?;
    // The demo closes this pipe when it is over, or when it dies.
    let mut closed = [0u8; 1];
    let _ = tokio::io::stdin().read(&mut closed).await;
    node.drain(DRAIN).await;
    Ok(())
}

async fn count_words(payload: String, context: Context) -> Result<Option<String>, TaskError> {
    tokio::time::sleep(READING).await;
    let payload: serde_json::Value = serde_json::from_str(&payload)
        .map_err(|error| TaskError::permanent(format!("the payload is not JSON: {error}")))?;
    if payload["flaky"] == true && context.attempt() < 3 {
        return Err(TaskError::transient("the network was away for a moment"));
    }
    let text = payload["text"].as_str().ok_or_else(|| TaskError::permanent("the document has no text"))?;
    Ok(Some(format!("{{\"words\":{}}}", text.split_whitespace().count())))
}
