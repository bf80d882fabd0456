//! Enqueue: inserts tasks.

use ostler_core::{Fairness, PriorityOrder, Rank, State, TaskId, VirtualTime, Wait, arrival, place};
use ostler_sql::poll_now;
use ostler_sql::task::set_state;
use ostler_store::calls::{Enqueued, NewTask};
use rusqlite::{CachedStatement, params};

use crate::row::{Phase, Uid, why_code};
use crate::tx::{Sql, Tx};
use ostler_sql::codec::Extras;
use ostler_sql::dependents::{self, Others};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::unique;

pub(crate) fn run(tx: &mut Tx<'_>, tasks: &[NewTask]) -> Sql<Vec<Enqueued>> {
    let mut insert = tx.prepare(INSERT)?;
    let mut plain: Option<Plain<'_>> = None;
    let mut answers = Vec::with_capacity(tasks.len());
    for new in tasks {
        let usual = new.unique.is_none() && new.limit_key.is_none() && new.after.is_empty();
        if !plain.as_ref().is_some_and(|lane| lane.queue == new.queue && lane.kind == new.kind) {
            plain = Plain::lane(tx, new)?;
        }
        answers.push(match &plain {
            Some(lane) if usual => insert_plain(tx, &mut insert, lane, new)?,
            Some(_) | None => {
                plain = None;
                enqueue(tx, &mut insert, new)?
            }
        });
    }
    Ok(answers)
}

const INSERT: &str =
    "INSERT INTO task(uid, lane, phase, why, rank, priority, run_at, token, runs, failures, trouble,
        created_at, late_at, limit_id, extras, payload)
     VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, 0, 0, ?8, ?9, ?10, ?11, ?12)
     ON CONFLICT(uid) DO NOTHING";

/// A lane of a queue without a limit and without keys, which reads nothing from payloads: a task there leaves no trace
/// except its row, so nothing has to be looked up, and the row's own conflict tells whether the task is new.
struct Plain<'a> {
    queue: &'a str,
    kind: &'a str,
    id: i64,
    order: PriorityOrder,
}

impl<'a> Plain<'a> {
    fn lane(tx: &mut Tx<'_>, new: &'a NewTask) -> Sql<Option<Self>> {
        let Some(queue) = tx.queue(&new.queue)? else { return Ok(None) };
        if queue.settings.limit.is_some() || queue.settings.reads_payloads() || queue.clock.0.is_some() {
            return Ok(None);
        }
        let order = queue.settings.priority;
        Ok(queue.lane(&new.kind).map(|id| Self { queue: &new.queue, kind: &new.kind, id, order }))
    }
}

fn insert_plain(
    tx: &mut Tx<'_>,
    insert: &mut CachedStatement<'_>,
    lane: &Plain<'_>,
    new: &NewTask,
) -> Sql<Enqueued> {
    let run_at = new.run_at.unwrap_or(tx.now);
    let turn = Fairness::Unkeyed { last: None };
    let rank = place(VirtualTime(None), turn, run_at.max(tx.now), new.priority, lane.order).rank;
    let (readiness, why) = arrival(run_at, tx.now, Wait::New);
    let state = State::Queued { readiness, why, run_at };
    let inserted = insert_row(tx, insert, lane.id, None, rank, &state, new)?;
    Ok(if inserted { Enqueued::Created(new.id) } else { Enqueued::Existing(new.id) })
}

fn enqueue(tx: &mut Tx<'_>, insert: &mut CachedStatement<'_>, new: &NewTask) -> Sql<Enqueued> {
    if exists(tx, new.id)? {
        return Ok(Enqueued::Existing(new.id));
    }
    let filled = match tx.queue(&new.queue)? {
        Some(queue) if queue.settings.fills(new) => Some(queue.settings.filled(new.clone())),
        Some(_) | None => None,
    };
    let new = filled.as_ref().unwrap_or(new);
    // Nothing is written for a rejected task, not even its queue.
    if let Some(queue) = tx.queue(&new.queue)?.map(|queue| queue.id)
        && let Some(answer) = poll_now(unique::clash(tx, queue, new))?
    {
        return Ok(answer);
    }
    let others = poll_now(dependents::others(tx, new))?;
    if let Others::Unknown(id) = others {
        return Ok(Enqueued::NoSuchTask(id));
    }
    let found = tx.queue_or_new(&new.queue)?;
    let (queue, limit) = (found.id, found.settings.limit);
    if let Some(limit) = limit
        && tx.queued(&new.queue)? >= limit
    {
        return Ok(Enqueued::QueueFull { limit });
    }
    let lane = tx.lane(&new.queue, &new.kind)?;
    let limit =
        new.limit_key.as_deref().map(|key| poll_now(limit_keys::limit(tx, queue, key))).transpose()?;
    let run_at = new.run_at.unwrap_or(tx.now);
    let rank = poll_now(limit_keys::rank(tx, &new.queue, limit, run_at.max(tx.now), new.priority))?;
    let limit = limit.map(|limit| limit.id);
    let rules = tx.key_rules(&new.queue)?;
    let state = match others {
        Others::Done => poll_now(gates::arrived(tx, &rules, limit, run_at, Wait::New))?,
        Others::Unfinished(_) | Others::Failed | Others::Unknown(_) => dependents::waiting(run_at),
    };
    insert_row(tx, insert, lane, limit, rank, &state, new)?;
    let slot = tx.conn.last_insert_rowid();
    if let Some(unique) = &new.unique {
        poll_now(unique::give(tx, queue, slot, unique))?;
    }
    if let Some(limit) = limit {
        tx.prepare("UPDATE limits SET tasks = tasks + 1, used = used + ?2 WHERE id = ?1")?
            .execute(params![limit, Phase::of(&state).takes_place()])?;
    }
    match others {
        Others::Unfinished(others) => poll_now(dependents::wait_for(tx, slot, &others, new.on_failed))?,
        Others::Failed => {
            let cancelled = dependents::cancelled(tx.now);
            poll_now(set_state(tx, slot, lane, limit, Phase::of(&state), &cancelled))?;
            poll_now(limit_keys::settle(tx, limit, &rules))?;
        }
        Others::Done | Others::Unknown(_) => poll_now(gates::settle_arrival(tx, &rules, limit, &state))?,
    }
    Ok(Enqueued::Created(new.id))
}

/// Inserts and counts the row, unless there is one with this id.
fn insert_row(
    tx: &mut Tx<'_>,
    insert: &mut CachedStatement<'_>,
    lane: i64,
    limit: Option<i64>,
    rank: Rank,
    state: &State,
    new: &NewTask,
) -> Sql<bool> {
    let phase = Phase::of(state);
    let run_at = new.run_at.unwrap_or(tx.now);
    let extras = Extras::of_new(new);
    let inserted = insert.execute(params![
        Uid::of(new.id.0),
        lane,
        phase.code(),
        why_code(state),
        rank.0,
        new.priority.points(),
        run_at.millis(),
        tx.now.millis(),
        extras.ends.late_at(),
        limit,
        extras.text(),
        new.payload,
    ])?;
    if inserted == 1 {
        tx.count(lane, None, Some(phase.state()));
        if phase == Phase::Ready {
            tx.ring();
        }
    }
    Ok(inserted == 1)
}

pub(crate) fn exists(tx: &Tx<'_>, id: TaskId) -> Sql<bool> {
    tx.prepare("SELECT 1 FROM task WHERE uid = ?1")?.exists([Uid::of(id.0)])
}
