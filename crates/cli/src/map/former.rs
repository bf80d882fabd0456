//! Earlier runs of the same command, folder, options and items: resumed, skipped because complete (`--once`), or superseded by a
//! new job (`--fresh`).

use anyhow::Context as _;
use ostler_core::{JobId, StateName, Timestamp};
use ostler_ops::jobs::{self, JobSpec, manage};
use ostler_store::Store;
use ostler_store::calls::QueueChange;
use ostler_store::jobs::{JobChange, JobRecord, queue_of};
use ostler_wire::job::JobState;

use super::plan::MapPlan;
use crate::args::Map;
use crate::print::ago;

pub(crate) struct ChosenJob {
    pub(crate) what: JobChoice,
    /// A message about the earlier run, if there is one.
    pub(crate) remark: Option<String>,
}

pub(crate) enum JobChoice {
    /// Run this job, which is new or resumed.
    Do(JobId),
    /// Nothing: this job has done everything.
    Nothing(Box<JobRecord>),
}

/// What happens to an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormerJobFate {
    /// Continue it: only unfinished items run.
    Resume,
    /// It is complete, and counts.
    Enough,
    /// A new job runs all items again.
    Supersede,
}

fn fate(map: &Map, state: JobState) -> FormerJobFate {
    match state {
        _ if map.fresh => FormerJobFate::Supersede,
        JobState::Completed if map.once => FormerJobFate::Enough,
        JobState::Completed => FormerJobFate::Supersede,
        JobState::Running
        | JobState::Unfinished
        | JobState::Paused
        | JobState::Failed
        | JobState::Cancelled => FormerJobFate::Resume,
    }
}

/// Finds the job to resume, or creates a new one.
pub(crate) async fn choose(
    store: &dyn Store,
    plan: &MapPlan,
    spec: &JobSpec,
    map: &Map,
    now: Timestamp,
) -> anyhow::Result<ChosenJob> {
    let former = jobs::made_from(store, plan.fingerprint()).await?;
    let fate = former.as_ref().map(|found| fate(map, JobState::of(found)));
    match (former, fate) {
        (Some(found), Some(FormerJobFate::Resume)) => {
            let remark = Some(resume(store, &found, now).await?);
            Ok(ChosenJob { what: JobChoice::Do(found.job.id), remark })
        }
        (Some(found), Some(FormerJobFate::Enough)) => {
            let remark =
                format!("all {} items are already done ({})", found.job.items, ago(now, found.made_at));
            Ok(ChosenJob { what: JobChoice::Nothing(Box::new(found)), remark: Some(remark) })
        }
        (former, _) => {
            // The new job comes first: if this is interrupted, the next run finds the new job, not the one given up here.
            let id = JobId(ostler::ids().context("cannot get random bytes from the system")?());
            store.put_job(plan.job(id, spec)?).await?;
            let remark = match former {
                Some(found) => give_up(store, &found, now).await?,
                None => None,
            };
            Ok(ChosenJob { what: JobChoice::Do(id), remark })
        }
    }
}

/// Resumes a job, and tells the user what is skipped.
async fn resume(store: &dyn Store, found: &JobRecord, now: Timestamp) -> anyhow::Result<String> {
    let id = found.job.id;
    store.change_job(id, JobChange::Reopen).await?;
    if found.paused.is_some() {
        store.configure(&queue_of(id), vec![QueueChange::Resume]).await?;
    }
    let again = manage::replay_tasks(store, id, &[StateName::Failed, StateName::Cancelled]).await?;
    Ok(resumed(found, again, now))
}

fn resumed(found: &JobRecord, again: usize, now: Timestamp) -> String {
    let (id, items, done) = (found.job.id, found.job.items, found.counts.completed);
    let mut remark = format!(
        "resuming job {id}, created {}: {done} of {items} items are already done",
        ago(now, found.made_at)
    );
    if again > 0 {
        remark.push_str(&format!(", retrying {again}"));
    }
    if found.pruned > 0 {
        remark.push_str(&format!("; {} completed items were pruned and run again", found.pruned));
    }
    if done > 0 {
        remark.push_str(&format!("; --fresh runs all {items}"));
    }
    remark
}

/// Cancels the unfinished items of a superseded job. A job that is running now is left alone.
async fn give_up(store: &dyn Store, found: &JobRecord, now: Timestamp) -> anyhow::Result<Option<String>> {
    let (id, counts) = (found.job.id, &found.counts);
    if counts.queued + counts.claimed + counts.running == 0 {
        return Ok(None);
    }
    if let Some(node) = jobs::server(&store.survey().await?, id) {
        return Ok(Some(format!("job {id} with the same items is still running in process {}", node.pid)));
    }
    let left = manage::cancel_tasks(store, id).await?;
    let items = if left == 1 { "item" } else { "items" };
    Ok(Some(format!("cancelled {left} unfinished {items} of job {id}, created {}", ago(now, found.made_at))))
}

#[cfg(test)]
mod tests {
    use ostler_core::Id;
    use ostler_store::jobs::NewJob;
    use ostler_store::views::Counts;

    use super::*;

    #[test]
    fn what_is_skipped_is_said_with_its_age() {
        let job = NewJob {
            id: JobId(Id::from_bits(1)),
            name: "j".to_owned(),
            fingerprint: "f".to_owned(),
            spec: "{}".to_owned(),
            items: 3,
        };
        let counts = Counts { completed: 2, failed: 1, ..Counts::default() };
        let (made_at, now) = (Timestamp::ZERO, Timestamp::from_millis(86_400_000));
        let record = JobRecord { job, made_at, cancelled_at: None, paused: None, counts, pruned: 0 };
        let id = record.job.id;
        assert_eq!(
            resumed(&record, 1, now),
            format!(
                "resuming job {id}, created 1d ago: 2 of 3 items are already done, retrying 1; --fresh runs all 3"
            )
        );
        let none = JobRecord { counts: Counts { failed: 3, ..Counts::default() }, ..record };
        assert_eq!(
            resumed(&none, 3, now),
            format!("resuming job {id}, created 1d ago: 0 of 3 items are already done, retrying 3")
        );
    }
}
