//! Unique keys: which task has one, until when, and conflicts with new tasks.

use ostler_core::{Conflict, KeyHold, Readiness, Regain, State, Task, TaskId, Wait, conflict, regain};

use super::state::{MemoryState, Slot};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::unique::Unique;

impl MemoryState {
    /// Resolves a conflict over a unique key. `None`: the new task is to be created.
    pub(super) fn clash(&mut self, new: &NewTask) -> Option<Enqueued> {
        let unique = new.unique.as_ref()?;
        let slot = self.with_key(&new.queue, &unique.key)?;
        let now = self.now;
        let entry = self.entry(slot);
        let holder = entry.task.id;
        match conflict(unique.on_conflict, &entry.task.state, entry.held, now) {
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

    /// Gives the key to this task; a task whose hold on it is over loses it.
    pub(super) fn give_key(&mut self, slot: Slot, unique: &Unique) {
        let queue = self.task(slot).queue.clone();
        if let Some(before) = self.with_key(&queue, &unique.key) {
            self.task(before).unique_key = None;
        }
        let now = self.now;
        let entry = self.entry(slot);
        entry.task.unique_key = Some(unique.key.clone());
        let hold = unique.hold.unwrap_or_default();
        entry.held = hold.from(now);
        entry.end_key = (hold == KeyHold::End).then(|| unique.key.clone());
    }

    /// Gives an ended task, which is about to be replayed, the key that it held until its end. Returns the task that refuses it.
    pub(super) fn take_back_key(&mut self, slot: Slot) -> Option<TaskId> {
        let now = self.now;
        let entry = self.entry(slot);
        let key = entry.end_key.clone().filter(|_| entry.task.unique_key.is_none())?;
        let queue = entry.task.queue.clone();
        if let Some(other) = self.with_key(&queue, &key) {
            let other = self.entry(other);
            if regain(&other.task.state, other.held, now) == Regain::Refuse {
                return Some(other.task.id);
            }
        }
        self.give_key(slot, &Unique { hold: Some(KeyHold::End), ..Unique::new(key) });
        None
    }

    fn with_key(&self, queue: &str, key: &str) -> Option<Slot> {
        let has_key = |task: &Task| task.queue == queue && task.unique_key.as_deref() == Some(key);
        self.entries.iter().find(|(_, entry)| has_key(&entry.task)).map(|(slot, _)| *slot)
    }

    /// Replaces the content of a queued task by that of a new one, as if it had just been enqueued. Its steps and its conversation
    /// belong to other work.
    /// Its dependencies stay, so that no task comes to depend on itself.
    fn take_over(&mut self, slot: Slot, new: &NewTask) {
        let run_at = new.run_at.unwrap_or(self.now);
        let entry = self.entry(slot);
        entry.steps.clear();
        entry.scratch_token = entry.task.token;
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
        task.traceparent.clone_from(&new.traceparent);
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
