//! Schedules: the locks that changes and firings need, and the list.

use ostler_sql::schedules::{LIST, record};
use ostler_store::schedules::{Firing, ScheduleRecord};

use super::enqueue;
use crate::conn::{Conn, get};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::RowRef;

/// The locks for putting a schedule: schedules are counted.
pub(crate) fn put_locks() -> Locks {
    Locks::none().and(LockTarget::Schedules, Mode::Exclusive)
}

/// Lists all schedules. One that cannot be read is skipped, so that it does not hide the others.
pub(crate) async fn list(conn: &Conn) -> Sql<Vec<ScheduleRecord>> {
    let mut all = Vec::new();
    for row in &conn.rows(LIST, &[]).await? {
        all.extend(readable(record(&RowRef(row)))?);
    }
    Ok(all)
}

/// The locks for firing: the queue of the run, and that of the previous run.
pub(crate) async fn fire_locks(conn: &Conn, firing: &Firing) -> Sql<Locks> {
    let Some(task) = &firing.task else { return Ok(Locks::none()) };
    let rows = conn
        .rows(
            "SELECT q.name FROM ostler.schedule s JOIN ostler.task t ON t.uid = s.last_task
             JOIN ostler.queue q ON q.id = t.queue WHERE s.name = $1",
            &[&firing.schedule],
        )
        .await?;
    let own = enqueue::locks(std::slice::from_ref(task));
    rows.iter().try_fold(own, |locks, row| Ok(locks.queue(&get::<String>(row, 0)?)))
}
