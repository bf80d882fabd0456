//! Reports how attempts ended, many in one write. What could not be written is kept, and offered again with its token, also
//! after the node has lost its session: the store knows whether it still counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ostler_store::calls::{Report, Unwritten};
use ostler_store::{Error, ErrorKind, LeaseRef, Store};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::leases::HeldLeases;
use crate::lifecycle::NodeState;

/// Reports that wait; over it, workers wait.
const MAX_WAITING: usize = 4_096;
/// Reports in one write.
const MAX_BATCH: usize = 1_000;
/// How long to wait after a write that failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Where reports go. Clones are the same.
#[derive(Clone)]
pub(crate) struct Finisher {
    sender: mpsc::Sender<Report>,
    pending: Arc<AtomicUsize>,
    closed: CancellationToken,
}

impl Finisher {
    /// Starts to write reports. It ends when it is closed and everything is written, or the node has ended and nobody takes
    /// what is left, or everybody who reports has gone.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        state: watch::Receiver<NodeState>,
        written: watch::Sender<u64>,
        held: HeldLeases,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, inbox) = mpsc::channel(MAX_WAITING);
        let (pending, closed) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let writer = ReportWriter {
            store,
            state,
            written,
            held,
            pending: Arc::clone(&pending),
            closed: closed.clone(),
        };
        (Self { sender, pending, closed }, tokio::spawn(writer.serve(inbox)))
    }

    /// Hands a report over.
    pub(crate) async fn report(&self, report: Report) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        // The finisher outlives all who report.
        let _ = self.sender.send(report).await;
    }

    /// Hands a report over, if there is room for it: for who must not wait. Answers whether there was.
    pub(crate) fn try_report(&self, report: Report) -> bool {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let taken = self.sender.try_send(report).is_ok();
        if !taken {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// How many are not written yet.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Nobody reports any more.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

struct ReportWriter {
    store: Arc<dyn Store>,
    state: watch::Receiver<NodeState>,
    written: watch::Sender<u64>,
    held: HeldLeases,
    pending: Arc<AtomicUsize>,
    closed: CancellationToken,
}

impl ReportWriter {
    async fn serve(mut self, mut inbox: mpsc::Receiver<Report>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            let some = tokio::select! {
                biased;
                some = inbox.recv_many(&mut batch, MAX_BATCH) => some,
                () = self.closed.cancelled() => {
                    // What is there is still taken; nothing new comes in.
                    inbox.close();
                    inbox.recv_many(&mut batch, MAX_BATCH).await
                }
            };
            if some == 0 {
                return;
            }
            let leases: Vec<LeaseRef> = batch.iter().map(|report| report.lease.as_ref()).collect();
            self.write(std::mem::take(&mut batch)).await;
            self.held.reported(&leases);
            self.pending.fetch_sub(some, Ordering::Relaxed);
            self.written.send_modify(|batches| *batches = batches.wrapping_add(1));
        }
    }

    /// Writes a batch, however often it takes, as long as the node lives.
    async fn write(&mut self, mut reports: Vec<Report>) {
        let mut pause = FIRST_PAUSE;
        loop {
            // A lost lease is a normal answer: somebody else speaks for that task now.
            let Err(Unwritten { error, reports: kept }) = self.store.finish(reports).await else { return };
            let waits = is_waited_for(&error);
            if !waits && kept.len() > 1 {
                // One bad report must not take its neighbours along.
                for report in kept {
                    Box::pin(self.write(vec![report])).await;
                }
                return;
            }
            if !waits || *self.state.borrow_and_update() == NodeState::Ended {
                // Nobody takes it: the lease ends with the session, and the task is run again.
                return;
            }
            reports = kept;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Whether it ended is seen after one more try.
                _ = self.state.changed() => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Whether a store that answers so may take it later.
fn is_waited_for(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Full | ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::Moving => true,
        // Somebody who marked it may take that back; a server may be a primary again.
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
