//! Start: begins attempts.

use ostler_core::Timestamp;
use ostler_store::calls::{Fenced, Start};
use ostler_store::{Check, LeaseRef};
use rusqlite::{CachedStatement, OptionalExtension, params};

use crate::row::phase_at;
use crate::row::{Mishaps, Phase, Uid};
use crate::tx::{Sql, Tx};

/// The leased task behind a lease.
pub(crate) struct Leased {
    pub(crate) slot: i64,
    pub(crate) lane: i64,
    pub(crate) phase: Phase,
    pub(crate) session: i64,
    pub(crate) token: u64,
    pub(crate) runs: u32,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) limit: Option<i64>,
    /// Whether another task ever waited for this one.
    pub(crate) awaited: bool,
}

/// Finds the task of a lease.
pub(crate) const FENCE: &str = "SELECT lane, phase, session, token, runs, started_at, limit_id, trouble FROM task WHERE id = ?1 AND uid = ?2";

/// Returns the task of a lease, if the lease is still valid.
pub(crate) fn fenced(
    tx: &Tx<'_>,
    statement: &mut CachedStatement<'_>,
    lease: LeaseRef,
    check: Check,
) -> Sql<Option<Leased>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Leased {
            slot: lease.row,
            lane: row.get(0)?,
            phase: phase_at(row, 1)?,
            session: row.get::<_, Option<i64>>(2)?.unwrap_or_default(),
            token: row.get(3)?,
            runs: row.get(4)?,
            started_at: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            limit: row.get(6)?,
            awaited: Mishaps::from_code(row.get(7)?).awaited,
        })
    };
    let found = statement.query_row(params![lease.row, Uid::of(lease.task.0)], read).optional()?;
    Ok(found.filter(|held| {
        tx.checks.pass(check, held.token == lease.token)
            && tx.checks.pass(Check::LeasedState, held.phase.state().is_leased())
    }))
}

pub(crate) fn run(tx: &mut Tx<'_>, starts: &[Start]) -> Sql<Vec<Fenced>> {
    starts.iter().map(|start| begin(tx, start)).collect()
}

fn begin(tx: &mut Tx<'_>, start: &Start) -> Sql<Fenced> {
    let Some(held) = fenced(tx, &mut tx.prepare(FENCE)?, start.lease, Check::StartToken)? else {
        return Ok(Fenced::Lost);
    };
    if held.phase == Phase::Claimed {
        let now = tx.now.millis();
        tx.prepare("UPDATE task SET phase = 4, runs = runs + 1, started_at = ?2 WHERE id = ?1")?
            .execute(params![held.slot, now])?;
        let session = tx.session_name(held.session)?;
        tx.prepare("INSERT INTO attempt(task, number, token, session, worker, started_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![held.slot, held.runs + 1, held.token, Uid::of(session.0), Uid::of(start.worker.0), now])?;
        tx.count(held.lane, Some(Phase::Claimed.state()), Some(Phase::Running.state()));
        tx.tally(held.lane).attempts += 1;
    }
    Ok(Fenced::Recorded)
}
