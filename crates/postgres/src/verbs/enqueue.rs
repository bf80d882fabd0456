//! Enqueue: inserts tasks.

use std::collections::HashSet;

use ostler_core::{Fairness, PriorityOrder, Rank, State, TaskId, VirtualTime, Wait, arrival, place};
use ostler_store::calls::{Enqueued, NewTask};

use crate::conn::get;
use crate::fault::Sql;
use crate::locks::{LockTarget, Locks, Mode};
use crate::row::{Phase, Uid, points, why_code};
use crate::tx::Tx;
use ostler_sql::codec::Extras;
use ostler_sql::dependents::{self, Others};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::task::set_state;
use ostler_sql::unique;

/// The locks needed, as far as the tasks themselves show.
pub(crate) fn locks(tasks: &[NewTask]) -> Locks {
    let mut locks = Locks::none();
    for new in tasks {
        let bound = new.unique.is_some() || new.limit_key.is_some();
        let mode = if bound { Mode::Exclusive } else { Mode::Shared };
        locks.add(LockTarget::Queue(new.queue.clone()), mode);
    }
    locks
}

pub(crate) async fn run(tx: &mut Tx, tasks: &[NewTask]) -> Sql<Vec<Enqueued>> {
    let mut answers = Vec::with_capacity(tasks.len());
    let mut rest = tasks;
    while let Some(first) = rest.first() {
        let mut lanes: Vec<PlainLane> = Vec::new();
        for new in rest {
            let Some(lane) = plain_lane(tx, new).await? else { break };
            lanes.push(lane);
        }
        let (plain, others) = rest.split_at(lanes.len());
        if plain.is_empty() {
            answers.push(enqueue(tx, first).await?);
            rest = &rest[1..];
        } else {
            answers.extend(insert_plain(tx, plain, &lanes).await?);
            rest = others;
        }
    }
    Ok(answers)
}

/// The lane of a task that leaves no trace except its row: it has no key and waits for no other task, and its queue has
/// no limit and no keys, and reads nothing from payloads. So nothing has to be looked up, and the row's own conflict
/// tells whether the task is new.
async fn plain_lane(tx: &mut Tx, new: &NewTask) -> Sql<Option<PlainLane>> {
    if new.unique.is_some() || new.limit_key.is_some() || !new.after.is_empty() {
        return Ok(None);
    }
    let Some(queue) = tx.queue(&new.queue)? else { return Ok(None) };
    if queue.settings.limit.is_some() || queue.settings.reads_payloads() || queue.clock.0.is_some() {
        return Ok(None);
    }
    let (id, order) = (queue.id, queue.settings.priority);
    Ok(queue.lane(&new.kind).map(|lane| PlainLane { lane: Lane { queue: id, lane }, order }))
}

#[derive(Clone, Copy)]
struct PlainLane {
    lane: Lane,
    order: PriorityOrder,
}

#[derive(Clone, Copy)]
struct Lane {
    queue: i64,
    lane: i64,
}

/// A task to be written.
struct Draft<'a> {
    new: &'a NewTask,
    lane: Lane,
    limit: Option<i64>,
    rank: Rank,
    state: State,
}

async fn insert_plain(tx: &mut Tx, tasks: &[NewTask], lanes: &[PlainLane]) -> Sql<Vec<Enqueued>> {
    let now = tx.now;
    let turn = Fairness::Unkeyed { last: None };
    let drafts: Vec<Draft<'_>> = tasks
        .iter()
        .zip(lanes)
        .map(|(new, PlainLane { lane, order })| {
            let run_at = new.run_at.unwrap_or(now);
            let rank = place(VirtualTime(None), turn, run_at.max(now), new.priority, *order).rank;
            let (readiness, why) = arrival(run_at, now, Wait::New);
            Draft { new, lane: *lane, limit: None, rank, state: State::Queued { readiness, why, run_at } }
        })
        .collect();
    let mut created: HashSet<Uid> = insert(tx, &drafts).await?.into_iter().map(|(uid, _)| uid).collect();
    let mut answers = Vec::with_capacity(drafts.len());
    for draft in &drafts {
        // The second of two tasks with the same id finds the first.
        if created.remove(&Uid::of(draft.new.id.0)) {
            came(tx, draft);
            answers.push(Enqueued::Created(draft.new.id));
        } else {
            answers.push(Enqueued::Existing(draft.new.id));
        }
    }
    Ok(answers)
}

