//! Logs: the events of a task, page by page, until the task has ended.

use ostler_core::{EventKind, EventKinds, TaskId};
use ostler_store::Store;
use ostler_store::events::{Event, EventQuery};
use ostler_store::views::TaskRef;

use crate::error::{Missing, OpsError};

/// Reads the events of a task in order.
#[derive(Clone, Debug)]
pub struct LogTail {
    task: TaskId,
    kinds: EventKinds,
    /// The number of the last event that was read.
    after: u64,
    /// Whether the task had ended before the events of this round were read.
    ended: Option<TaskEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskEnd {
    Ended,
    NotYet,
}

/// What a [`LogTail`] read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPage {
    /// The next events.
    Events(Vec<Event>),
    /// All events so far were read; more may follow. A caller that follows asks again after a [change](Store::changes).
    UpToDate,
    /// The task has ended, and all of its events were read.
    Ended,
}

impl LogTail {
    /// Reads events with a number above `after`, without the raw lines of agents: other events have what was read from them.
    #[must_use]
    pub const fn new(task: TaskId, after: u64) -> Self {
        Self { task, kinds: EventKinds::ALL.without(EventKind::Raw), after, ended: None }
    }

    /// The same, with the raw lines of agents.
    #[must_use]
    pub const fn with_raw(self) -> Self {
        Self { kinds: EventKinds::ALL, ..self }
    }

    /// # Errors
    /// When the task was removed, or the store cannot be read.
    pub async fn next(&mut self, store: &dyn Store) -> Result<LogPage, OpsError> {
        // The state is read before the events, so that all events of an ended task are read.
        let ended = match self.ended {
            Some(ended) => ended,
            None => {
                let found = store.show(TaskRef::Id(self.task)).await?.ok_or(Missing::Removed(self.task))?;
                if found.task.state.name().is_terminal() { TaskEnd::Ended } else { TaskEnd::NotYet }
            }
        };
        self.ended = Some(ended);
        let query = EventQuery { kinds: self.kinds, after: self.after, ..EventQuery::default() };
        let events = store.read_events(self.task, query).await?;
        if let Some(newest) = events.last() {
            self.after = newest.number;
            return Ok(LogPage::Events(events));
        }
        self.ended = None;
        Ok(match ended {
            TaskEnd::Ended => LogPage::Ended,
            TaskEnd::NotYet => LogPage::UpToDate,
        })
    }
}
