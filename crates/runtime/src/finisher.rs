//! Batched reports of attempt outcomes. Reports that could not be written are kept and retried with their token, even after
//! the node has lost its session: the store decides whether they still count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_store::calls::{Finished, Report, Unwritten};
use ostler_store::{Error, ErrorKind, Lease, LeaseRef, Store};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::leases::HeldLeases;
use crate::lifecycle::NodeState;
use crate::telemetry::{EndedAttempt, Telemetry};

/// Maximum waiting reports; beyond it, workers wait.
const MAX_WAITING: usize = 4_096;
/// Reports per write.
const MAX_BATCH: usize = 1_000;
/// First and longest pause after a failed write.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The sending side. Clones share the same queue.
#[derive(Clone)]
pub(crate) struct Finisher {
    sender: mpsc::Sender<QueuedReport>,
    count: ReportCount,
    closed: CancellationToken,
}

/// Counts the reports of a node. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct ReportCount {
    /// How many were ever queued.
    queued: Arc<AtomicU64>,
    /// How many of them are written, or never will be.
    written: watch::Sender<u64>,
}

impl ReportCount {
    /// The number of reports not written yet.
    pub(crate) fn pending(&self) -> u64 {
        self.queued.load(Ordering::Relaxed).saturating_sub(*self.written.borrow())
    }

    /// Changes whenever reports were written.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }
}

/// A report, and the attempt that it ends; `None` if it did not start.
type QueuedReport = (Report, Option<EndedAttempt>);

impl Finisher {
    /// Starts the writer. It stops when it is closed and everything is written, when the node has ended and the store does
    /// not accept the rest, or when all senders are dropped.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        state: watch::Receiver<NodeState>,
        count: ReportCount,
        held: HeldLeases,
        telemetry: Telemetry,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, inbox) = mpsc::channel(MAX_WAITING);
        let closed = CancellationToken::new();
        let written = count.written.clone();
        let writer = ReportWriter { store, state, written, held, closed: closed.clone(), telemetry };
        (Self { sender, count, closed }, tokio::spawn(writer.serve(inbox)))
    }

    /// Queues the report of an attempt, waiting for room.
    pub(crate) async fn report(&self, report: Report, ended: EndedAttempt) {
        self.send((report, Some(ended))).await;
    }

    /// Queues the return of a task that has not started, waiting for room.
    pub(crate) async fn hand_back(&self, lease: Lease) {
        self.send((Report::hand_back(lease), None)).await;
    }

    async fn send(&self, report: QueuedReport) {
        self.count.queued.fetch_add(1, Ordering::Relaxed);
        // The writer outlives all senders.
        let _ = self.sender.send(report).await;
    }

    /// Like [`hand_back`](Self::hand_back), without waiting. Returns false if there was no room.
    pub(crate) fn try_hand_back(&self, lease: Lease) -> bool {
        self.count.queued.fetch_add(1, Ordering::Relaxed);
        let taken = self.sender.try_send((Report::hand_back(lease), None)).is_ok();
        if !taken {
            self.count.queued.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// The number of reports not written yet.
    pub(crate) fn pending(&self) -> u64 {
        self.count.pending()
    }

    /// Waits until the reports that are queued now are written, or never will be: they are written in their order.
    pub(crate) async fn written_so_far(&self) {
        let queued = self.count.queued.load(Ordering::Relaxed);
        // The sender lives as long as `self`: the channel does not close.
        let _ = self.count.subscribe().wait_for(|written| *written >= queued).await;
    }

    /// No more reports follow.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

struct ReportWriter {
    store: Arc<dyn Store>,
    state: watch::Receiver<NodeState>,
    written: watch::Sender<u64>,
    held: HeldLeases,
    closed: CancellationToken,
    telemetry: Telemetry,
}

impl ReportWriter {
    async fn serve(mut self, mut inbox: mpsc::Receiver<QueuedReport>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let some = tokio::select! {
                biased;
                some = inbox.recv_many(&mut batch, MAX_BATCH) => some,
                () = self.closed.cancelled() => {
                    // Queued reports are still written; new ones are rejected.
                    inbox.close();
                    inbox.recv_many(&mut batch, MAX_BATCH).await
                }
            };
            if some == 0 {
                return;
            }
            let leases: Vec<LeaseRef> = batch.iter().map(|(report, _)| report.lease.as_ref()).collect();
            let (reports, ended) = batch.drain(..).unzip();
            self.write(reports, ended).await;
            self.held.reported(&leases);
            self.written.send_modify(|written| *written += some as u64);
        }
    }

    /// Writes a batch, retrying as long as the node lives.
    async fn write(&mut self, mut reports: Vec<Report>, ended: Vec<Option<EndedAttempt>>) {
        let mut pause = FIRST_PAUSE;
        loop {
            // A lost lease is a normal answer: another node reports that task now.
            let Unwritten { error, reports: kept } = match self.store.finish(reports).await {
                Ok(answers) => return self.tell(&ended, &answers),
                Err(unwritten) => unwritten,
            };
            let waits = is_waited_for(&error);
            if !waits && kept.len() > 1 {
                // One rejected report must not fail the others of its batch.
                for (report, ended) in kept.into_iter().zip(ended) {
                    Box::pin(self.write(vec![report], vec![ended])).await;
                }
                return;
            }
            if !waits || *self.state.borrow_and_update() == NodeState::Ended {
                // Given up: the lease ends with the session, and the task runs again.
                return;
            }
            reports = kept;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Whether the node ended is checked after one more attempt.
                _ = self.state.changed() => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reports what became of the attempts.
    fn tell(&self, ended: &[Option<EndedAttempt>], answers: &[Finished]) {
        for (ended, answer) in ended.iter().zip(answers) {
            if let Some(ended) = ended {
                self.telemetry.attempt_ended(ended, *answer);
            }
        }
    }
}

/// Whether the write may succeed later.
fn is_waited_for(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Full | ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Moving => true,
        // The read-only mark may be removed; a replica may become the primary.
        ErrorKind::ReadOnly => true,
        ErrorKind::Invalid
        | ErrorKind::Foreign
        | ErrorKind::TooNew
        | ErrorKind::Damaged
        | ErrorKind::BadRow
        | ErrorKind::Replaced
        | ErrorKind::Moved
        | ErrorKind::Closed
        | ErrorKind::Internal => false,
    }
}
