//! Claim: leases the ready tasks of lowest rank to a session.

use std::sync::Arc;

use ostler_core::{Charging, Priority, Rank, State, TaskId, Timestamp};
use ostler_sql::claim::{ClaimLanes, ReadyTask};
use ostler_sql::codec::extras_from;
use ostler_sql::poll_now;
use ostler_store::calls::{Claim, ClaimAnswer, Claimed};
use ostler_store::views::QueueSettings;
use ostler_store::{Check, Lease, LeaseRef};
use rusqlite::{Row, params};

use crate::fault::readable;
use crate::row::{Mishaps, Uid};
use crate::shared_tx::unreadable;
use crate::tx::{Grant, Sql, Tx};

const TAKE: &str =
    "UPDATE task SET phase = 3, why = 0, token = token + 1, session = ?2, started_at = NULL WHERE id = ?1";

pub(crate) fn run(tx: &mut Tx<'_>, claim: &Claim) -> Sql<ClaimAnswer> {
    let Some(session) = tx.live_session(claim.session, Check::ClaimSession)? else {
        return Ok(ClaimAnswer::SessionEnded);
    };
    let nothing = || Ok(ClaimAnswer::Tasks { tasks: Vec::new(), next: None });
    if tx.departure()?.is_some() {
        return nothing();
    }
    let Some(queue) = tx.queue(&claim.queue)? else { return nothing() };
    if queue.settings.paused.is_some() {
        return nothing();
    }
    let lanes = ClaimLanes::of(queue, claim);
    let (claimed, next) = poll_now(ostler_sql::claim::run(tx, claim, session, &lanes))?;
    for task in &claimed {
        let (token, runs) = (task.claimed.lease.as_ref().token, task.claimed.attempt - 1);
        tx.remember(task.slot, Grant { token, lane: task.lane, limit: task.limit, session, runs });
    }
    Ok(ClaimAnswer::Tasks { tasks: claimed.into_iter().map(|task| task.claimed).collect(), next })
}

/// Leases tasks to a session.
pub(crate) fn take(tx: &Tx<'_>, tasks: &[ReadyTask], session: i64) -> Sql<()> {
    let mut take = tx.prepare(TAKE)?;
    for task in tasks {
        take.execute(params![task.slot, session])?;
    }
    Ok(())
}

/// The best tasks of all lanes, except those known to be overdue.
pub(crate) fn best(
    tx: &Tx<'_>,
    lanes: &ClaimLanes,
    wanted: usize,
    late: &[(ReadyTask, State)],
) -> Sql<Vec<ReadyTask>> {
    let mut ready = Vec::new();
    for (lane, kind) in &lanes.lanes {
        look(tx, *lane, kind, &lanes.queue, &lanes.settings, wanted + late.len(), &mut ready)?;
    }
    if !late.is_empty() {
        ready.retain(|task| late.iter().all(|(known, _)| known.slot != task.slot));
    }
    if lanes.lanes.len() > 1 || !late.is_empty() {
        ready.sort_by_key(|task| (task.rank, task.slot));
        ready.truncate(wanted);
    }
    Ok(ready)
}

/// The best tasks of one lane.
fn look(
    tx: &Tx<'_>,
    lane: i64,
    kind: &Arc<str>,
    queue: &Arc<str>,
    settings: &QueueSettings,
    limit: usize,
    ready: &mut Vec<ReadyTask>,
) -> Sql<()> {
    let further = settings.of_kind(kind);
    let mut statement = tx.prepare(
        "SELECT id, uid, token, rank, priority, runs, trouble, created_at, late_at, limit_id, extras, payload,
            failures
         FROM task INDEXED BY ready WHERE lane = ?1 AND phase = 0 ORDER BY rank, id",
    )?;
    let read = |row: &Row<'_>| {
        let slot: i64 = row.get(0)?;
        let lease = LeaseRef {
            task: TaskId(row.get::<_, Uid>(1)?.id()),
            token: row.get::<_, u64>(2)? + 1,
            row: slot,
        };
        let extras = extras_from(row.get(10)?, row.get(8)?).map_err(unreadable)?;
        let trouble = Mishaps::from_code(row.get(6)?);
        let claimed = Claimed {
            lease: Lease::granted(lease),
            queue: Arc::clone(queue),
            kind: Arc::clone(kind),
            payload: row.get(11)?,
            attempt: row.get::<_, u32>(5)? + 1,
            failures: row.get(12)?,
            priority: Priority::new(row.get(4)?).unwrap_or_default(),
            suspect: trouble.suspect,
            node_deaths: trouble.node_deaths,
            policy: extras.overrides.resolve(&further),
            folder: extras.folder,
            traceparent: extras.traceparent,
            created_at: Timestamp::from_millis(row.get(7)?),
            not_after: extras.ends.not_after,
            deadline: extras.ends.deadline,
            // Known when its reservation is made.
            charging: Charging::Free,
        };
        let (rank, limit, cost) = (Rank(row.get(3)?), row.get(9)?, extras.cost);
        Ok(ReadyTask { slot, lane, rank, limit, cost, awaited: trouble.awaited, claimed })
    };
    let mut rows = statement.query([lane])?;
    let enough = ready.len() + limit;
    while ready.len() < enough
        && let Some(row) = rows.next()?
    {
        // A task whose row cannot be decoded is not run; it stays, and `show` says why.
        ready.extend(readable(read(row))?);
    }
    Ok(())
}
