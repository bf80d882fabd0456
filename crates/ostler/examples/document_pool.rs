//! A document pool with error recovery: a bounded queue, linear backoff, steps that are not repeated, a breaker around a service,
//! dead letters that are listed and replayed, and statistics.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler::{
    Backoff, BreakerPolicy, Context, Filter, Jitter, Overrides, Replay, StateName, Submission, SubmitError,
    TaskError, Trip,
};
use serde::{Deserialize, Serialize};

/// The queue holds this many documents.
const QUEUE_SIZE: u64 = 100;

#[derive(Serialize, Deserialize)]
struct Document {
    id: String,
}

/// The service that makes search terms; it is down at first.
#[derive(Clone, Default)]
struct Terms(Arc<AtomicBool>);

impl Terms {
    fn make(&self, id: &str) -> Result<String, TaskError> {
        if self.0.load(Ordering::Relaxed) {
            Ok(format!("terms of {id}"))
        } else {
            Err(TaskError::transient("the service for search terms does not answer"))
        }
    }
}

async fn process(document: Document, ctx: Context) -> Result<String, TaskError> {
    if document.id.is_empty() {
        return Err(TaskError::permanent("a document needs an id").hint("give it one, and replay"));
    }
    let text = ctx.step("updated", || async { Ok(format!("text of {}", document.id)) }).await?;
    let policy = BreakerPolicy { trip: Trip::Consecutive(5), reset: Duration::from_millis(50) };
    let service = ctx.shared::<Terms>()?.clone();
    let terms = ctx.breaker("terms").policy(policy).call(|| async { service.make(&document.id) }).await?;
    // Not critical: its failure is a warning.
    ctx.step_or_warn("commented", || async { Err::<(), _>(TaskError::permanent("no comments here")) })
        .await?;
    Ok(format!("{text}, {terms}"))
}

/// What became of the documents.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) refused: usize,
    pub(crate) dead: usize,
    pub(crate) completed: u64,
}

pub(crate) async fn run(store: &Path) -> Result<Report, Box<dyn std::error::Error>> {
    let terms = Terms::default();
    let pool = ostler::open(store)?
        .share(terms.clone())
        .handle("process", process)
        .workers(3)
        .queue_limit(QUEUE_SIZE)
        .defaults(Overrides {
            attempts: Some(2),
            backoff: Some(Backoff::Linear),
            base: Some(Duration::from_millis(5)),
            jitter: Some(Jitter::Off),
            timeout: Some(Duration::from_secs(300)),
            ..Overrides::NONE
        })
        .start()
        .await?;
    pool.pause("all documents are submitted first").await?;
    let mut refused = 0;
    for number in 0..QUEUE_SIZE + 3 {
        let id = if number == 0 { String::new() } else { format!("doc{number}") };
        let about = Submission { key: Some(format!("process-{id}")), ..Submission::default() };
        match pool.submit_with("process", &Document { id }, about).await {
            Ok(_) => {}
            Err(SubmitError::QueueFull { .. }) => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    pool.resume().await?;
    pool.wait_idle().await?;
    let failed = Filter { state: Some(StateName::Failed), ..Filter::default() };
    let letters = pool.list(failed.clone(), None, 1_000).await?.tasks;
    // The service is back: what failed for its sake is replayed, and the step that was done is not repeated.
    terms.0.store(true, Ordering::Relaxed);
    for letter in &letters {
        let failure =
            letter.last_failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
        if failure.contains("an id") {
            println!("dropped: {failure}");
            pool.drop_dead_letter(letter.id).await?;
        } else {
            pool.replay(letter.id, Replay::default()).await?;
        }
    }
    pool.wait_idle().await?;
    // The breaker may have let only its probe through; the others are replayed until none is left.
    while pool.replay_all(failed.clone(), Replay::default()).await? > 0 {
        pool.wait_idle().await?;
    }
    let stats = pool.stats().await?;
    println!("{:?} {:?}", stats.totals, stats.all_kinds);
    pool.drain(Duration::from_secs(30)).await;
    Ok(Report { refused, dead: letters.len(), completed: stats.tasks.completed })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "document_pool.db".to_owned());
    println!("{:?}", run(Path::new(&path)).await?);
    Ok(())
}
