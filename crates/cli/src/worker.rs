//! One worker process of the demo: it claims tasks and counts the words of the texts in them.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{ErrorClass, Failure, Outcome, SessionId, WorkerId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds, NewSession, Report, Start};
use ostler_store::{Store, SystemClock};
use tokio::io::AsyncReadExt as _;

use crate::ids::Ids;

/// The queue of the demo.
pub(crate) const QUEUE: &str = "documents";
/// How long a lease holds without a beat.
const TTL: Duration = Duration::from_secs(60);
/// How often it beats.
const BEAT: Duration = Duration::from_secs(15);
/// How long a document takes: long enough to be caught in the middle of one.
const READING: Duration = Duration::from_millis(15);
/// Documents at a time.
const HANDS: usize = 4;

pub(crate) fn run(store: &str, name: &str) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(store, name))
}

async fn serve(path: &str, name: &str) -> anyhow::Result<()> {
    let store = Sqlite::open(path, Arc::new(SystemClock), Options::default())?;
    let mut ids = Ids::default();
    let (session, worker) = (SessionId(ids.next()?), WorkerId(ids.next()?));
    let node = NewSession {
        id: session,
        name: name.to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ttl: TTL,
        settings: String::new(),
    };
    store.join(node).await?;
    let mut wakeups = store.wakeups();
    let mut beat = tokio::time::interval(BEAT);
    let mut input = tokio::io::stdin();
    let mut closed = [0u8; 1];
    loop {
        wakeups.arm();
        let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: HANDS };
        let ClaimAnswer::Tasks(tasks) = store.claim(claim).await? else {
            anyhow::bail!("the session of {name} is over");
        };
        if !tasks.is_empty() {
            work(&store, tasks, worker).await?;
            continue;
        }
        tokio::select! {
            () = wakeups.wait() => {}
            _ = beat.tick() => { store.renew(session, &[]).await?; }
            // The demo closes this pipe when it is over, or when it dies.
            _ = input.read(&mut closed) => break,
        }
    }
    store.leave(session).await?;
    Ok(())
}

async fn work(store: &Sqlite, tasks: Vec<Claimed>, worker: WorkerId) -> anyhow::Result<()> {
    let starts = tasks.iter().map(|task| Start { lease: task.lease.as_ref(), worker }).collect();
    store.start(starts).await?;
    let mut reports = Vec::new();
    for task in tasks {
        tokio::time::sleep(READING).await;
        let (outcome, output) = match count_words(&task) {
            Ok(words) => (Outcome::Success, Some(format!("{{\"words\":{words}}}"))),
            Err(failure) => (Outcome::Failed(failure), None),
        };
        reports.push(Report { lease: task.lease, ran: None, outcome, output });
    }
    store.finish(reports).await?;
    Ok(())
}

fn count_words(task: &Claimed) -> Result<usize, Failure> {
    let payload: serde_json::Value = serde_json::from_str(&task.payload)
        .map_err(|error| Failure::new(ErrorClass::Permanent, format!("the payload is not JSON: {error}")))?;
    if payload["flaky"] == true && task.attempt < 3 {
        return Err(Failure::new(ErrorClass::Transient, "the network was away for a moment"));
    }
    match payload["text"].as_str() {
        Some(text) => Ok(text.split_whitespace().count()),
        None => Err(Failure::new(ErrorClass::Permanent, "the document has no text")),
    }
}
