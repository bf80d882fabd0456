//! One attempt, from its start to its report.

use std::sync::Arc;
use std::time::Instant;

use ostler_core::{Ending, Outcome, WorkerId};
use ostler_exec::{Control, Ended, Note, Slot, Work, notes};
use ostler_store::calls::{Appended, Claimed, EventKind, Fenced, NewEvent, Ran, Report, Start};
use ostler_store::{LeaseRef, Store};
use tokio::sync::{Mutex, MutexGuard, mpsc};
use tokio_util::sync::CancellationToken;

use crate::config::{Beginning, PoolConfig};
use crate::finisher::Finisher;
use crate::held::{Held, Stop};

/// Notes that are written together.
const MAX_NOTES: usize = 256;

/// What every attempt of a pool works with.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pool: Arc<PoolConfig>,
    pub(crate) held: Held,
    pub(crate) finisher: Finisher,
    /// Lets suspects through one at a time: what takes its node down must not take the others down again and again.
    pub(crate) suspects: Arc<Mutex<()>>,
}

/// Runs one attempt. Answers how it went for its slot.
pub(crate) async fn run(bench: Bench, claimed: Claimed, worker: WorkerId) -> (Ending, Slot) {
    let lease = claimed.lease.as_ref();
    let strings = bench.held.take(lease);
    let alone =
        if claimed.suspect { wait_alone(&bench.suspects, &strings.cancel).await } else { Turn::NotNeeded };
    let durable = claimed.suspect || bench.pool.beginning == Beginning::Durable;
    if matches!(alone, Turn::Told) || (durable && !begin(&bench, lease, worker).await) {
        let stop = bench.held.let_go(lease);
        if stop != Some(Stop::Lost) {
            // The claim is given back: nothing has happened.
            bench.finisher.report(Report::hand_back(claimed.lease)).await;
        }
        return (Ending::HandedBack, Slot::Free);
    }
    let began = Instant::now();
    let (said, heard) = notes();
    let over = CancellationToken::new();
    let listener = tokio::spawn(listen(Arc::clone(&bench.store), lease, heard, over.clone()));
    let work = Work {
        task: lease.task,
        token: lease.token,
        attempt: claimed.attempt,
        queue: claimed.queue.to_string(),
        kind: claimed.kind.to_string(),
        payload: claimed.payload,
        timeout: claimed.policy.timeout,
        grace: bench.pool.grace,
        folder: claimed.folder,
    };
    let control = Control { cancel: strings.cancel, lost: strings.lost, notes: said };
    let Ended { outcome, output, slot } = bench.pool.executor.run(work, control).await;
    // What was said comes before the end: afterwards nobody may speak for the attempt. What the work left behind may hold
    // on to its notes; they are not waited for.
    over.cancel();
    let _ = listener.await;
    let outcome = match (bench.held.let_go(lease), outcome) {
        // What is done is done: if the lease is lost, the store says so.
        (_, Outcome::Success) => Outcome::Success,
        // It was stopped because somebody else speaks for the task, or soon will: nothing is said for it here.
        (Some(Stop::Lost), _) => return (Ending::NodeDied, slot),
        (Some(Stop::HandBack), Outcome::Cancelled) => Outcome::HandedBack,
        (Some(Stop::HandBack | Stop::Cancelled) | None, outcome) => outcome,
    };
    let ending = outcome.ending();
    drop(alone);
    let ran = (!durable).then_some(Ran { worker, took: began.elapsed() });
    bench.finisher.report(Report { lease: claimed.lease, ran, outcome, output }).await;
    (ending, slot)
}

/// Whether a suspect may begin.
enum Turn<'a> {
    /// It is not suspect.
    NotNeeded,
    /// No other suspect runs while this is kept.
    Mine { _until_dropped: MutexGuard<'a, ()> },
    /// It was told to stop before its turn came.
    Told,
}

async fn wait_alone<'a>(suspects: &'a Mutex<()>, cancel: &CancellationToken) -> Turn<'a> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Turn::Told,
        guard = suspects.lock() => Turn::Mine { _until_dropped: guard },
    }
}

/// Writes the start. False: the lease is lost, or the store cannot be written; the work does not begin.
async fn begin(bench: &Bench, lease: LeaseRef, worker: WorkerId) -> bool {
    let answer = bench.store.start(vec![Start { lease, worker }]).await;
    matches!(answer.as_deref(), Ok([Fenced::Recorded]))
}

/// Writes down what the work says, until it is over.
async fn listen(
    store: Arc<dyn Store>,
    lease: LeaseRef,
    mut heard: mpsc::Receiver<Note>,
    over: CancellationToken,
) {
    let mut batch = Vec::with_capacity(MAX_NOTES);
    loop {
        let said = tokio::select! {
            biased;
            said = heard.recv_many(&mut batch, MAX_NOTES) => said,
            () = over.cancelled() => {
                // What is there is still taken; nothing new comes in.
                heard.close();
                heard.recv_many(&mut batch, MAX_NOTES).await
            }
        };
        if said == 0 {
            return;
        }
        let events = batch.drain(..).map(event).collect();
        // A note that cannot be written is not worth stopping the work for; a lost lease stops it anyway.
        if let Ok(Appended::LeaseLost) = store.append(lease, events).await {
            return;
        }
    }
}

fn event(note: Note) -> NewEvent {
    match note {
        Note::Log { level, message } => {
            // No store keeps a NUL.
            let message = message.replace('\0', "\u{fffd}");
            NewEvent { kind: EventKind::Log, data: format!("{} {message}", level.name()) }
        }
        Note::Progress { done, total, note } => {
            let total = total.map_or_else(|| "?".to_owned(), |total| total.to_string());
            let note = note.map(|note| format!(" {note}")).unwrap_or_default();
            NewEvent { kind: EventKind::Progress, data: format!("{done}/{total}{note}") }
        }
        Note::Dropped(lines) => NewEvent {
            kind: EventKind::Warning,
            data: format!("{lines} lines were dropped: they came too fast"),
        },
    }
}
