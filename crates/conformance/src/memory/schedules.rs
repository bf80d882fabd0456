//! Schedules: stored, paused, and fired once for each time.

use ostler_core::{CancelReason, Fire, StateName, fire};

use super::state::{MemoryState, Slot};
use ostler_store::Check;
use ostler_store::MAX_SCHEDULES;
use ostler_store::calls::NewTask;
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord, Skipped,
};

impl MemoryState {
    pub(super) fn put_schedule(&mut self, schedule: Schedule) -> PutAnswer {
        if !self.schedules.contains_key(&schedule.name) && self.schedules.len() >= MAX_SCHEDULES {
            return PutAnswer::TooMany { limit: MAX_SCHEDULES };
        }
        self.rings.control = true;
        let Some(kept) = self.schedules.get_mut(&schedule.name) else {
            let (name, activity) = (schedule.name.clone(), Activity::Active);
            let record = ScheduleRecord { schedule, activity, last_at: None, last_task: None };
            self.schedules.insert(name, record);
            return PutAnswer::Created;
        };
        let same = kept.schedule.spec == schedule.spec;
        let next_at = if same { kept.schedule.next_at } else { schedule.next_at };
        kept.schedule = Schedule { next_at, ..schedule };
        PutAnswer::Replaced
    }

    pub(super) fn change_schedule(&mut self, name: &str, change: ScheduleChange) -> ScheduleAnswer {
        let Some(kept) = self.schedules.get_mut(name) else { return ScheduleAnswer::NotFound };
        match change {
            ScheduleChange::Remove => drop(self.schedules.remove(name)),
            ScheduleChange::Set(activity) => {
                kept.activity = activity;
                self.rings.control = true;
            }
        }
        ScheduleAnswer::Done
    }

    pub(super) fn fire(&mut self, firing: Firing) -> Fired {
        let (now, checks) = (self.now, self.checks);
        let Some(kept) = self.schedules.get_mut(&firing.schedule) else { return Fired::NotDue };
        let is_next = checks.pass(Check::FireExpected, kept.schedule.next_at == Some(firing.expected));
        if !is_next || kept.activity == Activity::Paused || firing.expected > now {
            return Fired::NotDue;
        }
        kept.schedule.next_at = firing.next;
        let (overlap, before) = (kept.schedule.overlap, kept.last_task);
        let Some(task) = firing.task else { return Fired::Skipped(Skipped::Missed) };
        if self.slot_of(task.id).is_some() {
            return Fired::Skipped(Skipped::Existing(task.id));
        }
        let before = before.and_then(|id| self.slot_of(id));
        let state = before.map(|slot| self.task(slot).state.name());
        let replaced = match (fire(overlap, state), before) {
            (Fire::Skip, Some(before)) => {
                return Fired::Skipped(Skipped::Overlap(self.task(before).id));
            }
            (Fire::Replace, Some(before)) => Some(before),
            (Fire::Enqueue | Fire::Skip | Fire::Replace, _) => None,
        };
        self.run_schedule(&firing.schedule, task, replaced)
    }

    /// Enqueues a run, replacing the previous one if there is one to replace.
    fn run_schedule(&mut self, name: &str, task: NewTask, replaced: Option<Slot>) -> Fired {
        let queue = task.queue.clone();
        let (now, run) = (self.now, task.id);
        let limit = self.queues.get(&queue).and_then(|queue| queue.settings.limit);
        // A queued run that is replaced makes room.
        let waiting = self.slots(|task| task.queue == queue && task.state.name() == StateName::Queued);
        let waiting = waiting.iter().filter(|slot| Some(**slot) != replaced).count() as u64;
        if let Some(limit) = limit.filter(|limit| waiting >= *limit) {
            return Fired::Skipped(Skipped::QueueFull { limit });
        }
        let before = replaced.map(|slot| self.task(slot).id);
        if let Some(slot) = replaced {
            self.stop(slot, CancelReason::Replaced);
        }
        self.enqueue(task);
        if let Some(kept) = self.schedules.get_mut(name) {
            (kept.last_at, kept.last_task) = (Some(now), Some(run));
        }
        before.map_or(Fired::Enqueued(run), |before| Fired::Replaced { run, before })
    }
}
