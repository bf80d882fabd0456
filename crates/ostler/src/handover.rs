//! Batches submissions: callers that submit concurrently share one write and commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_runtime::Telemetry;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::{Error, Store};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Maximum submissions waiting to be written. Beyond it, `submit` waits and `try_submit` returns *queue full*.
pub(crate) const MAX_WAITING: usize = 100;

type SubmitResult = Result<Enqueued, Error>;

/// The sending side of the batch writer.
#[derive(Clone)]
pub(crate) struct HandOver(mpsc::Sender<QueuedSubmission>);

struct QueuedSubmission {
    task: NewTask,
    turn: Arc<Turn>,
    answer: oneshot::Sender<SubmitResult>,
}

/// Why a submission was not handed over.
pub(crate) enum HandOverRefused {
    /// The maximum number of submissions is waiting.
    Full,
    /// The batch writer has stopped.
    Closed,
}

/// A pending result, ready once the submission is on disk.
pub(crate) struct Receipt {
    answer: oneshot::Receiver<SubmitResult>,
    turn: Arc<Turn>,
}

/// Decides between the writer, which takes a submission, and its caller, which withdraws it: the first one has it.
#[derive(Default)]
struct Turn(AtomicBool);

impl Turn {
    fn is_mine(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// What became of a submission whose caller waits no longer.
pub(crate) enum Withdrawn {
    /// It will not be written.
    NotWritten,
    /// It was answered in the meantime.
    Answered(SubmitResult),
    /// It is being written.
    Unknown,
}

impl HandOver {
    /// Starts the batch writer. It stops when all senders are dropped.
    pub(crate) fn start(store: Arc<dyn Store>, telemetry: Telemetry) -> Self {
        let (sender, inbox) = mpsc::channel(MAX_WAITING);
        tokio::spawn(serve(store, telemetry, inbox));
        Self(sender)
    }

    /// Queues a submission, waiting for room if necessary.
    pub(crate) async fn give(&self, task: NewTask) -> Result<Receipt, HandOverRefused> {
        let (submission, receipt) = queued(task);
        self.0.send(submission).await.map_err(|_| HandOverRefused::Closed)?;
        Ok(receipt)
    }

    /// Queues a submission if there is room.
    pub(crate) fn try_give(&self, task: NewTask) -> Result<Receipt, HandOverRefused> {
        let (submission, receipt) = queued(task);
        match self.0.try_send(submission) {
            Ok(()) => Ok(receipt),
            Err(TrySendError::Full(_)) => Err(HandOverRefused::Full),
            Err(TrySendError::Closed(_)) => Err(HandOverRefused::Closed),
        }
    }
}

fn queued(task: NewTask) -> (QueuedSubmission, Receipt) {
    let (sender, answer) = oneshot::channel();
    let turn = Arc::<Turn>::default();
    (QueuedSubmission { task, turn: Arc::clone(&turn), answer: sender }, Receipt { answer, turn })
}

impl Receipt {
    /// Waits until the submission is on disk. `None`: the runtime shut down before the outcome was known. Cancel safe.
    pub(crate) async fn answer(&mut self) -> Option<SubmitResult> {
        (&mut self.answer).await.ok()
    }

    /// Waits no longer.
    pub(crate) fn withdraw(mut self) -> Withdrawn {
        if self.turn.is_mine() {
            return Withdrawn::NotWritten;
        }
        self.answer.try_recv().map_or(Withdrawn::Unknown, Withdrawn::Answered)
    }
}

async fn serve(store: Arc<dyn Store>, telemetry: Telemetry, mut inbox: mpsc::Receiver<QueuedSubmission>) {
    let mut batch = Vec::with_capacity(MAX_WAITING);
    while inbox.recv_many(&mut batch, MAX_WAITING).await > 0 {
        let wanted = batch.drain(..).filter(|parcel| parcel.turn.is_mine());
        let (tasks, callers): (Vec<NewTask>, Vec<_>) =
            wanted.map(|parcel| (parcel.task, parcel.answer)).unzip();
        if tasks.is_empty() {
            continue;
        }
        // A rejected task must not fail the others of its batch; a single task needs no copy for that.
        let neighbours = if tasks.len() > 1 { Some(tasks.clone()) } else { None };
        match (telemetry.enqueue(store.as_ref(), tasks).await, neighbours) {
            (Ok(answers), _) => {
                callers.into_iter().zip(answers).for_each(|(caller, answer)| reply(caller, Ok(answer)));
            }
            (Err(error), Some(tasks)) if !error.is_transient() => {
                for (task, caller) in tasks.into_iter().zip(callers) {
                    let answers = telemetry.enqueue(store.as_ref(), vec![task]).await;
                    reply(caller, answers.map(|answers| *answers.first().expect("one task has one answer")));
                }
            }
            (Err(error), _) => callers.into_iter().for_each(|caller| reply(caller, Err(error.clone()))),
        }
    }
}

fn reply(caller: oneshot::Sender<SubmitResult>, answer: SubmitResult) {
    // A caller may have stopped waiting; what is on disk stays there.
    let _ = caller.send(answer);
}
