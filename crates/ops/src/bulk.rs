//! Bulk actions: cancel, replay or drop all tasks that match a filter, with a preview, in steps that can be stopped and repeated.
//!
//! A preview counts the tasks and names a cut-off: the time of the store. The action takes only tasks that matched before the cut-off. So
//! one that begins to match later is not touched, such as a dead letter that was replayed since then; and an action that was interrupted
//! is simply repeated with the same cut-off: what it has done no longer matches, and a replayed task that fails again ends after the
//! cut-off.

use ostler_core::{EventBody, EventKind, Readiness, State, StateName, Task, TaskId, Timestamp};
use ostler_store::calls::{Replay, StepsOnReplay};
use ostler_store::events::EventQuery;
use ostler_store::views::{Cursor, Filter, ListOrder};
use ostler_store::{MAX_PAGE, Store, release_all_dependents};
use ostler_wire::action::ActionView;

use crate::act::{Act, act_on};
use crate::error::{OpsError, Refusal};
use crate::selection::MAX_SELECTED;

/// What to do with each task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAct {
    /// Cancels waiting tasks, and asks running ones to stop.
    Cancel,
    /// Requeues failed and cancelled tasks.
    Retry(StepsOnReplay),
    /// Requeues dead letters.
    Replay(StepsOnReplay),
    /// Removes dead letters permanently.
    Drop,
}

impl BulkAct {
    fn act(self) -> Act<'static> {
        match self {
            Self::Cancel => Act::Cancel,
            Self::Retry(steps) => Act::Replay(Replay { steps, payload: None }),
            Self::Replay(steps) => Act::ReplayLetters(Replay { steps, payload: None }),
            Self::Drop => Act::DropLetters,
        }
    }
}

/// Which tasks an action takes.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkPlan {
    pub act: BulkAct,
    pub filter: Filter,
    /// Only tasks that matched before this time of the store.
    pub cutoff: Timestamp,
}

impl BulkPlan {
    /// A plan for all tasks that match now.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn now(store: &dyn Store, act: BulkAct, filter: Filter) -> Result<Self, OpsError> {
        Ok(Self { act, filter, cutoff: store.now().await? })
    }

    /// The number of tasks that the action would take.
    ///
    /// # Errors
    /// When more than [`MAX_SELECTED`] match, or the store cannot be read.
    pub async fn count(&self, store: &dyn Store) -> Result<usize, OpsError> {
        let (mut count, mut run) = (0, BulkRun::new(self.clone()));
        while let Some(page) = run.page(store).await? {
            count += page.len();
            if count > MAX_SELECTED {
                return Err(Refusal::TooManyTasks(MAX_SELECTED).into());
            }
        }
        Ok(count)
    }
}

/// An action under way: one page of tasks after the other.
#[derive(Clone, Debug)]
pub struct BulkRun {
    plan: BulkPlan,
    /// The states that are left to list, and where the first of them continues.
    states: Vec<StateName>,
    after: Option<Cursor>,
}

impl BulkRun {
    #[must_use]
    pub fn new(plan: BulkPlan) -> Self {
        let of_act = plan.act.act().states();
        let states = match plan.filter.state {
            Some(state) => of_act.iter().copied().filter(|known| *known == state).collect(),
            None => of_act.to_vec(),
        };
        Self { plan, states, after: None }
    }

    /// Acts on the next page of tasks, and returns what became of each; `None`: all is done.
    ///
    /// # Errors
    /// When the store fails. What earlier steps did stays done, and the step can be repeated.
    pub async fn step(&mut self, store: &dyn Store) -> Result<Option<Vec<ActionView>>, OpsError> {
        let before = self.clone();
        let Some(ids) = self.page(store).await? else { return Ok(None) };
        let acted = match act_on(store, &ids, &self.plan.act.act()).await {
            Ok(acted) => acted,
            Err(error) => {
                *self = before;
                return Err(error);
            }
        };
        if self.plan.act == BulkAct::Cancel {
            release_all_dependents(store).await?;
        }
        Ok(Some(acted))
    }

    /// The next tasks, which may be none although more follow.
    async fn page(&mut self, store: &dyn Store) -> Result<Option<Vec<TaskId>>, OpsError> {
        let Some(state) = self.states.first().copied() else { return Ok(None) };
        let cutoff = self.plan.cutoff;
        let ended_until = match self.plan.filter.ended_until {
            _ if !state.is_terminal() => self.plan.filter.ended_until,
            Some(asked) => Some(asked.min(cutoff)),
            None => Some(cutoff),
        };
        let filter = Filter {
            state: Some(state),
            ended_until,
            order: ListOrder::NewestFirst,
            ..self.plan.filter.clone()
        };
        let page = store.list(filter, self.after, MAX_PAGE).await?;
        self.after = page.next;
        if page.next.is_none() {
            self.states.remove(0);
        }
        let mut ids = Vec::new();
        for task in &page.tasks {
            if state.is_terminal() || !is_newer(store, task, cutoff).await? {
                ids.push(task.id);
            }
        }
        Ok(Some(ids))
    }
}

/// Whether a task that has not ended was enqueued, or queued again by a replay, at the cut-off or later.
async fn is_newer(store: &dyn Store, task: &Task, cutoff: Timestamp) -> Result<bool, OpsError> {
    if task.created_at >= cutoff {
        return Ok(true);
    }
    // A replayed task is due at once, and waits again only after another attempt.
    let may_be_replayed = match task.state {
        State::Queued { readiness: Readiness::Ready | Readiness::Parked, run_at, .. } => run_at >= cutoff,
        State::Queued { readiness: Readiness::Waiting, .. } => {
            task.token > 0 && task.last_failure_at.is_none_or(|at| at >= cutoff)
        }
        State::Claimed { .. } | State::Running { .. } => true,
        State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } => false,
    };
    Ok(may_be_replayed && replayed_at(store, task.id).await?.is_some_and(|at| at >= cutoff))
}

/// When a task that had ended was last queued again.
async fn replayed_at(store: &dyn Store, task: TaskId) -> Result<Option<Timestamp>, OpsError> {
    let (mut query, mut has_ended, mut replayed) = (EventQuery::of(EventKind::Transition), false, None);
    loop {
        let events = store.read_events(task, query).await?;
        let Some(newest) = events.last() else { return Ok(replayed) };
        query.after = newest.number;
        for event in events {
            // Nothing but a replay follows an end.
            if std::mem::take(&mut has_ended) {
                replayed = Some(event.at);
            }
            has_ended = matches!(event.body, EventBody::Transition { state, .. } if state.is_terminal());
        }
    }
}
