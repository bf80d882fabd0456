//! Unique keys: who has one, until when, and what happens to whoever comes with the same.

use ostler_core::{Conflict, Readiness, State, Task, Wait, conflict};

use super::state::{MemoryState, Slot};
use crate::calls::{Enqueued, NewTask};
use crate::plans::Unique;

impl MemoryState {
    /// What becomes of a task whose unique key another one has. `None`: it is to be taken in.
    pub(super) fn clash(&mut self, new: &NewTask) -> Option<Enqueued> {
        let unique = new.unique.as_ref()?;
        let slot = self.with_key(&new.queue, &unique.key)?;
        let now = self.now;
        let entry = self.entry(slot);
        let holder = entry.task.id;
        match conflict(unique.on_conflict, &entry.task.state, entry.key_until, now) {
            Conflict::Create => None,
            Conflict::Keep => Some(Enqueued::Existing(holder)),
            Conflict::Reject => Some(Enqueued::Rejected { holder }),
            Conflict::Replace => {
                self.take_over(slot, new);
                self.give_key(slot, unique);
                Some(Enqueued::Replaced(holder))
            }
        }
    }

    /// The key is this task's from now on; one whose time with it is over has none any more.
    pub(super) fn give_key(&mut self, slot: Slot, unique: &Unique) {
        let queue = self.task(slot).queue.clone();
        if let Some(before) = self.with_key(&queue, &unique.key) {
            self.task(before).unique_key = None;
        }
        let now = self.now;
        let entry = self.entry(slot);
        entry.task.unique_key = Some(unique.key.clone());
        entry.key_until = unique.hold.map(|hold| now.after(hold));
    }

    fn with_key(&self, queue: &str, key: &str) -> Option<Slot> {
        let has_key = |task: &Task| task.queue == queue && task.unique_key.as_deref() == Some(key);
        self.entries.iter().find(|(_, entry)| has_key(&entry.task)).map(|(slot, _)| *slot)
    }

    /// A task that waits becomes what another one brings, as if it had just come. Its steps are of other work. What it waits for
    /// stays: so nobody comes to wait for himself in the end.
    fn take_over(&mut self, slot: Slot, new: &NewTask) {
        let run_at = new.run_at.unwrap_or(self.now);
        let entry = self.entry(slot);
        entry.steps.clear();
        let task = &mut entry.task;
        let before = task.limit_key.clone();
        task.kind.clone_from(&new.kind);
        task.payload.clone_from(&new.payload);
        task.priority = new.priority;
        task.limit_key.clone_from(&new.limit_key);
        task.overrides = new.overrides;
        task.not_after = new.not_after;
        task.deadline = new.deadline;
        task.folder.clone_from(&new.folder);
        task.cost = new.cost.unwrap_or(1);
        (task.failures, task.crashes, task.node_deaths) = (0, 0, 0);
        task.state = State::Queued { readiness: Readiness::Waiting, why: Wait::New, run_at };
        self.lanes.entry((new.queue.clone(), new.kind.clone())).or_default();
        if let Some(before) = before {
            self.leave_key(&new.queue, &before);
            if self.keys_of(&new.queue).contains(&before) {
                self.settle_key(&new.queue, &before);
            }
        }
        self.place(slot, run_at);
        self.arrive_or_wait(slot);
    }
}
