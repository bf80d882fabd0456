//! Readers of a node's live overview: what they cost those that work, the memory of the node, and its heartbeat. One of ten never reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http::{HEARTBEAT, ServingNode, TOKEN};
use crate::load::Shape;
use crate::ours::Ours;
use crate::{Error, machine};

/// Readers at once.
const COUNTS: [usize; 3] = [0, 1, 500];
const ASLEEP_OF_TEN: usize = 1;
/// How long tasks are run with each number of readers.
const SLICE: Duration = Duration::from_secs(10);
const BATCH: usize = 128;
/// How often the time of the last heartbeat is read.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const BYTES_IN_MIB: f64 = 1_048_576.0;

/// Prints a row for each number of readers.
pub(crate) async fn measure(store: &str, ours: &Arc<Ours>, node: &ServingNode) -> Result<(), Error> {
    println!(
        "\n| {store}: readers | tasks/s | of those with none | MiB sent | resident, MiB | heartbeat late by, ms |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut with_none = None;
    for count in COUNTS {
        let (sent, mut readers) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for number in 0..count {
            let stream = open(node).await?;
            // The last of ten never reads.
            let is_read = number % 10 < 10 - ASLEEP_OF_TEN;
            readers.spawn(hold(stream, is_read.then(|| Arc::clone(&sent))));
        }
        let beats = tokio::spawn(latest_beat(Arc::clone(ours), SLICE));
        let tally = ours.run(Shape::Batch(BATCH), SLICE).await?;
        let late = beats.await??;
        let rate = tally.done as f64 / tally.took.as_secs_f64();
        let alone = *with_none.get_or_insert(rate);
        println!(
            "| {count} | {rate:.0} | {:.2} | {:.1} | {:.1} | {:.0} |",
            rate / alone,
            sent.load(Ordering::Relaxed) as f64 / BYTES_IN_MIB,
            machine::resident_kib(node.pid())? as f64 / 1_024.0,
            late.as_secs_f64() * 1_000.0,
        );
        readers.shutdown().await;
    }
    Ok(())
}

/// Keeps a stream open; reads it if its bytes are to be counted.
async fn hold(mut stream: TcpStream, sent: Option<Arc<AtomicU64>>) {
    let Some(sent) = sent else { return std::future::pending().await };
    let mut part = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = stream.read(&mut part).await {
        sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// By how much the latest of the node's heartbeats came after its time: the longest gap between two, less the interval.
async fn latest_beat(ours: Arc<Ours>, about: Duration) -> Result<Duration, Error> {
    let (mut seen, mut longest) = (None, HEARTBEAT);
    let over = tokio::time::Instant::now() + about;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    while looks.tick().await < over {
        let Some(beat) = ours.last_report().await? else { continue };
        if let Some(before) = seen.replace(beat) {
            longest = longest.max(beat.since(before));
        }
    }
    Ok(longest - HEARTBEAT)
}

async fn open(node: &ServingNode) -> Result<TcpStream, Error> {
    let mut stream = TcpStream::connect(node.address()).await?;
    let head = format!(
        "GET /api/v1/live HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
        node.address()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut begun = [0; 15];
    stream.read_exact(&mut begun).await?;
    if &begun[9..12] != b"200" {
        return Err(format!("a stream was answered by {}", String::from_utf8_lossy(&begun)).into());
    }
    Ok(stream)
}
