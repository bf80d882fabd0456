//! Rules about jobs of `ostler map`: unfinished jobs that no process is running, and failed items. No pool of a config can serve
//! them, so the advice differs from that for queues.

use ostler_core::Task;
use ostler_core::visible;
use ostler_store::jobs::JobRecord;
pub(super) use ostler_store::jobs::job_of as of_queue;
use ostler_store::views::Survey;

use super::tasks::{counted, most_often, often};
use super::{Finding, tasks, word};
use crate::doctor::facts::{Sample, StoreFacts};
use crate::jobs::pilot::APPROVALS;
use crate::jobs::{JobRunner, server};

/// Whether no pool of a config can serve this queue: it is that of a job, or that of approvals, which wait for a person.
pub(super) fn needs_no_pool(queue: &str) -> bool {
    of_queue(queue).is_some() || queue == APPROVALS
}

pub(super) fn findings(seen: &StoreFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.jobs.iter().filter_map(|job| unfinished(&seen.survey, job)).collect();
    let failed: Vec<&Task> =
        seen.failed.tasks.iter().filter(|task| of_queue(&task.queue).is_some()).collect();
    found.extend(failed_items(&failed, &seen.failed));
    found
}

/// An unfinished job that no node is running. A paused one is reported with its queue.
fn unfinished(survey: &Survey, record: &JobRecord) -> Option<Finding> {
    let (id, counts) = (record.job.id, &record.counts);
    let left = counts.open();
    if left == 0 || record.paused.is_some() || server(survey, id).is_some() {
        return None;
    }
    let sentence = format!(
        "No process is running job \"{}\" ({id}): {} of its {} items",
        visible(&record.job.name),
        tasks(left, "is left", "are left"),
        record.job.items
    );
    let go_on = match JobRunner::of(record) {
        JobRunner::Node => {
            "It was left to a node: start one with its pool, or with serve_jobs = true if it has none"
                .to_owned()
        }
        JobRunner::Program => "Start the program again that made it".to_owned(),
        JobRunner::Mapper { folder } => {
            let folder = folder.map(|folder| format!(" in {}", word(&folder))).unwrap_or_default();
            format!("To continue, run the same \"ostler map\" command again{folder}")
        }
    };
    let advice = format!("{go_on}. To give it up: ostler job cancel {id}; to remove it: ostler job rm {id}");
    Some(Finding::warning("job-unfinished", sentence, advice))
}

fn failed_items(failed: &[&Task], sample: &Sample) -> Option<Finding> {
    let (reason, times) = most_often(failed)?;
    let sentence = format!(
        "{} of jobs{}: \"{}\"",
        counted(failed.len(), sample, "has failed for good: an item", "have failed for good: items"),
        often(failed.len(), times),
        visible(&reason)
    );
    let advice = "See ostler job ls and ostler job show JOB. To retry them, run the same \"ostler map\" command again; when they are \
                  no longer needed: ostler job rm JOB";
    Some(Finding::warning("job-items-failed", sentence, advice))
}
