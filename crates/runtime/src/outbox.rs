//! Outbox dispatcher: delivers the outcomes of a queue's attempts to a listener, after the commit and at least once. It
//! runs separately from the pool, so that a slow listener delays no work. Entries not delivered when the node ends are
//! delivered after the next start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, TaskId, cut};
use ostler_store::outbox::{Ack, OutboxAnswer, OutboxEntry, OutboxFilter};
use ostler_store::views::{TaskDetail, TaskRef};
use ostler_store::{MAX_MESSAGE_BYTES, Store};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::handler_runtime::HandlerRuntimes;

/// Concurrent deliveries.
const AT_ONCE: usize = 16;
/// Default time limit for one delivery. After that, the entry counts as delivered.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after the store did not answer.
const PAUSE: Duration = Duration::from_millis(500);
/// Outcomes within this interval are taken and acknowledged together, since each of the two is a write. The first one after
/// a pause is delivered immediately.
const TOGETHER: Duration = Duration::from_millis(10);

/// Receives the outcomes of a queue's attempts.
#[async_trait]
pub trait EndListener: Send + Sync {
    /// The name of the subscriber that it delivers to. Each subscriber of a queue hears of every outcome that it wants; of
    /// several nodes with the same one, each outcome is delivered by one.
    fn subscriber(&self) -> &str;

    /// The outcomes it wants to receive.
    fn wants(&self) -> OutboxFilter;

    /// Time limit for one delivery. After that, the entry counts as delivered, and a warning on the task says so. Default:
    /// 60 s.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Receives an outcome, with the task as it is now: it may have changed since. The same outcome may be delivered twice
    /// if the process was killed in between.
    ///
    /// # Errors
    /// A sentence that becomes a warning on the task. The outcome is not delivered again.
    async fn ended(&self, entry: OutboxEntry, found: TaskDetail) -> Result<(), String>;
}

/// Delivers to the listener of one queue, for one session of the node.
pub(crate) struct OutboxDispatcher {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) queue: String,
    pub(crate) listener: Arc<dyn EndListener>,
    /// The poll interval when no notification arrives.
    pub(crate) poll: Duration,
    /// Cancelled when no more attempts will finish: deliver what is left, then stop.
    pub(crate) over: CancellationToken,
    /// The runtimes that listeners run on.
    pub(crate) stages: HandlerRuntimes,
}

/// The result of one round.
enum DispatchRound {
    /// All entries were taken.
    All,
    /// There may be more, but no room now.
    Busy,
    /// The store did not answer.
    Away,
    /// The session is over: another one delivers the rest.
    Ended,
}

impl OutboxDispatcher {
    pub(crate) async fn serve(self) {
        let mut wakeups = self.store.wakeups();
        let mut deliveries: JoinSet<Ack> = JoinSet::new();
        let mut numbers = HashMap::new();
        let mut done = Vec::new();
        loop {
            wakeups.arm();
            let last = self.over.is_cancelled();
            let together = Instant::now() + TOGETHER;
            // Run together, so that a store with group commit needs one write for both.
            let marks = self.mark(std::mem::take(&mut done));
            let ((), look) = tokio::join!(marks, self.look(&mut deliveries, &mut numbers));
            let (pause, hungry) = match look {
                DispatchRound::Ended => return,
                DispatchRound::All | DispatchRound::Away if last && deliveries.is_empty() => return,
                DispatchRound::All => (self.poll, !last),
                DispatchRound::Busy => (self.poll, false),
                DispatchRound::Away => (PAUSE, false),
            };
            tokio::select! {
                Some(first) = deliveries.join_next_with_id(), if !deliveries.is_empty() => {
                    if matches!(look, DispatchRound::All) && !last {
                        self.rest(together).await;
                    }
                    done = ended(first, &mut deliveries, &mut numbers);
                }
                () = wakeups.wait(), if hungry => self.rest(together).await,
                () = tokio::time::sleep(pause) => {}
                () = self.over.cancelled(), if !last => {}
            }
        }
    }

    /// Waits until this time, unless the session is over.
    async fn rest(&self, until: Instant) {
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = self.over.cancelled() => {}
        }
    }

    /// Starts as many deliveries as there is room for.
    async fn look(
        &self,
        deliveries: &mut JoinSet<Ack>,
        numbers: &mut HashMap<tokio::task::Id, u64>,
    ) -> DispatchRound {
        let room = AT_ONCE - deliveries.len();
        if room == 0 {
            return DispatchRound::Busy;
        }
        let entries =
            match self.store.take_outbox(self.session, &self.queue, self.listener.subscriber(), room).await {
                Ok(OutboxAnswer::Entries(entries)) => entries,
                Ok(OutboxAnswer::SessionEnded) => return DispatchRound::Ended,
                Err(_) => return DispatchRound::Away,
            };
        let look = if entries.len() < room { DispatchRound::All } else { DispatchRound::Busy };
        for one in entries {
            let number = one.number;
            let delivery = deliver(Arc::clone(&self.store), Arc::clone(&self.listener), one);
            let task = deliveries.spawn_on(delivery, &self.stages.now().handle);
            numbers.insert(task.id(), number);
        }
        look
    }

    /// Acknowledges finished deliveries. An entry that cannot be acknowledged is delivered again: at least once.
    async fn mark(&self, done: Vec<Ack>) {
        if !done.is_empty() {
            let _ = self.store.ack_outbox(self.session, done).await;
        }
    }
}

/// Collects finished deliveries. A listener that panicked counts as delivered.
fn ended(
    first: Result<(tokio::task::Id, Ack), JoinError>,
    deliveries: &mut JoinSet<Ack>,
    numbers: &mut HashMap<tokio::task::Id, u64>,
) -> Vec<Ack> {
    let mut done = Vec::new();
    let mut next = Some(first);
    while let Some(one) = next {
        match one {
            Ok((id, delivery)) => {
                numbers.remove(&id);
                done.push(delivery);
            }
            Err(error) => {
                let warning = Some("the listener for its outcome panicked".to_owned());
                done.extend(numbers.remove(&error.id()).map(|number| Ack { number, warning }));
            }
        }
        next = deliveries.try_join_next_with_id();
    }
    done
}

async fn deliver(store: Arc<dyn Store>, listener: Arc<dyn EndListener>, entry: OutboxEntry) -> Ack {
    let number = entry.number;
    // Another program with the same subscriber may want more.
    if !listener.wants().has(entry.what) {
        return number.into();
    }
    // The task has been removed.
    let Some(found) = find(store.as_ref(), entry.task).await else { return number.into() };
    let patience = listener.patience();
    let warning = match tokio::time::timeout(patience, listener.ended(entry, found)).await {
        Ok(Ok(())) => None,
        Ok(Err(sentence)) => Some(cut(&sentence.replace('\0', "\u{fffd}"), MAX_MESSAGE_BYTES)),
        Err(_) => Some(format!("the listener for its outcome took longer than {patience:?}")),
    };
    Ack { number, warning }
}

/// Looks up the task, retrying while the store is unavailable. Aborted with the dispatcher.
async fn find(store: &dyn Store, task: TaskId) -> Option<TaskDetail> {
    loop {
        match store.show(TaskRef::Id(task)).await {
            Ok(found) => return found,
            Err(error) if !error.is_transient() => return None,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
