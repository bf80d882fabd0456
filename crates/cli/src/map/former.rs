//! Tells the user what became of an earlier run of the same command, folder, options and items.

use ostler_core::Timestamp;
use ostler_ops::jobs::former::{ChosenJob, Superseded};
use ostler_store::jobs::JobRecord;

use crate::print::ago;

/// The message about the earlier run, if there is one.
pub(crate) fn remark(chosen: &ChosenJob, now: Timestamp) -> Option<String> {
    match chosen {
        ChosenJob::New(_, None) => None,
        ChosenJob::New(_, Some(Superseded::Running { job, pid })) => {
            Some(format!("job {job} with the same items is still running in process {pid}"))
        }
        ChosenJob::New(_, Some(Superseded::Cancelled { found, items })) => {
            let what = if *items == 1 { "item" } else { "items" };
            let (job, made) = (found.job.id, ago(now, found.made_at));
            Some(format!("cancelled {items} unfinished {what} of job {job}, created {made}"))
        }
        ChosenJob::Resumed { found, again } => Some(resumed(found, *again, now)),
        ChosenJob::Enough(found) => {
            Some(format!("all {} items are already done ({})", found.job.items, ago(now, found.made_at)))
        }
    }
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

#[cfg(test)]
mod tests {
    use ostler_core::{Id, JobId};
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
