//! Output files of an attempt: recorded after its child has exited, in the time that remains.

use std::time::Duration;

use ostler_core::{ErrorClass, EventBody, Outcome};
use ostler_exec::{AttemptResult, Control, EventSender, Work};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::files::{FilePatterns, search};
use crate::folders::TaskFolder;

/// The files in a task's folder that an attempt will have left.
#[derive(Debug)]
pub struct OutputFiles {
    patterns: FilePatterns,
    folder: Option<TaskFolder>,
    notes: EventSender,
    lost: CancellationToken,
    began: Instant,
    /// Timeout plus grace period.
    most: Duration,
}

impl OutputFiles {
    /// For an attempt that starts now.
    #[must_use]
    pub fn of(patterns: FilePatterns, folder: Option<TaskFolder>, work: &Work, control: &Control) -> Self {
        Self {
            patterns,
            folder,
            notes: control.events.clone(),
            lost: control.lost.clone(),
            began: Instant::now(),
            most: work.timeout.saturating_add(work.grace),
        }
    }

    /// Records the matching files. An attempt that was stopped or timed out has no time left for it.
    pub async fn record(self, ended: &AttemptResult) {
        match &ended.outcome {
            Outcome::Success => {}
            Outcome::Failed(failure) if failure.class != ErrorClass::Timeout => {}
            Outcome::Failed(_) | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled => return,
        }
        let Self { patterns, folder, notes, lost, began, most } = self;
        let Some(folder) = folder else {
            let message = "no files are recorded: the task has no folder of its own";
            return notes.say(EventBody::warning(message.to_owned()));
        };
        let found = notes.clone();
        let mut search = search(folder, patterns, move |note| found.say(note));
        tokio::select! {
            _ = search.done() => {}
            () = lost.cancelled() => {}
            () = tokio::time::sleep(most.saturating_sub(began.elapsed())) => {
                let message = "not all files are recorded: there was no time left to read them";
                notes.say(EventBody::warning(message.to_owned()));
            }
        }
    }
}
