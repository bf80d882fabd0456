//! Maintenance: expire, make ready, prune; and the settings of queues.

use std::collections::BTreeSet;

use ostler_core::{
    Outcome, Readiness, SessionId, State, StateName, Task, Timestamp, Wait, in_time_until, lapsed,
};

use super::nodes::is_held_by;
use super::state::{MemoryState, Slot};
use ostler_store::Check;
use ostler_store::Error;
use ostler_store::calls::{Expired, MadeReady, Prune, Pruned, QueueChange, Retention};
use ostler_store::views::{QueueSettings, WorkerEnd};
use ostler_store::{MAX_CASCADE, check_settings};

impl MemoryState {
    pub(super) fn expire(&mut self, batch: usize) -> Expired {
        let uptime = self.uptime;
        let checks = self.checks;
        let dead: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| {
                !session.ended && checks.pass(Check::ExpireDead, session.is_overdue(uptime))
            })
            .map(|(id, _)| *id)
            .collect();
        let mut handed_back = 0;
        for id in &dead {
            if self.session(*id).is_some_and(|session| session.departed) {
                handed_back += self.hand_back_all(*id);
            } else {
                self.end_session(*id, WorkerEnd::NodeDied);
            }
        }
        let ended: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| session.ended).map(|(id, _)| *id).collect();
        let orphans = self.slots(|task| ended.iter().any(|id| is_held_by(task, *id)));
        for slot in orphans.iter().take(batch) {
            self.end_attempt(*slot, &Outcome::NodeDied, None, None, None);
        }
        let tasks = handed_back + orphans.len().min(batch);
        Expired { sessions: dead, tasks, more: orphans.len() > batch }
    }

    pub(super) fn make_ready(&mut self, batch: usize) -> MadeReady {
        let now = self.now;
        let queued = |task: &Task| task.state.name() == StateName::Queued;
        let end = |task: &Task| in_time_until(task.not_after, task.deadline);
        let mut late = self.slots(|task| queued(task) && lapsed(end(task), now));
        late.sort_by_key(|slot| (end(&self.entries[slot].task), *slot));
        late.truncate(batch);
        for slot in &late {
            self.end_late(*slot);
        }
        let seen_to = self.see_to_dependents(batch - late.len());
        self.frees = false;
        let mut due = self.slots(|task| waits_until(task).is_some_and(|run_at| run_at <= now));
        due.sort_by_key(|slot| (waits_until(&self.entries[slot].task), *slot));
        due.truncate(batch - late.len() - seen_to);
        for slot in &due {
            self.come_forward(*slot);
        }
        let keys = self.settle_due_keys(None, batch - late.len() - seen_to - due.len());
        let next_due = self.entries.values().filter_map(|entry| waits_until(&entry.task)).min();
        let next_key = self.key_moments(None).into_iter().map(|(until, _, _)| until).min();
        let next_late = self
            .entries
            .values()
            .filter(|entry| queued(&entry.task))
            .filter_map(|entry| end(&entry.task))
            .map(|end| Timestamp::from_millis(end.millis().saturating_add(1)))
            .min();
        let next = [next_due, next_late, next_key, self.next_freed()].into_iter().flatten().min();
        MadeReady { due: due.len() + keys, expired: late.len(), freed: seen_to, next }
    }

    pub(super) fn configure(
        &mut self,
        name: &str,
        changes: Vec<QueueChange>,
    ) -> Result<QueueSettings, Error> {
        let before = self.queues.get(name).map(|queue| queue.settings.clone()).unwrap_or_default();
        if changes.is_empty() {
            return Ok(before);
        }
        let mut settings = before.clone();
        changes.iter().for_each(|change| settings.apply(change.clone()));
        check_settings(&settings)?;
        let mut keys = BTreeSet::new();
        for change in changes {
            keys.extend(self.change_gates(name, &change));
            // A caller that waits for the gate of the queue asks again.
            self.rings.ready |= change.moves_gates();
            if let QueueChange::Unsubscribe(subscriber) = &change {
                self.drop_entries(name, subscriber);
            }
            self.queues.entry(name.to_owned()).or_default().settings.apply(change);
        }
        self.change_budgets(name, &before);
        let settings = self.queues.get(name).map(|queue| queue.settings.clone()).unwrap_or_default();
        // The ready tasks of a resumed queue can be claimed again.
        self.rings.ready |= before.paused.is_some() && settings.paused.is_none();
        let rules = |settings: &QueueSettings| (settings.key_concurrency, settings.key_rules());
        if rules(&before) != rules(&settings) {
            keys.extend(self.keys_of(name));
        }
        for key in keys {
            self.settle_key(name, &key);
        }
        Ok(settings)
    }

    pub(super) fn prune(&mut self, what: &Prune) -> Pruned {
        match what {
            Prune::Tasks(ids) => {
                let ended: Vec<Slot> = ids
                    .iter()
                    .filter_map(|id| self.slot_of(*id))
                    .filter(|slot| self.entries[slot].task.state.name().is_terminal())
                    .collect();
                let mut left = MAX_CASCADE;
                let tasks = ended.into_iter().filter(|slot| self.remove(*slot, &mut left)).count();
                Pruned { tasks, orphans: 0, more: false }
            }
            Prune::Retention(keep) => self.prune_by_age_and_count(keep),
            // Nothing here outlives its task.
            Prune::Orphans { .. } => Pruned::default(),
        }
    }

    fn prune_by_age_and_count(&mut self, keep: &Retention) -> Pruned {
        let (mut left, mut tasks, mut cascade) = (keep.batch, 0, MAX_CASCADE);
        for (state, age) in [
            (StateName::Completed, keep.completed),
            (StateName::Failed, keep.failed),
            (StateName::Cancelled, keep.completed),
        ] {
            let cutoff = self.now.before(age);
            let mut ended = self.slots(|task| task.state.name() == state);
            ended.sort_by_key(|slot| (finished_at(&self.entries[slot].task), *slot));
            let excess = ended.len().saturating_sub(usize::try_from(keep.most).unwrap_or(usize::MAX));
            let old =
                ended.iter().filter(|slot| finished_at(&self.entries[slot].task) < Some(cutoff)).count();
            ended.truncate(old.max(excess).min(left));
            left -= ended.len();
            tasks += ended.into_iter().filter(|slot| self.remove(*slot, &mut cascade)).count();
        }
        self.prune_jobs(keep.completed.max(keep.failed));
        self.prune_costs();
        Pruned { tasks, orphans: 0, more: left == 0 && tasks > 0 }
    }

    /// Removes a task, unless it has too many dependents: then the next call continues with it.
    fn remove(&mut self, slot: Slot, cascade: &mut usize) -> bool {
        if !self.entries.contains_key(&slot) || !self.let_go(slot, cascade) {
            return false;
        }
        let Some(entry) = self.entries.remove(&slot) else { return false };
        self.tellings.retain(|kept| kept.slot != slot);
        let task = entry.task;
        if let Some(key) = &task.limit_key {
            self.leave_key(&task.queue, key);
        }
        let pruned = &mut self.lanes.entry((task.queue, task.kind)).or_default().pruned;
        *pruned.of(task.state.name()) += 1;
        true
    }

    /// Removes a task from its limit key. A key without tasks is dropped, and starts anew when it is used again: keys are not
    /// kept forever.
    pub(super) fn leave_key(&mut self, queue: &str, key: &str) {
        let same = |task: &Task| task.queue == queue && task.limit_key.as_deref() == Some(key);
        if self.slots(same).is_empty() {
            self.forget_key(queue, key);
        }
    }
}

/// The time a task waits for, if it waits for one.
fn waits_until(task: &Task) -> Option<Timestamp> {
    match task.state {
        State::Queued { readiness: Readiness::Waiting, why, run_at } if why != Wait::Dependency => {
            Some(run_at)
        }
        State::Queued { .. }
        | State::Claimed { .. }
        | State::Running { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    }
}

fn finished_at(task: &Task) -> Option<Timestamp> {
    match task.state {
        State::Completed { finished_at }
        | State::Failed { finished_at, .. }
        | State::Cancelled { finished_at, .. } => Some(finished_at),
        State::Queued { .. } | State::Claimed { .. } | State::Running { .. } => None,
    }
}
