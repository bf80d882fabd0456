//! Schedules: kept, paused, and fired once for each moment.

use ostler_core::{CancelReason, Fire, Missed, Overlap, StateName, TaskId, Timestamp, fire as overlaps};
use ostler_store::calls::NewTask;
use ostler_store::schedules::{
    Activity, Fired, Firing, PutAnswer, Schedule, ScheduleAnswer, ScheduleRecord, Skipped, TaskTemplate,
};
use ostler_store::{Check, MAX_SCHEDULES};
use tokio_postgres::Row;

use super::{cancel, enqueue};
use crate::conn::{Conn, get};
use crate::fault::{Sql, readable};
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{BY_SLOT, FoundTask, Uid, find, from_ordinal, ordinal, points, priority};
use crate::tx::Tx;
use ostler_sql::codec::{overrides_from, overrides_text};

/// The places of this list are kept.
const ACTIVITIES: [Activity; 2] = [Activity::Active, Activity::Paused];

const SELECT: &str = "SELECT name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at, last_at,
    last_task FROM ostler.schedule ";

/// Whose locks are needed to put one: they are counted.
pub(crate) fn put_locks() -> Locks {
    Locks::none().and(LockTarget::Schedules, Mode::Exclusive)
}

pub(crate) async fn put(tx: &mut Tx, schedule: &Schedule) -> Sql<PutAnswer> {
    let before = tx
        .conn
        .row("SELECT spec, next_at FROM ostler.schedule WHERE name = $1 FOR UPDATE", &[&schedule.name])
        .await?;
    let given = schedule.next_at.map(Timestamp::millis);
    let (put, next_at) = match before {
        Some(row) if get::<String>(&row, 0)? == schedule.spec => (PutAnswer::Replaced, get(&row, 1)?),
        Some(_) => (PutAnswer::Replaced, given),
        None => {
            let count: i64 = get(&tx.conn.one("SELECT count(*) FROM ostler.schedule", &[]).await?, 0)?;
            if usize::try_from(count).is_ok_and(|count| count >= MAX_SCHEDULES) {
                return Ok(PutAnswer::TooMany { limit: MAX_SCHEDULES });
            }
            (PutAnswer::Created, given)
        }
    };
    let task = &schedule.task;
    tx.conn
        .exec(
            "INSERT INTO ostler.schedule(name, spec, overlap, missed, queue, kind, payload, priority, overrides, activity, next_at)
             VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT(name) DO UPDATE SET spec = excluded.spec, overlap = excluded.overlap, missed = excluded.missed,
                queue = excluded.queue, kind = excluded.kind, payload = excluded.payload, priority = excluded.priority,
                overrides = excluded.overrides, next_at = excluded.next_at",
            &[
                &schedule.name,
                &schedule.spec,
                &ordinal(&Overlap::ALL, &schedule.overlap),
                &ordinal(&Missed::ALL, &schedule.missed),
                &task.queue,
                &task.kind,
                &task.payload,
                &points(task.priority),
                &overrides_text(&task.overrides),
                &ordinal(&ACTIVITIES, &Activity::Active),
                &next_at,
            ],
        )
        .await?;
    tx.ring_news();
    Ok(put)
}

pub(crate) async fn remove(tx: &Tx, name: &str) -> Sql<ScheduleAnswer> {
    Ok(answer(tx.conn.exec("DELETE FROM ostler.schedule WHERE name = $1", &[&name]).await?))
}

pub(crate) async fn pause(tx: &mut Tx, name: &str, activity: Activity) -> Sql<ScheduleAnswer> {
    let changed = tx
        .conn
        .exec(
            "UPDATE ostler.schedule SET activity = $2 WHERE name = $1",
            &[&name, &ordinal(&ACTIVITIES, &activity)],
        )
        .await?;
    if changed > 0 {
        tx.ring_news();
    }
    Ok(answer(changed))
}

const fn answer(changed: u64) -> ScheduleAnswer {
    if changed == 0 { ScheduleAnswer::NotFound } else { ScheduleAnswer::Done }
}

/// All of them. One that cannot be understood is passed over: it must not hold the others up.
pub(crate) async fn list(conn: &Conn) -> Sql<Vec<ScheduleRecord>> {
    let mut all = Vec::new();
    for row in &conn.rows(&format!("{SELECT}ORDER BY name"), &[]).await? {
        all.extend(readable(record(row))?);
    }
    Ok(all)
}

fn record(row: &Row) -> Sql<ScheduleRecord> {
    let time = |column: usize| -> Sql<Option<Timestamp>> {
        Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_millis))
    };
    let task = TaskTemplate {
        queue: get(row, 4)?,
        kind: get(row, 5)?,
        payload: get(row, 6)?,
        priority: priority(get(row, 7)?),
        overrides: overrides_from(get(row, 8)?)?,
    };
    let schedule = Schedule {
        name: get(row, 0)?,
        spec: get(row, 1)?,
        overlap: from_ordinal(&Overlap::ALL, get(row, 2)?)?,
        missed: from_ordinal(&Missed::ALL, get(row, 3)?)?,
        task,
        next_at: time(10)?,
    };
    Ok(ScheduleRecord {
        schedule,
        activity: from_ordinal(&ACTIVITIES, get(row, 9)?)?,
        last_at: time(11)?,
        last_task: get::<Option<Uid>>(row, 12)?.map(|uid| TaskId(uid.id())),
    })
}

/// Whose locks are needed to fire: the queue of the run, and that of the run before.
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

pub(crate) async fn fire(tx: &mut Tx, firing: &Firing) -> Sql<Fired> {
    let row = tx.conn.row(&format!("{SELECT}WHERE name = $1 FOR UPDATE"), &[&firing.schedule]).await?;
    let Some(kept) = row.map(|row| record(&row)).transpose()? else { return Ok(Fired::NotDue) };
    let is_next = tx.checks.pass(Check::FireExpected, kept.schedule.next_at == Some(firing.expected));
    if !is_next || kept.activity == Activity::Paused || firing.expected > tx.now {
        return Ok(Fired::NotDue);
    }
    tx.conn
        .exec(
            "UPDATE ostler.schedule SET next_at = $2 WHERE name = $1",
            &[&firing.schedule, &firing.next.map(Timestamp::millis)],
        )
        .await?;
    let Some(task) = &firing.task else { return Ok(Fired::Skipped(Skipped::Missed)) };
    if enqueue::exists(tx, task.id).await? {
        return Ok(Fired::Skipped(Skipped::Existing(task.id)));
    }
    let before = match kept.last_task {
        Some(id) => match tx.hold(&[id]).await?.remove(&id) {
            Some(slot) => find(&tx.conn, BY_SLOT, &[&slot]).await?,
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
async fn run(tx: &mut Tx, name: &str, task: &NewTask, replaced: Option<&FoundTask>) -> Sql<Fired> {
    if let Some(limit) = tx.settings(&task.queue)?.limit {
        tx.alone(&task.queue)?;
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
    enqueue::run(tx, std::slice::from_ref(task)).await?;
    tx.conn
        .exec(
            "UPDATE ostler.schedule SET last_at = $2, last_task = $3 WHERE name = $1",
            &[&name, &tx.now.millis(), &Uid::of(task.id.0)],
        )
        .await?;
    let run = task.id;
    Ok(replaced.map_or(Fired::Enqueued(run), |before| Fired::Replaced { run, before: before.task.id }))
}
