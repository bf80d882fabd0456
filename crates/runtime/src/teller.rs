//! Tells whoever listens how the attempts of a queue ended: after the commit, at least once, and beside the pool, so that a slow
//! listener holds up no work. What was not told when the node ended is told after the next start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::{SessionId, Task};
use ostler_store::Store;
use ostler_store::tell::{Heard, Tell, Telling};
use ostler_store::views::Which;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Tellings that are under way at once.
const AT_ONCE: usize = 16;
/// How long a listener may take for one telling. After that it counts as told.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to wait after the store did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Somebody who wants to know how the attempts of a queue ended.
#[async_trait]
pub trait Listener: Send + Sync {
    /// What it wants to know.
    fn wants(&self) -> Tell;

    /// Is told of an end, with the task as it stands now: it may have gone on since. It may be told twice of the same end, when
    /// its process was killed in between.
    async fn hear(&self, telling: Telling, task: Task);
}

/// Tells one queue's listener, for one session of the node.
pub(crate) struct Teller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) queue: String,
    pub(crate) listener: Arc<dyn Listener>,
    /// How often it looks when nobody says that there is something to tell.
    pub(crate) poll: Duration,
    /// Cancelled when nothing more will end: what is there is told, and then it is over.
    pub(crate) over: CancellationToken,
}

/// What a look led to.
enum Look {
    /// There was less than could be told at once.
    All,
    /// There may be more, and no room for it now.
    Busy,
    /// The store did not answer.
    Away,
    /// The session is over: another one tells what is left.
    Ended,
}

impl Teller {
    pub(crate) async fn serve(self) {
        let mut wakeups = self.store.wakeups();
        let mut telling: JoinSet<()> = JoinSet::new();
        let mut numbers = HashMap::new();
        loop {
            wakeups.arm();
            let last = self.over.is_cancelled();
            let look = self.look(&mut telling, &mut numbers).await;
            let (pause, hungry) = match look {
                Look::Ended => return,
                Look::All | Look::Away if last && telling.is_empty() => return,
                Look::All => (self.poll, !last),
                Look::Busy => (self.poll, false),
                Look::Away => (PAUSE, false),
            };
            tokio::select! {
                Some(ended) = telling.join_next_with_id(), if !telling.is_empty() => {
                    self.told(ended, &mut telling, &mut numbers).await;
                }
                () = wakeups.wait(), if hungry => {}
                () = tokio::time::sleep(pause) => {}
                () = self.over.cancelled(), if !last => {}
            }
        }
    }

    /// Begins to tell as much as there is room for.
    async fn look(&self, telling: &mut JoinSet<()>, numbers: &mut HashMap<tokio::task::Id, u64>) -> Look {
        let room = AT_ONCE - telling.len();
        if room == 0 {
            return Look::Busy;
        }
        let heard = match self.store.hear(self.session, &self.queue, self.listener.wants(), room).await {
            Ok(Heard::Tellings(heard)) => heard,
            Ok(Heard::SessionEnded) => return Look::Ended,
            Err(_) => return Look::Away,
        };
        let look = if heard.len() < room { Look::All } else { Look::Busy };
        for one in heard {
            let number = one.number;
            let task = telling.spawn(tell(Arc::clone(&self.store), Arc::clone(&self.listener), one));
            numbers.insert(task.id(), number);
        }
        look
    }

    /// Marks as told what has ended. A listener that panicked was told. What cannot be marked is told again: at least once.
    async fn told(
        &self,
        first: Result<(tokio::task::Id, ()), JoinError>,
        telling: &mut JoinSet<()>,
        numbers: &mut HashMap<tokio::task::Id, u64>,
    ) {
        let mut done = Vec::new();
        let mut ended = Some(first);
        while let Some(one) = ended {
            let id = one.map_or_else(|error| error.id(), |(id, ())| id);
            done.extend(numbers.remove(&id));
            ended = telling.try_join_next_with_id();
        }
        let _ = self.store.told(self.session, done).await;
    }
}

async fn tell(store: Arc<dyn Store>, listener: Arc<dyn Listener>, telling: Telling) {
    // A task that is not there any more has nothing to say.
    if let Ok(Some(detail)) = store.show(Which::Id(telling.task)).await {
        let _ = tokio::time::timeout(PATIENCE, listener.hear(telling, detail.task)).await;
    }
}
