//! The locks for requests about tasks.

use ostler_core::TaskId;

use crate::conn::{Conn, get};
use crate::fault::Sql;
use crate::locks::Locks;
use crate::row::Uid;

/// The locks of the tasks' queues.
pub(crate) async fn locks(conn: &Conn, tasks: &[TaskId]) -> Sql<Locks> {
    let uids: Vec<Uid> = tasks.iter().map(|task| Uid::of(task.0)).collect();
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name FROM ostler.task t JOIN ostler.queue q ON q.id = t.queue WHERE t.uid = ANY($1)",
            &[&uids],
        )
        .await?;
    rows.iter().try_fold(Locks::none(), |locks, row| Ok(locks.queue(&get::<String>(row, 0)?)))
}
