//! The notice sent to a hook: the task, as `ostler show --json` prints it, the attempt that ended, and the number of the outbox entry.

use ostler_core::{TaskId, Timestamp};
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::TaskDetail;
use ostler_wire::notice::EndNotice;
use ostler_wire::remains::AttemptRemains;

pub struct HookNotice {
    /// The number of the outbox entry: the same when it is delivered again.
    pub sequence: u64,
    pub task: TaskId,
    pub queue: String,
    pub kind: String,
    pub attempt: u32,
    pub at: Timestamp,
    pub view: EndNotice,
}

impl HookNotice {
    #[must_use]
    pub fn new(entry: &OutboxEntry, found: &TaskDetail, remains: AttemptRemains) -> Self {
        Self {
            sequence: entry.number,
            task: entry.task,
            queue: entry.queue.clone(),
            kind: entry.kind.clone(),
            attempt: entry.attempt,
            at: entry.at,
            view: EndNotice::new(entry, found, remains),
        }
    }
}
