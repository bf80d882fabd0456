//! Says something else about the policy of a task that has not ended.

use ostler_core::{Overrides, TaskId};
use ostler_store::plans::Amended;
use rusqlite::params;

use crate::row::{Uid, find};
use crate::tx::{Sql, Tx};
use ostler_sql::codec::{EndLimits, extras_text};

pub(crate) fn run(tx: &Tx<'_>, id: TaskId, overrides: &Overrides) -> Sql<Amended> {
    let Some(found) = find(tx.conn, "WHERE t.uid = ?1", [Uid::of(id.0)])? else {
        return Ok(Amended::NotFound);
    };
    let task = &found.task;
    let state = task.state.name();
    if state.is_terminal() {
        return Ok(Amended::Ended(state));
    }
    let ends = EndLimits { not_after: task.not_after, deadline: task.deadline };
    let extras = extras_text(&overrides.or(&task.overrides), task.folder.as_deref(), ends, task.cost);
    tx.prepare("UPDATE task SET extras = ?2 WHERE id = ?1")?.execute(params![found.slot, extras])?;
    Ok(Amended::Done)
}
