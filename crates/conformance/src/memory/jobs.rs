//! Jobs: stored by id, each with its own queue.

use std::time::Duration;

use ostler_core::JobId;

use super::state::MemoryState;
use ostler_store::jobs::{
    FORMER_JOBS, JobAnswer, JobChange, JobFilter, JobPut, JobRecord, MAX_JOBS_PRUNED, NewJob, queue_of,
};
use ostler_store::views::Counts;

impl MemoryState {
    pub(super) fn put_job(&mut self, job: NewJob) -> JobPut {
        if self.jobs.contains_key(&job.id) {
            return JobPut::Existing;
        }
        let (made_at, counts) = (self.now, Counts::default());
        let record = JobRecord { job, made_at, cancelled_at: None, paused: None, counts, pruned: 0 };
        self.jobs.insert(record.job.id, record);
        self.rings.control = true;
        JobPut::Created
    }

    pub(super) fn change_job(&mut self, job: JobId, change: JobChange) -> JobAnswer {
        let now = self.now;
        let Some(kept) = self.jobs.get_mut(&job) else { return JobAnswer::NotFound };
        match change {
            JobChange::Cancel => {
                kept.cancelled_at.get_or_insert(now);
            }
            JobChange::Reopen => kept.cancelled_at = None,
            JobChange::Grow(items) => kept.job.items = kept.job.items.max(items),
            JobChange::Remove if self.has_tasks(job) => return JobAnswer::HasTasks,
            JobChange::Remove => self.remove_job(job),
        }
        self.rings.control = true;
        JobAnswer::Done
    }

    pub(super) fn jobs(&self, filter: &JobFilter, limit: usize) -> Vec<JobRecord> {
        let wanted = |record: &&JobRecord| {
            let job = &record.job;
            filter.id.is_none_or(|id| id == job.id)
                && filter.fingerprint.as_ref().is_none_or(|made_from| *made_from == job.fingerprint)
                && filter.before.is_none_or(|before| job.id < before)
        };
        self.jobs.values().rev().filter(wanted).take(limit).map(|record| self.job_now(record)).collect()
    }

    fn job_now(&self, record: &JobRecord) -> JobRecord {
        let queue = queue_of(record.job.id);
        let mut counts = Counts::default();
        for lane in self.survey().lanes.into_iter().filter(|lane| lane.queue == queue) {
            counts = counts.plus(lane.counts);
        }
        let pruned = self.lanes.iter().filter(|((name, _), _)| *name == queue);
        JobRecord {
            paused: self.queues.get(&queue).and_then(|kept| kept.settings.paused.clone()),
            counts,
            pruned: pruned.map(|(_, lane)| lane.pruned.submitted()).sum(),
            ..record.clone()
        }
    }

    /// Removes jobs that are older than `age` and have no tasks, the oldest first, with their queues.
    pub(super) fn prune_jobs(&mut self, age: Duration) {
        let cutoff = self.now.before(age);
        let mut old: Vec<(_, JobId)> = self
            .jobs
            .values()
            .filter(|record| record.made_at < cutoff && !self.has_tasks(record.job.id))
            .map(|record| (record.made_at, record.job.id))
            .collect();
        old.sort_unstable();
        for (_, job) in old.into_iter().take(MAX_JOBS_PRUNED) {
            self.remove_job(job);
        }
    }

    fn has_tasks(&self, job: JobId) -> bool {
        self.entries.values().any(|entry| entry.task.queue == queue_of(job))
    }

    fn remove_job(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.forget_spending(&queue_of(job));
        self.drop_queue(&queue_of(job));
    }

    /// Removes a queue without tasks. Its counters are added to those of former jobs.
    fn drop_queue(&mut self, queue: &str) {
        let high_water = self.queues.remove(queue).map_or(0, |gone| gone.high_water);
        let kinds: Vec<String> =
            self.lanes.keys().filter(|(name, _)| name == queue).map(|(_, kind)| kind.clone()).collect();
        for kind in kinds {
            let Some(lane) = self.lanes.remove(&(queue.to_owned(), kind.clone())) else { continue };
            let jobs = self.queues.entry(FORMER_JOBS.to_owned()).or_default();
            jobs.high_water = jobs.high_water.max(high_water);
            let former = self.lanes.entry((FORMER_JOBS.to_owned(), kind)).or_default();
            former.pruned = former.pruned.plus(lane.pruned);
            former.tally = former.tally.plus(lane.tally);
        }
    }
}
