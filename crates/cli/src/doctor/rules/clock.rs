//! The clock: moments that cannot be.

use std::time::Duration;

use ostler_core::Timestamp;

use super::super::facts::{DoctorFacts, StoreFacts};
use super::{Finding, about, error, seen, warning};

/// The first moment of 2024: before that there was no Ostler, and so it is not now.
const EARLIEST: Timestamp = Timestamp::from_millis(1_704_067_200_000);
/// Clocks may differ a little, and a look takes a moment.
const TOLERANCE: Duration = Duration::from_secs(60);

pub(super) fn findings(facts: &DoctorFacts) -> Option<Finding> {
    let now = facts.now;
    let advice = "Set the clock, and keep it right with a time service (timedatectl set-ntp true)";
    if now < EARLIEST {
        let sentence = "The clock of this machine shows a time before 2024: times that are kept will be wrong, and scheduled \
                        tasks will not run";
        return Some(error("clock-unset", sentence, advice));
    }
    let (latest, what) = latest(seen(facts)?)?;
    (latest > now.after(TOLERANCE)).then(|| {
        let ahead = about(latest.since(now));
        let sentence = format!(
            "The clock went back: {what} has a time that is {ahead} ahead of now. Until then, retries and scheduled tasks may \
             run late"
        );
        warning("clock-jumped", sentence, advice)
    })
}

/// The latest moment that the store has and that must have passed.
fn latest(seen: &StoreFacts) -> Option<(Timestamp, String)> {
    let nodes =
        seen.survey.nodes.iter().map(|node| (node.joined_at, format!("the start of node \"{}\"", node.name)));
    let workers =
        seen.survey.workers.iter().map(|record| (record.last_seen, "the report of a worker".to_owned()));
    let tasks =
        seen.newest.tasks.iter().map(|task| (task.created_at, format!("the submission of task {}", task.id)));
    nodes.chain(workers).chain(tasks).max_by_key(|(moment, _)| *moment)
}
