//! Reader threads: read-only connections alongside the writer. Each read is one short statement or a few: a lingering
//! reader would delay checkpoints of the write-ahead log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ostler_store::{Clock, Error, ErrorKind};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::fault::fault;
use crate::open::Files;
use crate::tx::Sql;

/// Queued reads; above this limit, callers wait to be admitted.
const MAX_WAITING: usize = 256;
/// The time limit of one read.
const MAX_READING: Duration = Duration::from_secs(5);
/// How often SQLite checks the time limit, in virtual machine instructions.
const STEPS_PER_LOOK: i32 = 10_000;

type ReadCall = Box<dyn FnOnce(&Connection) + Send>;

struct ReaderThread {
    readings: Option<mpsc::Sender<ReadCall>>,
    thread: Option<JoinHandle<()>>,
}

/// The reader threads.
pub(crate) struct Readers {
    threads: Vec<ReaderThread>,
    next: AtomicU64,
    files: Files,
}

impl Readers {
    pub(crate) fn start(
        connections: Vec<Connection>,
        files: Files,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let threads = connections
            .into_iter()
            .map(|conn| desk(conn, Arc::clone(clock)))
            .collect::<Result<_, Error>>()?;
        Ok(Self { threads, next: AtomicU64::new(0), files })
    }

    /// Runs `work` on one consistent snapshot of the store.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Sql<T> + Send + 'static,
    {
        let closed = || Error::new(ErrorKind::Closed, "the store is closed");
        let (caller, answer) = oneshot::channel();
        let reading: ReadCall = Box::new(move |conn| {
            let _ = caller.send(snapshot(conn, work).map_err(fault));
        });
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % self.threads.len();
        let reader = self.threads[at].readings.as_ref().ok_or_else(closed)?;
        reader.send(reading).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?.map_err(|error| self.files.explain(error))
    }
}

fn snapshot<T>(conn: &Connection, work: impl FnOnce(&Connection) -> Sql<T>) -> Sql<T> {
    let view = conn.unchecked_transaction()?;
    let answer = work(&view)?;
    view.finish()?;
    Ok(answer)
}

fn desk(mut conn: Connection, clock: Arc<dyn Clock>) -> Result<ReaderThread, Error> {
    let (sender, mut inbox) = mpsc::channel::<ReadCall>(MAX_WAITING);
    let serve = move || {
        let deadline = Arc::new(AtomicU64::new(u64::MAX));
        let (end, looks) = (Arc::clone(&deadline), Arc::clone(&clock));
        let overdue = move || looks.uptime().as_millis() as u64 > end.load(Ordering::Relaxed);
        // Without the handler a read could only be slow, not wrong.
        let _ = conn.progress_handler(STEPS_PER_LOOK, Some(overdue));
        while let Some(reading) = inbox.blocking_recv() {
            deadline.store((clock.uptime() + MAX_READING).as_millis() as u64, Ordering::Relaxed);
            reading(&conn);
        }
    };
    let thread = std::thread::Builder::new()
        .name("ostler-read".into())
        .spawn(serve)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread for a reader: {error}")))?;
    Ok(ReaderThread { readings: Some(sender), thread: Some(thread) })
}

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &mut self.threads {
            reader.readings = None;
            if let Some(thread) = reader.thread.take() {
                let _ = thread.join();
            }
        }
    }
}
