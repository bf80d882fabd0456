//! Names of tasks: an id, the beginning or end of one, or a unique key.

use ostler_core::{IdPart, TaskId};
use ostler_store::Store;
use ostler_store::views::{FoundIds, IdScan};

use crate::error::{Missing, OpsError, Refusal};
use crate::tasks;

/// Ids listed when a part of an id fits several tasks.
const MAX_CANDIDATES: usize = 5;

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
