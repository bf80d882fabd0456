//! Tells whoever listens how the attempts of a queue ended: after the commit, at least once, and beside the pool, so that a slow
//! listener holds up no work. What was not told when the node ended is told after the next start.

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

/// Tellings that are under way at once.
const AT_ONCE: usize = 16;
/// How long a listener may take for one telling, unless it says otherwise. After that it counts as told.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait after the store did not answer.
const PAUSE: Duration = Duration::from_millis(500);
/// Ends that come as close together as this are taken and marked together: each of the two is a write. The first one after a pause
/// is told at once.
const TOGETHER: Duration = Duration::from_millis(10);

/// Somebody who wants to know how the attempts of a queue ended.
#[async_trait]
pub trait EndListener: Send + Sync {
    /// What it wants to know.
    fn wants(&self) -> OutboxFilter;

    /// How long it may take for one telling. After that it counts as told, and a warning on the task says so.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Is told of an end, with the task as it stands now: it may have gone on since. It may be told twice of the same end, when
    /// its process was killed in between.
    ///
    /// # Errors
    /// What went wrong, in a sentence: it becomes a warning on the task, and the end is not told again.
    async fn ended(&self, telling: OutboxEntry, found: TaskDetail) -> Result<(), String>;
}

/// Tells one queue's listener, for one session of the node.
pub(crate) struct OutboxDispatcher {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) queue: String,
    pub(crate) listener: Arc<dyn EndListener>,
    /// How often it looks when nobody says that there is something to tell.
    pub(crate) poll: Duration,
    /// Cancelled when nothing more will end: what is there is told, and then it is over.
    pub(crate) over: CancellationToken,
    /// Where listeners are called.
    pub(crate) stages: HandlerRuntimes,
}

/// What a look led to.
enum DispatchRound {
    /// There was less than could be told at once.
    All,
    /// There may be more, and no room for it now.
    Busy,
    /// The store did not answer.
    Away,
    /// The session is over: another one tells what is left.
    Ended,
}

impl OutboxDispatcher {
    pub(crate) async fn serve(self) {
        let mut wakeups = self.store.wakeups();
        let mut telling: JoinSet<Ack> = JoinSet::new();
        let mut numbers = HashMap::new();
        let mut done = Vec::new();
        loop {
            wakeups.arm();
            let last = self.over.is_cancelled();
            let together = Instant::now() + TOGETHER;
            // One write for both, where a store writes together what comes together.
            let marks = self.mark(std::mem::take(&mut done));
            let ((), look) = tokio::join!(marks, self.look(&mut telling, &mut numbers));
            let (pause, hungry) = match look {
                DispatchRound::Ended => return,
                DispatchRound::All | DispatchRound::Away if last && telling.is_empty() => return,
                DispatchRound::All => (self.poll, !last),
                DispatchRound::Busy => (self.poll, false),
                DispatchRound::Away => (PAUSE, false),
            };
            tokio::select! {
                Some(first) = telling.join_next_with_id(), if !telling.is_empty() => {
                    if matches!(look, DispatchRound::All) && !last {
                        self.rest(together).await;
                    }
                    done = ended(first, &mut telling, &mut numbers);
                }
                () = wakeups.wait(), if hungry => self.rest(together).await,
                () = tokio::time::sleep(pause) => {}
                () = self.over.cancelled(), if !last => {}
            }
        }
    }

    /// Waits until this moment, unless it is over.
    async fn rest(&self, until: Instant) {
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = self.over.cancelled() => {}
        }
    }

    /// Begins to tell as much as there is room for.
    async fn look(
        &self,
        telling: &mut JoinSet<Ack>,
        numbers: &mut HashMap<tokio::task::Id, u64>,
    ) -> DispatchRound {
        let room = AT_ONCE - telling.len();
        if room == 0 {
            return DispatchRound::Busy;
        }
        let heard = match self.store.take_outbox(self.session, &self.queue, self.listener.wants(), room).await
        {
            Ok(OutboxAnswer::Entries(heard)) => heard,
            Ok(OutboxAnswer::SessionEnded) => return DispatchRound::Ended,
            Err(_) => return DispatchRound::Away,
        };
        let look = if heard.len() < room { DispatchRound::All } else { DispatchRound::Busy };
        for one in heard {
            let number = one.number;
            let told = tell(Arc::clone(&self.store), Arc::clone(&self.listener), one);
            let task = telling.spawn_on(told, &self.stages.now().handle);
            numbers.insert(task.id(), number);
        }
        look
    }

    /// Marks as told what has ended. What cannot be marked is told again: at least once.
    async fn mark(&self, done: Vec<Ack>) {
        if !done.is_empty() {
            let _ = self.store.ack_outbox(self.session, done).await;
        }
    }
}

/// What was told by now. A listener that panicked was told.
fn ended(
    first: Result<(tokio::task::Id, Ack), JoinError>,
    telling: &mut JoinSet<Ack>,
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
                let warning = Some("whoever was told of its end panicked".to_owned());
                done.extend(numbers.remove(&error.id()).map(|number| Ack { number, warning }));
            }
        }
        next = telling.try_join_next_with_id();
    }
    done
}

async fn tell(store: Arc<dyn Store>, listener: Arc<dyn EndListener>, telling: OutboxEntry) -> Ack {
    let number = telling.number;
    // A task that is not there any more has nothing to say.
    let Some(found) = find(store.as_ref(), telling.task).await else { return number.into() };
    let patience = listener.patience();
    let warning = match tokio::time::timeout(patience, listener.ended(telling, found)).await {
        Ok(Ok(())) => None,
        Ok(Err(sentence)) => Some(cut(&sentence.replace('\0', "\u{fffd}"), MAX_MESSAGE_BYTES)),
        Err(_) => Some(format!("whoever was told of its end took longer than {patience:?}")),
    };
    Ack { number, warning }
}

/// The task, however often a store that is away has to be asked: what it does not answer is not told. Ends with the teller.
async fn find(store: &dyn Store, task: TaskId) -> Option<TaskDetail> {
    loop {
        match store.show(TaskRef::Id(task)).await {
            Ok(found) => return found,
            Err(error) if !error.is_transient() => return None,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
