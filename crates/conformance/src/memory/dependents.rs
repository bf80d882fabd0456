//! Dependencies between tasks, and what the end of a task means for its dependents.

use std::collections::BTreeSet;

use ostler_core::{CancelReason, OnFailed, Readiness, Release, State, TaskId, Timestamp, Wait, release};

use super::state::{MemoryState, Slot};

impl MemoryState {
    /// The slots of these tasks, or the first id that does not exist.
    pub(super) fn places(&self, ids: &[TaskId]) -> Result<BTreeSet<Slot>, TaskId> {
        ids.iter().map(|id| self.slot_of(*id).ok_or(*id)).collect()
    }

    /// Queues a new task, or lets it wait for its unfinished dependencies in `others`, or cancels it with them.
    pub(super) fn arrive_after(&mut self, slot: Slot, others: &BTreeSet<Slot>, choice: OnFailed) {
        let verdict = |other: &Slot| release(choice, Some(self.entries[other].task.state.name()));
        let cancelled = others.iter().any(|other| verdict(other) == Release::Cancelled);
        let after: BTreeSet<Slot> =
            others.iter().copied().filter(|other| verdict(other) == Release::Waits).collect();
        if cancelled {
            return self.cancel_dependent(slot);
        }
        for other in &after {
            self.entry(*other).awaited = true;
        }
        let entry = self.entry(slot);
        (entry.after, entry.on_failed) = (after, choice);
        self.arrive_or_wait(slot);
    }

    /// Records that a task has ended: it has no dependencies any more, and its dependents are processed at the end of the verb.
    pub(super) fn note_freed(&mut self, slot: Slot) {
        let entry = self.entry(slot);
        entry.after.clear();
        if entry.awaited {
            self.freed.insert(slot, 0);
            self.frees = true;
        }
    }

    /// Makes a ranked task ready, or lets it wait for its time, its key, or its dependencies.
    pub(super) fn arrive_or_wait(&mut self, slot: Slot) {
        let State::Queued { why, run_at, .. } = self.task(slot).state else { return };
        if self.entry(slot).after.is_empty() {
            return self.arrive(slot, run_at, why);
        }
        let (readiness, why) = (Readiness::Waiting, Wait::Dependency);
        self.task(slot).state = State::Queued { readiness, why, run_at };
    }

    /// Ends a task's wait for a time or for dependencies. It is ranked as of now: a night's worth of scheduled tasks
    /// must not run before all others.
    pub(super) fn come_forward(&mut self, slot: Slot) {
        let State::Queued { why, run_at, .. } = self.task(slot).state else { return };
        if matches!(why, Wait::Scheduled | Wait::Dependency) {
            self.place(slot, run_at);
        }
        self.arrive(slot, run_at, why);
    }

    /// Processes up to `most` dependents of ended tasks. Returns how many.
    pub(super) fn see_to_dependents(&mut self, most: usize) -> usize {
        let mut left = most;
        while left > 0
            && let Some((slot, reached)) = self.freed.pop_first()
        {
            let state = self.task(slot).state.name();
            let mut waiting = self.dependents_of(slot);
            waiting.retain(|dependent| *dependent > reached);
            waiting.truncate(left);
            for dependent in &waiting {
                let verdict = release(self.entry(*dependent).on_failed, Some(state));
                self.tell_dependent(*dependent, slot, verdict);
            }
            if waiting.len() == left
                && let Some(last) = waiting.last()
            {
                self.freed.insert(slot, *last);
            }
            left -= waiting.len();
        }
        most - left
    }

    /// Whether an ended task may be removed. Its remaining dependents are released first, at most `left` of them; the task is kept
    /// while any is left.
    pub(super) fn let_go(&mut self, slot: Slot, left: &mut usize) -> bool {
        let waiting = self.dependents_of(slot);
        if waiting.is_empty() {
            self.freed.remove(&slot);
            return true;
        }
        if self.freed.contains_key(&slot) {
            return false;
        }
        let seen_to = waiting.len().min(*left);
        for dependent in &waiting[..seen_to] {
            let verdict = release(self.entry(*dependent).on_failed, None);
            self.tell_dependent(*dependent, slot, verdict);
        }
        *left -= seen_to;
        seen_to == waiting.len()
    }

    /// When the first of the ended tasks with unprocessed dependents ended; not later than now, even if the clock was changed.
    pub(super) fn next_freed(&self) -> Option<Timestamp> {
        let ended = self.freed.keys().filter_map(|slot| match self.entries[slot].task.state {
            State::Completed { finished_at }
            | State::Failed { finished_at, .. }
            | State::Cancelled { finished_at, .. } => Some(finished_at),
            State::Queued { .. } | State::Claimed { .. } | State::Running { .. } => None,
        });
        ended.min().map(|ended| ended.min(self.now))
    }

    fn dependents_of(&self, slot: Slot) -> Vec<Slot> {
        let waits = |(_, entry): &(&Slot, &super::state::TaskEntry)| entry.after.contains(&slot);
        self.entries.iter().filter(waits).map(|(dependent, _)| *dependent).collect()
    }

    fn tell_dependent(&mut self, dependent: Slot, other: Slot, verdict: Release) {
        match verdict {
            Release::Waits => {}
            Release::Cancelled => self.cancel_dependent(dependent),
            Release::Satisfied => {
                let after = &mut self.entry(dependent).after;
                after.remove(&other);
                if after.is_empty() {
                    self.come_forward(dependent);
                }
            }
        }
    }

    fn cancel_dependent(&mut self, slot: Slot) {
        let (finished_at, reason) = (self.now, CancelReason::Dependency);
        self.end(slot, State::Cancelled { finished_at, reason });
    }
}
