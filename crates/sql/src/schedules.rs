//! Schedules: stored, paused, and fired once for each time.

use ostler_core::{
    CancelReason, Fire, Id, Missed, Overlap, Priority, StateName, TaskId, Timestamp, fire as overlaps,
};
use ostler_store::calls::NewTask;
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleChange, ScheduleRecord, Skipped,
    TaskTemplate,
};
use ostler_store::{Check, MAX_SCHEDULES};

use crate::cancel;
use crate::codec::{overrides_from, overrides_text};
use crate::params;
use crate::phase::{from_ordinal, ordinal};
use crate::task::FoundTask;
use crate::tx::{Tx, one};
use crate::value::Row;

/// The ordinals are stored.
const ACTIVITIES: [Activity; 2] = [Activity::Active, Activity::Paused];

/// Lists the schedules, with the columns that [`record`] reads.
pub const LIST: &str = "SELECT name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at, last_at,
    last_task FROM ostler.schedule ORDER BY name";

const FIND: &str = "SELECT name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at, last_at,
    last_task FROM ostler.schedule WHERE name = $1 FOR UPDATE";

pub async fn put<T: Tx>(tx: &mut T, schedule: &Schedule) -> Result<PutAnswer, T::Error> {
    let before = tx
        .row("SELECT spec, next_at FROM ostler.schedule WHERE name = $1 FOR UPDATE", params![schedule.name])
        .await?;
    let given = schedule.next_at.map(Timestamp::millis);
    let (put, next_at) = match before {
        Some(row) if row.get::<String>(0)? == schedule.spec => (PutAnswer::Replaced, row.get(1)?),
        Some(_) => (PutAnswer::Replaced, given),
        None => {
            let count: i64 = one(tx, "SELECT count(*) FROM ostler.schedule", params![]).await?.get(0)?;
            if usize::try_from(count).is_ok_and(|count| count >= MAX_SCHEDULES) {
                return Ok(PutAnswer::TooMany { limit: MAX_SCHEDULES });
            }
            (PutAnswer::Created, given)
        }
    };
    let task = &schedule.task;
    tx.exec(
            "INSERT INTO ostler.schedule(name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at)
             VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT(name) DO UPDATE SET spec = excluded.spec, overlap = excluded.overlap, missed = excluded.missed,
                queue = excluded.queue, kind = excluded.kind, payload = excluded.payload, priority = excluded.priority,
                overrides = excluded.overrides, next_at = excluded.next_at",
            params![
                schedule.name,
                schedule.spec,
                ordinal(&Overlap::ALL, &schedule.overlap),
                ordinal(&Missed::ALL, &schedule.missed),
                task.queue,
                task.kind,
                task.payload,
                task.priority.points(),
                overrides_text(&task.overrides),
                ordinal(&ACTIVITIES, &Activity::Active),
                next_at,
            ],
        )
        .await?;
    tx.ring_control();
    Ok(put)
}

pub async fn change<T: Tx>(
    tx: &mut T,
    name: &str,
    change: ScheduleChange,
) -> Result<ScheduleAnswer, T::Error> {
    let changed = match change {
        ScheduleChange::Remove => {
            tx.exec("DELETE FROM ostler.schedule WHERE name = $1", params![name]).await?
        }
        ScheduleChange::Set(activity) => {
            let sql = "UPDATE ostler.schedule SET activity = $2 WHERE name = $1";
            tx.exec(sql, params![name, ordinal(&ACTIVITIES, &activity)]).await?
        }
    };
    if changed == 0 {
        return Ok(ScheduleAnswer::NotFound);
    }
    if change != ScheduleChange::Remove {
        tx.ring_control();
    }
    Ok(ScheduleAnswer::Done)
}

