//! Readers of a node's live overview: what they cost those that work, the memory of the node, and its heartbeat. One of ten never reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::load::Shape;
use crate::ours::Ours;
use crate::serving::{Connection, HEARTBEAT, ServingNode, TOKEN};
use crate::{Error, machine};

/// Readers at once.
const COUNTS: [usize; 3] = [0, 1, 500];
const ASLEEP_OF_TEN: usize = 1;
/// How long tasks are run with each number of readers.
const SLICE: Duration = Duration::from_secs(10);
const BATCH: usize = 128;
/// How often the number of heartbeats is read.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The metric with that number.
const HEARTBEATS: &str = "ostler_heartbeats_total";
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
        let connection = node.connect()?;
        let beats = tokio::task::spawn_blocking(move || latest_beat(connection, SLICE));
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

/// By how much the latest of the node's heartbeats came after its time, at most: a reading of their number may wait for the store.
fn latest_beat(mut connection: Connection, about: Duration) -> Result<Duration, Error> {
    let (mut beats, begun) = (Beats::default(), Instant::now());
    // Nothing is ever sent: only the wait.
    let (_never, pause) = mpsc::channel::<()>();
    while begun.elapsed() < about {
        let (_, metrics) = connection.get("/metrics")?;
        let sample = metrics.lines().find_map(|line| line.strip_prefix(HEARTBEATS)?.rsplit(' ').next());
        let count: f64 = sample.ok_or("the node counts its heartbeats")?.parse()?;
        beats.see(begun.elapsed(), count as u64);
        let _ = pause.recv_timeout(LOOK_EVERY);
    }
    let longest = beats.longest.ok_or("no two heartbeats were seen")?;
    Ok(longest.saturating_sub(HEARTBEAT))
}

/// The longest time between two heartbeats.
#[derive(Default)]
struct Beats {
    count: Option<u64>,
    /// When the count was seen to rise.
    rose: Option<Duration>,
    longest: Option<Duration>,
}

impl Beats {
    fn see(&mut self, at: Duration, count: u64) {
        if self.count.replace(count).is_none_or(|before| before == count) {
            return;
        }
        if let Some(rose) = self.rose.replace(at) {
            self.longest = self.longest.max(Some(at - rose));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_that_comes_late_is_seen_and_none_is_no_time() {
        let at = |looks: &[(u64, u64)]| {
            let mut beats = Beats::default();
            for (ms, count) in looks {
                beats.see(Duration::from_millis(*ms), *count);
            }
            beats.longest
        };
        // The first rise may be any part of an interval after the first look.
        let looks = [(0, 4), (300, 5), (700, 5), (1_300, 6), (2_900, 7), (3_900, 8)];
        assert_eq!(at(&looks), Some(Duration::from_millis(1_600)));
        assert_eq!(at(&[(0, 4), (5_000, 4), (9_000, 5)]), None);
    }
}
