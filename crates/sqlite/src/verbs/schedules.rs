//! Schedules: kept, paused, and fired once for each moment.

use ostler_core::{
    CancelReason, Fire, Missed, Overlap, Priority, StateName, TaskId, Timestamp, fire as overlaps,
};
use ostler_store::calls::NewTask;
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleRecord, Skipped, TaskTemplate,
};
use ostler_store::{Check, MAX_SCHEDULES};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{cancel, enqueue};
use crate::fault::readable;
use crate::row::{FoundTask, Uid, find, from_ordinal, ordinal};
use crate::shared_tx::unreadable;
use crate::tx::{Sql, Tx};
use ostler_sql::codec::{overrides_from, overrides_text};

/// The places of this list are kept.
const ACTIVITIES: [Activity; 2] = [Activity::Active, Activity::Paused];

const SELECT: &str = "SELECT name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at, last_at,
    last_task FROM schedule ";

pub(crate) fn put(tx: &mut Tx<'_>, schedule: &Schedule) -> Sql<PutAnswer> {
    let before: Option<(String, Option<i64>)> = tx
        .prepare("SELECT spec, next_at FROM schedule WHERE name = ?1")?
        .query_row([&schedule.name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let given = schedule.next_at.map(Timestamp::millis);
    let (put, next_at) = match before {
        Some((spec, next_at)) if spec == schedule.spec => (PutAnswer::Replaced, next_at),
        Some(_) => (PutAnswer::Replaced, given),
        None => {
            let count: i64 = tx.prepare("SELECT count(*) FROM schedule")?.query_row([], |row| row.get(0))?;
            if usize::try_from(count).is_ok_and(|count| count >= MAX_SCHEDULES) {
                return Ok(PutAnswer::TooMany { limit: MAX_SCHEDULES });
            }
            (PutAnswer::Created, given)
        }
    };
    let task = &schedule.task;
    tx.prepare(
        "INSERT INTO schedule(name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT(name) DO UPDATE SET spec = excluded.spec, overlap = excluded.overlap, missed = excluded.missed,
            queue = excluded.queue, kind = excluded.kind, payload = excluded.payload, priority = excluded.priority,
            overrides = excluded.overrides, next_at = excluded.next_at",
    )?
    .execute(params![
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
    ])?;
    tx.ring_news();
    Ok(put)
}

pub(crate) fn remove(tx: &Tx<'_>, name: &str) -> Sql<ScheduleAnswer> {
    Ok(answer(tx.prepare("DELETE FROM schedule WHERE name = ?1")?.execute([name])?))
}

pub(crate) fn pause(tx: &mut Tx<'_>, name: &str, activity: Activity) -> Sql<ScheduleAnswer> {
    let changed = tx
        .prepare("UPDATE schedule SET activity = ?2 WHERE name = ?1")?
        .execute(params![name, ordinal(&ACTIVITIES, &activity)])?;
    if changed > 0 {
        tx.ring_news();
    }
    Ok(answer(changed))
}

const fn answer(changed: usize) -> ScheduleAnswer {
    if changed == 0 { ScheduleAnswer::NotFound } else { ScheduleAnswer::Done }
}

/// All of them. One that cannot be understood is passed over: it must not hold the others up.
pub(crate) fn list(conn: &Connection) -> Sql<Vec<ScheduleRecord>> {
    let mut statement = conn.prepare_cached(&format!("{SELECT}ORDER BY name"))?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.extend(readable(record(row))?);
    }
    Ok(all)
}

fn record(row: &Row<'_>) -> Sql<ScheduleRecord> {
    let time =
        |column: usize| row.get::<_, Option<i64>>(column).map(|millis| millis.map(Timestamp::from_millis));
    let task = TaskTemplate {
        queue: row.get(4)?,
        kind: row.get(5)?,
        payload: row.get(6)?,
        priority: Priority::new(row.get(7)?).unwrap_or_default(),
        overrides: overrides_from(row.get(8)?).map_err(unreadable)?,
    };
    let schedule = Schedule {
        name: row.get(0)?,
        spec: row.get(1)?,
        overlap: from_ordinal(&Overlap::ALL, row.get(2)?)?,
        missed: from_ordinal(&Missed::ALL, row.get(3)?)?,
        task,
        next_at: time(10)?,
    };
    Ok(ScheduleRecord {
        schedule,
        activity: from_ordinal(&ACTIVITIES, row.get(9)?)?,
        last_at: time(11)?,
        last_task: row.get::<_, Option<Uid>>(12)?.map(|uid| TaskId(uid.id())),
    })
}

pub(crate) fn fire(tx: &mut Tx<'_>, firing: &Firing) -> Sql<Fired> {
    let kept =
        tx.prepare(&format!("{SELECT}WHERE name = ?1"))?.query_row([&firing.schedule], record).optional()?;
    let Some(kept) = kept else { return Ok(Fired::NotDue) };
    let is_next = tx.checks.pass(Check::FireExpected, kept.schedule.next_at == Some(firing.expected));
    if !is_next || kept.activity == Activity::Paused || firing.expected > tx.now {
        return Ok(Fired::NotDue);
    }
    tx.prepare("UPDATE schedule SET next_at = ?2 WHERE name = ?1")?
        .execute(params![firing.schedule, firing.next.map(Timestamp::millis)])?;
    let Some(task) = &firing.task else { return Ok(Fired::Skipped(Skipped::Missed)) };
    if enqueue::exists(tx, task.id)? {
        return Ok(Fired::Skipped(Skipped::Existing(task.id)));
    }
    let before = match kept.last_task {
        Some(id) => find(tx.conn, "WHERE t.uid = ?1", [Uid::of(id.0)])?,
        None => None,
    };
    let state = before.as_ref().map(|found| found.task.state.name());
    let replaced = match (overlaps(kept.schedule.overlap, state), before) {
        (Fire::Skip, Some(before)) => return Ok(Fired::Skipped(Skipped::Overlap(before.task.id))),
        (Fire::Replace, Some(before)) => Some(before),
        (Fire::Enqueue | Fire::Skip | Fire::Replace, _) => None,
    };
    run(tx, &firing.schedule, task, replaced.as_ref())
}

/// Enqueues a run, in the place of the one before if there is one to be replaced.
fn run(tx: &mut Tx<'_>, name: &str, task: &NewTask, replaced: Option<&FoundTask>) -> Sql<Fired> {
    if let Some(limit) = tx.queue(&task.queue)?.and_then(|queue| queue.settings.limit) {
        // Who is replaced while it waits makes room.
        let makes_room = |found: &&FoundTask| {
            found.task.queue == task.queue && found.task.state.name() == StateName::Queued
        };
        let room = u64::from(replaced.filter(makes_room).is_some());
        if tx.queued(&task.queue)? >= limit + room {
            return Ok(Fired::Skipped(Skipped::QueueFull { limit }));
        }
    }
    if let Some(before) = replaced {
        cancel::stop(tx, before, CancelReason::Replaced)?;
    }
    enqueue::run(tx, std::slice::from_ref(task))?;
    tx.prepare("UPDATE schedule SET last_at = ?2, last_task = ?3 WHERE name = ?1")?.execute(params![
        name,
        tx.now.millis(),
        Uid::of(task.id.0)
    ])?;
    let run = task.id;
    Ok(replaced.map_or(Fired::Enqueued(run), |before| Fired::Replaced { run, before: before.task.id }))
}