async fn enqueue(tx: &mut Tx, new: &NewTask) -> Sql<Enqueued> {
    if exists(tx, new.id).await? {
        return Ok(Enqueued::Existing(new.id));
    }
    let filled = match tx.queue(&new.queue)? {
        Some(queue) if queue.settings.fills(new) => Some(queue.settings.filled(new.clone())),
        Some(_) | None => None,
    };
    let new = filled.as_ref().unwrap_or(new);
    if new.unique.is_some() || new.limit_key.is_some() {
        tx.exclusive(&new.queue)?;
    }
    // Nothing is written for a rejected task, not even its queue.
    if let Some(queue) = tx.queue(&new.queue)?.map(|queue| queue.id)
        && let Some(answer) = unique::clash(tx, queue, new).await?
    {
        return Ok(answer);
    }
    let others = dependents::others(tx, new).await?;
    if let Others::Unknown(id) = others {
        return Ok(Enqueued::NoSuchTask(id));
    }
    let found = tx.queue_or_new(&new.queue).await?;
    let (queue, limit) = (found.id, found.settings.limit);
    if let Some(limit) = limit {
        tx.exclusive(&new.queue)?;
        if tx.queued(&new.queue).await? >= limit {
            return Ok(Enqueued::QueueFull { limit });
        }
    }
    let lane = tx.lane(&new.queue, &new.kind).await?;
    let limit = match new.limit_key.as_deref() {
        Some(key) => Some(limit_keys::limit(tx, queue, key).await?),
        None => None,
    };
    let run_at = new.run_at.unwrap_or(tx.now);
    let rank = limit_keys::rank(tx, &new.queue, limit, run_at.max(tx.now), new.priority).await?;
    let limit = limit.map(|limit| limit.id);
    let rules = tx.key_rules(&new.queue)?;
    let state = match others {
        Others::Done => gates::arrived(tx, &rules, limit, run_at, Wait::New).await?,
        Others::Unfinished(_) | Others::Failed | Others::Unknown(_) => dependents::waiting(run_at),
    };
    let draft = Draft { new, lane: Lane { queue, lane }, limit, rank, state };
    let Some((_, slot)) = insert(tx, std::slice::from_ref(&draft)).await?.pop() else {
        // Another transaction enqueued it concurrently.
        return Ok(Enqueued::Existing(new.id));
    };
    came(tx, &draft);
    if let Some(unique) = &new.unique {
        unique::give(tx, queue, slot, unique).await?;
    }
    if let Some(limit) = limit {
        let places = i64::from(Phase::of(&state).takes_place());
        tx.conn
            .exec(
                "UPDATE ostler.limits SET tasks = tasks + 1, used = used + $2 WHERE id = $1",
                &[&limit, &places],
            )
            .await?;
    }
    match others {
        Others::Unfinished(others) => dependents::wait_for(tx, slot, &others, new.on_failed).await?,
        Others::Failed => {
            let cancelled = dependents::cancelled(tx.now);
            set_state(tx, slot, lane, limit, Phase::of(&state), &cancelled).await?;
            limit_keys::settle(tx, limit, &rules).await?;
        }
        Others::Done | Others::Unknown(_) => gates::settle_arrival(tx, &rules, limit, &state).await?,
    }
    Ok(Enqueued::Created(new.id))
}

/// Counts an enqueued task.
fn came(tx: &mut Tx, draft: &Draft<'_>) {
    let phase = Phase::of(&draft.state);
    tx.count(draft.lane.lane, None, Some(phase.state()));
    if phase == Phase::Ready {
        tx.ring_at(draft.rank.0);
    }
}

/// Inserts rows, except those whose id exists already. Returns the ids and row ids of the new ones.
async fn insert(tx: &Tx, drafts: &[Draft<'_>]) -> Sql<Vec<(Uid, i64)>> {
    let now = tx.now;
    let extras: Vec<Extras> = column(drafts, |draft| Extras::of_new(draft.new));
    let late: Vec<Option<i64>> = extras.iter().map(|extras| extras.ends.late_at()).collect();
    let extras: Vec<Option<String>> = extras.into_iter().map(Extras::text).collect();
    let rows = tx
        .conn
        .rows(
            "INSERT INTO ostler.task(uid, queue, lane, phase, why, rank, priority, run_at, late_at, limit_id, extras, payload,
                created_at, token, runs, failures, trouble)
             SELECT uid, queue, lane, phase, why, rank, priority, run_at, late_at, limit_id, extras, payload, $13, 0, 0, 0, 0
             FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::smallint[], $6::bigint[], $7::smallint[],
                $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::text[])
                WITH ORDINALITY AS n(uid, queue, lane, phase, why, rank, priority, run_at, late_at, limit_id, extras, payload, at)
             ORDER BY at
             ON CONFLICT(uid) DO NOTHING RETURNING uid, id",
            &[
                &column(drafts, |draft| Uid::of(draft.new.id.0)),
                &column(drafts, |draft| draft.lane.queue),
                &column(drafts, |draft| draft.lane.lane),
                &column(drafts, |draft| Phase::of(&draft.state).code()),
                &column(drafts, |draft| why_code(&draft.state)),
                &column(drafts, |draft| draft.rank.0),
                &column(drafts, |draft| points(draft.new.priority)),
                &column(drafts, |draft| draft.new.run_at.unwrap_or(now).millis()),
                &late,
                &column(drafts, |draft| draft.limit),
                &extras,
                &column(drafts, |draft| draft.new.payload.as_str()),
                &now.millis(),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
}

fn column<'a, T>(drafts: &'a [Draft<'a>], of: impl Fn(&'a Draft<'a>) -> T) -> Vec<T> {
    drafts.iter().map(of).collect()
}

pub(crate) async fn exists(tx: &Tx, id: TaskId) -> Sql<bool> {
    tx.conn.exists("SELECT 1 FROM ostler.task WHERE uid = $1", &[&Uid::of(id.0)]).await
}
