//! Tasks that wait for others: who waits for whom, and what an end means for those who wait.

use std::collections::BTreeSet;

use ostler_core::{CancelReason, OnFailed, Readiness, Release, State, TaskId, Timestamp, Wait, release};

use super::state::{MemoryState, Slot};

impl MemoryState {
    /// The places of these tasks, or the first one that is not there.
    pub(super) fn places(&self, ids: &[TaskId]) -> Result<BTreeSet<Slot>, TaskId> {
        ids.iter().map(|id| self.slot_of(*id).ok_or(*id)).collect()
    }

    /// A new task comes into its queue, or waits for those of `others` that hold it up, or is cancelled with them.
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

    /// A task has ended: it waits for nobody, and whoever waited for it is seen to when the verb is done.
    pub(super) fn note_freed(&mut self, slot: Slot) {
        let entry = self.entry(slot);
        entry.after.clear();
        if entry.awaited {
            self.freed.insert(slot, 0);
            self.frees = true;
        }
    }

    /// A task whose place in line is known is ready, or waits for its time, its key, or for others.
    pub(super) fn arrive_or_wait(&mut self, slot: Slot) {
        let State::Queued { why, run_at, .. } = self.task(slot).state else { return };
        if self.entry(slot).after.is_empty() {
            return self.arrive(slot, run_at, why);
        }
        let (readiness, why) = (Readiness::Waiting, Wait::Dependency);
        self.task(slot).state = State::Queued { readiness, why, run_at };
    }

    /// A task that waited, for a moment or for others, waits no more. Its turn is as of now: a night's worth of scheduled tasks
    /// must not go before everybody else's.
    pub(super) fn come_forward(&mut self, slot: Slot) {
        let State::Queued { why, run_at, .. } = self.task(slot).state else { return };
        if matches!(why, Wait::Scheduled | Wait::Dependency) {
            self.place(slot, run_at);
        }
        self.arrive(slot, run_at, why);
    }

    /// Sees to up to `most` of those who wait for tasks that have ended. Answers how many.
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

    /// Whether an ended task may be removed. Those who still wait for it do not any more, as far as `left` goes: they are
    /// what it is kept for.
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

    /// When the first of the ended tasks that others wait for had ended; not later than now, wherever a clock was set.
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
