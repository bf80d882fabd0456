//! The jobs of `ostler map`: items that are left although nobody runs the job, and items that failed. No pool of a config can serve
//! them, so the advice is another than for queues.

use ostler_core::Task;
use ostler_store::jobs::JobRecord;
use ostler_store::views::Survey;

use super::super::facts::{Sample, StoreFacts};
use super::tasks::{counted, most_often};
use super::{Finding, tasks, warning, word};
pub(super) use crate::map::job::of_queue;
use crate::map::job::server;
use crate::map::plan::{ServedBy, Spec};
use crate::print::visible;

pub(super) fn findings(seen: &StoreFacts) -> Vec<Finding> {
    let mut found: Vec<Finding> = seen.jobs.iter().filter_map(|job| unfinished(&seen.survey, job)).collect();
    let failed: Vec<&Task> =
        seen.failed.tasks.iter().filter(|task| of_queue(&task.queue).is_some()).collect();
    found.extend(failed_items(&failed, &seen.failed));
    found
}

/// A job with items left that nobody works on. One that is paused is told of as its queue is.
fn unfinished(survey: &Survey, record: &JobRecord) -> Option<Finding> {
    let (id, counts) = (record.job.id, &record.counts);
    let left = counts.queued + counts.claimed + counts.running;
    if left == 0 || record.paused.is_some() || server(survey, id).is_some() {
        return None;
    }
    let sentence = format!(
        "Nobody runs the job \"{}\" ({id}): {} of its {} items",
        visible(&record.job.name),
        tasks(left, "is left", "are left"),
        record.job.items
    );
    let spec = serde_json::from_str::<Spec>(&record.job.spec).ok();
    let go_on = match spec.as_ref().map(|spec| spec.served_by) {
        Some(ServedBy::Node) => {
            "It was left to a node: start one whose config has serve_jobs = true".to_owned()
        }
        Some(ServedBy::Mapper) | None => {
            let folder = spec.map(|spec| format!(" in {}", word(&spec.folder))).unwrap_or_default();
            format!("To go on, run the same \"ostler map\" line again{folder}")
        }
    };
    let advice =
        format!("{go_on}. To give it up: ostler job cancel {id}, or ostler job rm {id}, which removes it");
    Some(warning("job-unfinished", sentence, advice))
}

fn failed_items(failed: &[&Task], sample: &Sample) -> Option<Finding> {
    let (reason, times) = most_often(failed)?;
    let sentence = format!(
        "{} of jobs; most often ({times}): \"{}\"",
        counted(failed.len(), sample, "has failed for good: an item", "have failed for good: items"),
        visible(&reason)
    );
    let advice = "See ostler job ls and ostler job show JOB. To try them again, run the same \"ostler map\" line again; when they are \
                  not needed any more: ostler job rm JOB";
    Some(warning("job-items-failed", sentence, advice))
}
