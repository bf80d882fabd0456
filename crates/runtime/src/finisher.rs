//! Reports how attempts ended, many in one write. What could not be written is kept, and offered again with its token.

use std::sync::Arc;
use std::time::Duration;

use ostler_store::Store;
use ostler_store::calls::{Report, Unwritten};
use tokio::sync::{mpsc, watch};

use crate::stand::NodeState;

/// Reports that wait; over it, workers wait.
const MAX_WAITING: usize = 4_096;
/// Reports in one write.
const MAX_BATCH: usize = 1_000;
/// How long to wait after a write that failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Where reports go.
#[derive(Clone)]
pub(crate) struct Finisher(mpsc::Sender<Report>);

impl Finisher {
    /// Starts to write reports. It ends when everybody who reports has gone.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        state: watch::Receiver<NodeState>,
        written: watch::Sender<u64>,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, inbox) = mpsc::channel(MAX_WAITING);
        (Self(sender), tokio::spawn(serve(store, state, inbox, written)))
    }

    /// Hands a report over.
    pub(crate) async fn report(&self, report: Report) {
        // The finisher outlives all who report.
        let _ = self.0.send(report).await;
    }
}

async fn serve(
    store: Arc<dyn Store>,
    state: watch::Receiver<NodeState>,
    mut inbox: mpsc::Receiver<Report>,
    written: watch::Sender<u64>,
) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while inbox.recv_many(&mut batch, MAX_BATCH).await > 0 {
        write(store.as_ref(), &state, std::mem::take(&mut batch)).await;
        written.send_modify(|batches| *batches = batches.wrapping_add(1));
    }
}

/// Writes a batch, however often it takes, as long as the node may speak for it.
async fn write(store: &dyn Store, state: &watch::Receiver<NodeState>, mut reports: Vec<Report>) {
    let mut pause = FIRST_PAUSE;
    loop {
        // A lost lease is a normal answer: somebody else speaks for that task now.
        let Err(Unwritten { error, reports: kept }) = store.finish(reports).await else { return };
        if !error.is_transient() && kept.len() > 1 {
            // One bad report must not take its neighbours along.
            for report in kept {
                Box::pin(write(store, state, vec![report])).await;
            }
            return;
        }
        if !error.is_transient() || *state.borrow() == NodeState::Fenced {
            // Nobody takes it: the lease ends with the node, and the task is run again.
            return;
        }
        reports = kept;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
