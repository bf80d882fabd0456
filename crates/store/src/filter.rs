//! Which tasks a list has, in which order, and where it continues.

use std::fmt;
use std::str::FromStr;

use ostler_core::{ErrorClass, StateName, Task, Timestamp};

use crate::error::Error;
use crate::jobs::job_of;

/// Which tasks to list. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// In this state.
    pub state: Option<StateName>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// With this text in the payload, the unique key or the last failure's message; case-insensitive.
    pub text: Option<String>,
    /// With this value in the payload.
    pub field: Option<Field>,
    /// Whose last failure is of this class.
    pub class: Option<ErrorClass>,
    /// Whose last failure is at this time or later.
    pub failed_since: Option<Timestamp>,
    /// Whose last failure is before this time.
    pub failed_until: Option<Timestamp>,
    /// That ended at this time or later.
    pub ended_since: Option<Timestamp>,
    /// That ended before this time.
    pub ended_until: Option<Timestamp>,
    /// With this kind of lease.
    pub lease: LeaseFilter,
    pub items: ItemFilter,
    pub order: ListOrder,
}

/// Whether to list the items of jobs, of which there may be many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemFilter {
    #[default]
    Listed,
    /// Only tasks of other queues.
    Hidden,
}

impl ItemFilter {
    fn lists(self, queue: &str) -> bool {
        match self {
            Self::Listed => true,
            Self::Hidden => job_of(queue).is_none(),
        }
    }
}

/// The order of a list: by the time of their end if the state is one that tasks end in, otherwise by arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// A value that the payload must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The field names from the outside in.
    pub path: Vec<String>,
    /// The expected value.
    pub value: serde_json::Value,
}

/// Which leases to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseFilter {
    /// With or without a lease.
    #[default]
    Any,
    /// Only tasks whose node is dead or overdue.
    Stale,
}

impl Field {
    /// Parses `payload.a.b=VALUE`. The value is JSON if it parses as JSON, and a string otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), with an example.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::invalid(format!(
                "\"{text}\" is not a filter: it looks like payload.tenant=acme or payload.size=3"
            ))
        };
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let path: Vec<String> =
            path.strip_prefix("payload.").ok_or_else(wrong)?.split('.').map(String::from).collect();
        if path.iter().any(String::is_empty) {
            return Err(wrong());
        }
        let value =
            serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
        Ok(Self { path, value })
    }

    fn matches(&self, payload: &str) -> bool {
        let Ok(payload) = serde_json::from_str::<serde_json::Value>(payload) else { return false };
        let found = self.path.iter().try_fold(&payload, |value, name| match value {
            serde_json::Value::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
            serde_json::Value::Object(fields) => fields.get(name),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Number(_)
            | serde_json::Value::String(_) => None,
        });
        found == Some(&self.value)
    }
}

impl Filter {
    /// Matches every task; the newest come first.
    pub const ALL: Self = Self {
        state: None,
        queue: None,
        kind: None,
        text: None,
        field: None,
        class: None,
        failed_since: None,
        failed_until: None,
        ended_since: None,
        ended_until: None,
        lease: LeaseFilter::Any,
        items: ItemFilter::Listed,
        order: ListOrder::NewestFirst,
    };

    /// Whether the task's own record matches; `lease` is not checked.
    #[must_use]
    pub fn matches(&self, task: &Task) -> bool {
        let equal = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        self.state.is_none_or(|state| state == task.state.name())
            && self.items.lists(&task.queue)
            && equal(&self.queue, &task.queue)
            && equal(&self.kind, &task.kind)
            && self.text.as_deref().is_none_or(|text| mentions(task, text))
            && self.field.as_ref().is_none_or(|field| field.matches(&task.payload))
            && self.matches_failure(task)
            && self.ended_since.is_none_or(|since| task.state.finished_at().is_some_and(|at| at >= since))
            && self.ended_until.is_none_or(|until| task.state.finished_at().is_some_and(|at| at < until))
    }

    /// Whether the list is ordered by the time of the end.
    #[must_use]
    pub fn is_by_end(&self) -> bool {
        self.state.is_some_and(StateName::is_terminal)
    }

    /// Refuses a cursor of a list in another order.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid).
    pub fn check_cursor(&self, after: Option<Cursor>) -> Result<(), Error> {
        match after {
            Some(cursor) if cursor.ended_at.is_some() != self.is_by_end() => Err(Error::invalid(
                "this cursor is of a list with another state; repeat the filters of that list",
            )),
            _ => Ok(()),
        }
    }
}

impl Filter {
    /// A task that never failed has no class and no failure time, so a condition on either excludes it.
    fn matches_failure(&self, task: &Task) -> bool {
        let class = task.last_failure.as_ref().map(|failure| failure.class);
        self.class.is_none_or(|wanted| class == Some(wanted))
            && self.failed_since.is_none_or(|since| task.last_failure_at.is_some_and(|at| at >= since))
            && self.failed_until.is_none_or(|until| task.last_failure_at.is_some_and(|at| at < until))
    }
}

fn mentions(task: &Task, text: &str) -> bool {
    let wanted = text.to_lowercase();
    let has = |place: &str| place.to_lowercase().contains(&wanted);
    has(&task.payload)
        || task.unique_key.as_deref().is_some_and(has)
        || task.last_failure.as_ref().is_some_and(|failure| has(&failure.message))
}

/// Where a list continues: after this task. It stays valid while tasks are added and removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the task ended, in a list by the time of the end.
    pub ended_at: Option<Timestamp>,
    /// The row of the task.
    pub row: i64,
}

impl Cursor {
    /// The position of a task in the list of a filter.
    #[must_use]
    pub fn of(filter: &Filter, task: &Task, row: i64) -> Self {
        Self { ended_at: task.state.finished_at().filter(|_| filter.is_by_end()), row }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended_at {
            Some(at) => write!(f, "{}-{}", at.millis(), self.row),
            None => write!(f, "{}", self.row),
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid(format!("\"{text}\" is not a cursor of a list"));
        let number = |text: &str| text.parse().ok().filter(|number: &i64| *number >= 0).ok_or_else(wrong);
        let (ended_at, row) = match text.split_once('-') {
            Some((at, row)) => (Some(Timestamp::from_millis(number(at)?)), number(row)?),
            None => (None, number(text)?),
        };
        Ok(Self { ended_at, row })
    }
}