/// A schedule from its row.
///
/// # Errors
/// When a column holds what Ostler never writes.
pub fn record<R: Row>(row: &R) -> Result<ScheduleRecord, R::Error> {
    let time = |column: usize| Ok::<_, R::Error>(row.get::<Option<i64>>(column)?.map(Timestamp::from_millis));
    let task = TaskTemplate {
        queue: row.get(4)?,
        kind: row.get(5)?,
        payload: row.get(6)?,
        priority: Priority::new(row.get(7)?).unwrap_or_default(),
        overrides: overrides_from(row.get(8)?).map_err(R::unreadable)?,
    };
    let schedule = Schedule {
        name: row.get(0)?,
        spec: row.get(1)?,
        overlap: from_ordinal(&Overlap::ALL, row.get(2)?).map_err(R::unreadable)?,
        missed: from_ordinal(&Missed::ALL, row.get(3)?).map_err(R::unreadable)?,
        task,
        next_at: time(10)?,
    };
    Ok(ScheduleRecord {
        schedule,
        activity: from_ordinal(&ACTIVITIES, row.get(9)?).map_err(R::unreadable)?,
        last_at: time(11)?,
        last_task: row.get::<Option<Id>>(12)?.map(TaskId),
    })
}

pub async fn fire<T: Tx>(tx: &mut T, firing: &Firing) -> Result<Fired, T::Error> {
    let found = tx.row(FIND, params![firing.schedule]).await?;
    let Some(kept) = found.map(|row| record(&row)).transpose()? else { return Ok(Fired::NotDue) };
    let is_next = tx.checks().pass(Check::FireExpected, kept.schedule.next_at == Some(firing.expected));
    if !is_next || kept.activity == Activity::Paused || firing.expected > tx.now() {
        return Ok(Fired::NotDue);
    }
    tx.exec(
        "UPDATE ostler.schedule SET next_at = $2 WHERE name = $1",
        params![firing.schedule, firing.next.map(Timestamp::millis)],
    )
    .await?;
    let Some(task) = &firing.task else { return Ok(Fired::Skipped(Skipped::Missed)) };
    if tx.has_task(task.id).await? {
        return Ok(Fired::Skipped(Skipped::Existing(task.id)));
    }
    let before = match kept.last_task {
        Some(id) => match tx.lock(&[id]).await?.remove(&id) {
            Some(slot) => tx.read(slot).await?,
            None => None,
        },
        None => None,
    };
    let state = before.as_ref().map(|found| found.task.state.name());
    let replaced = match (overlaps(kept.schedule.overlap, state), before) {
        (Fire::Skip, Some(before)) => return Ok(Fired::Skipped(Skipped::Overlap(before.task.id))),
        (Fire::Replace, Some(before)) => Some(before),
        (Fire::Enqueue | Fire::Skip | Fire::Replace, _) => None,
    };
    run(tx, &firing.schedule, task, replaced.as_ref()).await
}

/// Enqueues a run, in the place of the one before if there is one to be replaced.
async fn run<T: Tx>(
    tx: &mut T,
    name: &str,
    task: &NewTask,
    replaced: Option<&FoundTask>,
) -> Result<Fired, T::Error> {
    if let Some(limit) = tx.queue(&task.queue).await?.and_then(|queue| queue.settings.limit) {
        tx.exclusive(&task.queue)?;
        // Who is replaced while it waits makes room.
        let makes_room = |found: &&FoundTask| {
            found.task.queue == task.queue && found.task.state.name() == StateName::Queued
        };
        let room = u64::from(replaced.filter(makes_room).is_some());
        if tx.queued(&task.queue).await? >= limit + room {
            return Ok(Fired::Skipped(Skipped::QueueFull { limit }));
        }
    }
    if let Some(before) = replaced {
        cancel::stop(tx, before, CancelReason::Replaced).await?;
    }
    tx.enqueue(task).await?;
    tx.exec(
        "UPDATE ostler.schedule SET last_at = $2, last_task = $3 WHERE name = $1",
        params![name, tx.now().millis(), task.id],
    )
    .await?;
    let run = task.id;
    Ok(replaced.map_or(Fired::Enqueued(run), |before| Fired::Replaced { run, before: before.task.id }))
}
