//! Gives the ready tasks of lowest rank to a session.

use std::sync::Arc;

use ostler_core::{Priority, Rank, TaskId, Timestamp, too_late};
use ostler_store::calls::{Claim, ClaimAnswer, Claimed, Kinds};
use ostler_store::views::QueueSettings;
use ostler_store::{Check, Lease, LeaseRef};
use rusqlite::{Row, params};

use super::tellings::{End, note};
use crate::fault::readable;
use crate::kept::extras_from;
use crate::keys;
use crate::row::{Phase, Trouble, Uid};
use crate::tx::{Grant, Sql, Tx};

/// A ready task, before it is known whether it is claimed.
struct Ready {
    slot: i64,
    lane: i64,
    rank: Rank,
    limit: Option<i64>,
    claimed: Claimed,
}

const TAKE: &str =
    "UPDATE task SET phase = 3, why = 0, token = token + 1, session = ?2, started_at = NULL WHERE id = ?1";

pub(crate) fn run(tx: &mut Tx<'_>, claim: &Claim) -> Sql<ClaimAnswer> {
    let Some(session) = tx.live_session(claim.session, Check::ClaimSession)? else {
        return Ok(ClaimAnswer::SessionEnded);
    };
    let nothing = Ok(ClaimAnswer::Tasks(Vec::new()));
    let Some(queue) = tx.queue(&claim.queue)? else { return nothing };
    if queue.settings.paused.is_some() {
        return nothing;
    }
    let served = |kind: &str| match &claim.kinds {
        Kinds::Any => true,
        Kinds::Only(kinds) => kinds.iter().any(|known| known == kind),
    };
    let lanes: Vec<(i64, Arc<str>)> = queue.lanes.iter().filter(|(_, kind)| served(kind)).cloned().collect();
    let (name, settings, mut clock) = (Arc::clone(&queue.name), queue.settings.clone(), queue.clock);
    let mut ready = Vec::new();
    for (lane, kind) in &lanes {
        look(tx, *lane, kind, &name, &settings, claim.limit, &mut ready)?;
    }
    if lanes.len() > 1 {
        ready.sort_by_key(|task| (task.rank, task.slot));
        ready.truncate(claim.limit);
    }
    let now = tx.now;
    let mut take = tx.prepare(TAKE)?;
    let mut claimed = Vec::with_capacity(ready.len());
    let mut late = Vec::new();
    for task in ready {
        if let Some(state) = too_late(task.claimed.not_after, task.claimed.deadline, now) {
            late.push((task, state));
            continue;
        }
        take.execute(params![task.slot, session])?;
        let (token, runs) = (task.claimed.lease.as_ref().token, task.claimed.attempt - 1);
        let grant = Grant { token, lane: task.lane, limit: task.limit, session, runs };
        tx.remember(task.slot, grant);
        tx.moved(task.lane, task.limit, Phase::Ready, Phase::Claimed)?;
        clock = clock.advanced(task.rank, task.claimed.priority);
        claimed.push(task.claimed);
    }
    tx.set_clock(&claim.queue, clock)?;
    // Those that are too late come last: ending one may move others of its key.
    for (task, state) in late {
        tx.set_state(task.slot, task.lane, task.limit, Phase::Ready, &state)?;
        keys::settle(tx, task.limit, settings.key_concurrency)?;
        let attempt = task.claimed.attempt - 1;
        let end = End { lane: task.lane, slot: task.slot, attempt, state: &state, outcome: None };
        note(tx, settings.tell, &end)?;
    }
    Ok(ClaimAnswer::Tasks(claimed))
}

/// The best of one lane.
fn look(
    tx: &Tx<'_>,
    lane: i64,
    kind: &Arc<str>,
    queue: &Arc<str>,
    settings: &QueueSettings,
    limit: usize,
    ready: &mut Vec<Ready>,
) -> Sql<()> {
    let mut statement = tx.prepare(
        "SELECT id, uid, token, rank, priority, runs, trouble, created_at, not_after, limit_id, extras, payload
         FROM task INDEXED BY ready WHERE lane = ?1 AND phase = 0 ORDER BY rank, id",
    )?;
    let read = |row: &Row<'_>| {
        let slot: i64 = row.get(0)?;
        let time = |column: usize| {
            row.get::<_, Option<i64>>(column).map(|millis| millis.map(Timestamp::from_millis))
        };
        let lease =
            LeaseRef { task: TaskId(row.get::<_, Uid>(1)?.id()), token: row.get::<_, u64>(2)? + 1, slot };
        let extras = extras_from(row.get(10)?)?;
        let trouble = Trouble::from_code(row.get(6)?);
        let claimed = Claimed {
            lease: Lease::granted(lease),
            queue: Arc::clone(queue),
            kind: Arc::clone(kind),
            payload: row.get(11)?,
            attempt: row.get::<_, u32>(5)? + 1,
            priority: Priority::new(row.get(4)?).unwrap_or_default(),
            suspect: trouble.suspect,
            node_deaths: trouble.node_deaths,
            policy: extras.overrides.resolve(&settings.overrides),
            folder: extras.folder,
            created_at: Timestamp::from_millis(row.get(7)?),
            not_after: time(8)?,
            deadline: extras.deadline,
        };
        Ok(Ready { slot, lane, rank: Rank(row.get(3)?), limit: row.get(9)?, claimed })
    };
    let mut rows = statement.query([lane])?;
    let enough = ready.len() + limit;
    while ready.len() < enough
        && let Some(row) = rows.next()?
    {
        // A task whose row cannot be understood is not run; it stays, and `show` says why.
        ready.extend(readable(read(row))?);
    }
    Ok(())
}
