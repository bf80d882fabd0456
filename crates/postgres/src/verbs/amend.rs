//! Says something else about the policy of a task that has not ended. A row that is held is enough for this.

use ostler_core::{Overrides, TaskId};
use ostler_store::plans::Amended;

use crate::fault::Sql;
use crate::row::{BY_SLOT, find};
use crate::tx::Tx;
use ostler_sql::codec::{EndLimits, extras_text};

pub(crate) async fn run(tx: &Tx, id: TaskId, overrides: &Overrides) -> Sql<Amended> {
    let Some(slot) = tx.hold(&[id]).await?.remove(&id) else { return Ok(Amended::NotFound) };
    let Some(found) = find(&tx.conn, BY_SLOT, &[&slot]).await? else { return Ok(Amended::NotFound) };
    let task = &found.task;
    let state = task.state.name();
    if state.is_terminal() {
        return Ok(Amended::Ended(state));
    }
    let ends = EndLimits { not_after: task.not_after, deadline: task.deadline };
    let extras = extras_text(&overrides.or(&task.overrides), task.folder.as_deref(), ends, task.cost);
    tx.conn.exec("UPDATE ostler.task SET extras = $2 WHERE id = $1", &[&found.slot, &extras]).await?;
    Ok(Amended::Done)
}
