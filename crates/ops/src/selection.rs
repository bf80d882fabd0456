//! Selections of tasks: by name, or by a filter, page by page along a cursor.

use std::fmt;
use std::str::FromStr;

use ostler_core::{StateName, TaskId};
use ostler_store::views::{Cursor, Filter};
use ostler_store::{Error, MAX_PAGE, Store};

use crate::error::{OpsError, Refusal};
use crate::task_name::NamedTask;

/// The maximum number of tasks of one action.
pub const MAX_SELECTED: usize = 1_000_000;

/// Which tasks are meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// These. A task that does not exist, or is in the wrong state, is the user's mistake.
    Named(Vec<NamedTask>),
    /// Those that match, in the states to which the action applies unless the filter has one.
    Matching(Filter),
}

/// The tasks that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub ids: Vec<TaskId>,
    pub by: SelectedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedBy {
    Name,
    Filter,
}

/// Where a selection by filter continues. It stays valid while tasks are added, removed and acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionCursor {
    /// The state that is being listed; the states of an action are listed one after the other.
    state: StateName,
    after: Option<Cursor>,
}

/// One page of a selection by filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionPage {
    pub ids: Vec<TaskId>,
    /// Where to continue; `None`: that was all.
    pub next: Option<SelectionCursor>,
}

/// Finds all tasks of a selection: the preview of an action, and what it acts on.
///
/// # Errors
/// When a key or a part of an id is not found, several tasks have that part, or more than [`MAX_SELECTED`] tasks match.
pub async fn select(
    store: &dyn Store,
    selector: &Selector,
    states: &[StateName],
) -> Result<Selection, OpsError> {
    let mut ids = Vec::new();
    match selector {
        Selector::Named(names) => {
            for name in names {
                ids.push(name.id(store).await?);
            }
            Ok(Selection { ids, by: SelectedBy::Name })
        }
        Selector::Matching(filter) => {
            let mut next = None;
            loop {
                let page = select_page(store, filter, states, next).await?;
                ids.extend(page.ids);
                if ids.len() > MAX_SELECTED {
                    return Err(Refusal::TooManyTasks(MAX_SELECTED).into());
                }
                next = page.next;
                if next.is_none() {
                    return Ok(Selection { ids, by: SelectedBy::Filter });
                }
            }
        }
    }
}

/// One page of the tasks that match, which may be empty although more follow. A caller that acts on one page after the other
/// resumes at the cursor of the last page it acted on.
///
/// # Errors
/// When the cursor is of another selection, or the store cannot be read.
pub async fn select_page(
    store: &dyn Store,
    filter: &Filter,
    states: &[StateName],
    at: Option<SelectionCursor>,
) -> Result<SelectionPage, OpsError> {
    let states = filter.state.as_ref().map_or(states, std::slice::from_ref);
    let Some(first) = states.first() else { return Ok(SelectionPage { ids: Vec::new(), next: None }) };
    let SelectionCursor { state, after } = at.unwrap_or(SelectionCursor { state: *first, after: None });
    let Some(place) = states.iter().position(|known| *known == state) else {
        return Err(Error::invalid("this cursor is of a selection with other states").into());
    };
    let page = store.list(Filter { state: Some(state), ..filter.clone() }, after, MAX_PAGE).await?;
    let next = match page.next {
        Some(after) => Some(SelectionCursor { state, after: Some(after) }),
        None => states.get(place + 1).map(|state| SelectionCursor { state: *state, after: None }),
    };
    Ok(SelectionPage { ids: page.tasks.iter().map(|task| task.id).collect(), next })
}

impl fmt::Display for SelectionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state.name())?;
        self.after.map_or(Ok(()), |after| write!(f, ":{after}"))
    }
}

impl FromStr for SelectionCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (state, after) = text.split_once(':').map_or((text, None), |(state, after)| (state, Some(after)));
        let wrong = || Error::invalid(format!("\"{text}\" is not a cursor of a selection"));
        let state = StateName::named(state).ok_or_else(wrong)?;
        Ok(Self { state, after: after.map(str::parse).transpose().map_err(|_| wrong())? })
    }
}
