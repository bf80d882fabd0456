//! Names of tasks: an id, the beginning or end of one, or a unique key.

use std::str::FromStr;

use ostler_core::{BadId, IdPart, TaskId};
use ostler_store::Store;
use ostler_store::views::{FoundIds, IdScan};

use crate::error::{Missing, OpsError, Refusal};
use crate::tasks;

/// Ids listed when a part of an id fits several tasks.
const MAX_CANDIDATES: usize = 5;

/// The prefix of a unique key, where an id is accepted too.
const KEY_PREFIX: &str = "key:";

/// The name of a task as users write it: an id, the beginning or the end of one, or `key:K`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskName {
    Id(TaskId),
    Part(IdPart),
    Key(String),
}

impl TaskName {
    /// The task that is meant; a key is looked up in `queue`.
    #[must_use]
    pub fn in_queue(&self, queue: &str) -> NamedTask {
        match self {
            Self::Id(id) => NamedTask::Id(*id),
            Self::Part(part) => NamedTask::Part(*part),
            Self::Key(key) => NamedTask::Key { queue: queue.to_owned(), key: key.clone() },
        }
    }
}

impl FromStr for TaskName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(key) = text.strip_prefix(KEY_PREFIX) {
            if key.is_empty() {
                return Err("a key must follow the colon, such as key:welcome-17".to_owned());
            }
            return Ok(Self::Key(key.to_owned()));
        }
        if let Ok(part) = text.parse() {
            return Ok(Self::Part(part));
        }
        text.parse().map(Self::Id).map_err(|error: BadId| {
            format!(
                "{error}; its first or last {} or more are enough; or key:K for a unique key",
                IdPart::MIN_LEN
            )
        })
    }
}

/// How a caller names a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedTask {
    Id(TaskId),
    Part(IdPart),
    Key { queue: String, key: String },
}

impl NamedTask {
    /// Its id. A whole id is not looked up.
    ///
    /// # Errors
    /// When there is no such task, or several have this part in their id.
    pub async fn id(&self, store: &dyn Store) -> Result<TaskId, OpsError> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Part(part) => Ok(by_part(store, *part).await?.id),
            Self::Key { .. } => Ok(tasks::find(store, self).await?.task.id),
        }
    }
}

/// A task found by a part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundByPart {
    pub id: TaskId,
    /// [`IdScan::Cut`]: an older task may have the same end.
    pub scan: IdScan,
}

/// The one task whose id begins or ends with this.
///
/// # Errors
/// When there is none, or several.
pub async fn by_part(store: &dyn Store, part: IdPart) -> Result<FoundByPart, OpsError> {
    let FoundIds { ids, scan } = store.find_ids(part, MAX_CANDIDATES).await?;
    match ids.as_slice() {
        [] => Err(Missing::Part { part, scan }.into()),
        [id] => Ok(FoundByPart { id: *id, scan }),
        _ => Err(Refusal::SeveralTasks { part, tasks: ids, scan }.into()),
    }
}
