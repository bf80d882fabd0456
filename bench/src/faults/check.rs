//! Checks after a fault run.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_core::{Ending, StateName, TaskId};
use ostler_store::Store;
use ostler_store::views::TaskRef;

use super::effect::Effects;
use super::every_task;
use crate::Error;

/// The header of the table.
pub(super) const HEADER: &str = "\
| faults | how many | acknowledged | refused | runs | lost | not completed | completed twice | two at once | left behind | recovery p50 / max | took |
|---|---|---|---|---|---|---|---|---|---|---|---|";

/// The result of the checks.
pub(super) struct Found {
    faults: usize,
    acknowledged: usize,
    refused: u64,
    lost: usize,
    not_completed: usize,
    twice: usize,
    left: usize,
    effects: Effects,
    took: Duration,
}

/// Looks up every acknowledged task, and checks every attempt.
pub(super) async fn check(
    store: &dyn Store,
    acknowledged: &[TaskId],
    refused: u64,
    effects: Effects,
    faults: usize,
    left: usize,
    took: Duration,
) -> Result<Found, Error> {
    let tasks = every_task(store).await?;
    let there: BTreeSet<TaskId> = tasks.iter().map(|task| task.id).collect();
    let lost = acknowledged.iter().filter(|id| !there.contains(id)).count();
    let (mut not_completed, mut twice) = (0, 0);
    for task in &tasks {
        not_completed += usize::from(task.state.name() != StateName::Completed);
        let detail = store.show(TaskRef::Id(task.id)).await?.ok_or("a task that is listed is not there")?;
        let ends = detail.attempts.iter().filter_map(|attempt| attempt.end.as_ref());
        twice += usize::from(ends.filter(|end| end.ending == Ending::Success).count() > 1);
    }
    let acknowledged = acknowledged.len();
    Ok(Found { faults, acknowledged, refused, lost, not_completed, twice, left, effects, took })
}

impl Found {
    /// The table row.
    pub(super) fn row(&self, name: &str) -> String {
        let Effects { begun, overlaps, recovery } = &self.effects;
        let recovered = if recovery.len() == 0 {
            "–".to_owned()
        } else {
            format!("{:.2} / {:.2} s", recovery.percentile(50).as_secs_f64(), recovery.max().as_secs_f64())
        };
        format!(
            "| {name} | {} | {} | {} | {begun} | {} | {} | {} | {overlaps} | {} | {recovered} | {:.0} s |",
            self.faults,
            self.acknowledged,
            self.refused,
            self.lost,
            self.not_completed,
            self.twice,
            self.left,
            self.took.as_secs_f64(),
        )
    }

    /// The broken guarantees.
    pub(super) fn broken(&self) -> Vec<String> {
        let counted = [
            (self.lost, "acknowledged tasks are lost"),
            (self.not_completed, "tasks are not completed"),
            (self.twice, "tasks completed twice"),
            (self.left, "children are left behind"),
        ];
        counted
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}
