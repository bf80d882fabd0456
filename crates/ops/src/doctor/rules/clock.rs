//! Rules about the clock: impossible times.

use std::time::Duration;

use ostler_core::Timestamp;

use super::{Finding, about, seen};
use crate::doctor::facts::{DoctorFacts, StoreFacts};

/// The start of 2024. Ostler did not exist before, so an earlier time is wrong.
const EARLIEST: Timestamp = Timestamp::from_millis(1_704_067_200_000);
/// Clocks may differ a little, and an examination takes time.
const TOLERANCE: Duration = Duration::from_secs(60);

pub(super) fn findings(facts: &DoctorFacts) -> Option<Finding> {
    let now = facts.now;
    let advice = "Set the clock, and keep it synchronized (timedatectl set-ntp true)";
    if now < EARLIEST {
        let sentence = "The clock of this machine is before 2024: recorded times will be wrong, and scheduled \
                        tasks will not run";
        return Some(Finding::error("clock-unset", sentence, advice));
    }
    let (latest, what) = latest(seen(facts)?)?;
    (latest > now.after(TOLERANCE)).then(|| {
        let ahead = about(latest.since(now));
        let sentence = format!(
            "The clock went back: {what} is {ahead} in the future. Until then, retries and scheduled tasks may \
             run late"
        );
        Finding::warning("clock-jumped", sentence, advice)
    })
}

/// The latest time in the store that must have passed.
fn latest(seen: &StoreFacts) -> Option<(Timestamp, String)> {
    let nodes =
        seen.survey.nodes.iter().map(|node| (node.joined_at, format!("the start of node \"{}\"", node.name)));
    let workers =
        seen.survey.workers.iter().map(|record| (record.last_seen, "the report of a worker".to_owned()));
    let tasks =
        seen.newest.tasks.iter().map(|task| (task.created_at, format!("the submission of task {}", task.id)));
    nodes.chain(workers).chain(tasks).max_by_key(|(moment, _)| *moment)
}
