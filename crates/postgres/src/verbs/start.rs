//! Attempts begin. A row that is held is enough for this: where a task stands among others of its queue does not change.

use ostler_core::Timestamp;
use ostler_store::calls::{Fenced, Start};
use ostler_store::{Check, LeaseRef};

use crate::conn::{big, get, get_u32, get_u64, int};
use crate::fault::Sql;
use crate::row::{Phase, Trouble, Uid};
use crate::tx::Tx;

/// What a lease leads to.
pub(crate) struct Leased {
    pub(crate) slot: i64,
    pub(crate) lane: i64,
    pub(crate) phase: Phase,
    pub(crate) session: i64,
    pub(crate) token: u64,
    pub(crate) runs: u32,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) limit: Option<i64>,
    /// Whether a task ever waited for it.
    pub(crate) awaited: bool,
}

/// The task of a lease, if whoever holds it may still speak for the task. Its row is held from here on.
pub(crate) async fn fenced(tx: &Tx, lease: LeaseRef, check: Check) -> Sql<Option<Leased>> {
    let row = tx
        .conn
        .row(
            "SELECT lane, phase, session, token, runs, started_at, limit_id, trouble FROM ostler.task
             WHERE id = $1 AND uid = $2 FOR NO KEY UPDATE",
            &[&lease.slot, &Uid::of(lease.task.0)],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let held = Leased {
        slot: lease.slot,
        lane: get(&row, 0)?,
        phase: Phase::from_code(get(&row, 1)?)?,
        session: get::<Option<i64>>(&row, 2)?.unwrap_or_default(),
        token: get_u64(&row, 3)?,
        runs: get_u32(&row, 4)?,
        started_at: get::<Option<i64>>(&row, 5)?.map(Timestamp::from_millis),
        limit: get(&row, 6)?,
        awaited: Trouble::from_code(get(&row, 7)?).awaited,
    };
    let holds = tx.checks.pass(check, held.token == lease.token)
        && tx.checks.pass(Check::LeasedState, held.phase.state().is_leased());
    Ok(holds.then_some(held))
}

pub(crate) async fn run(tx: &mut Tx, starts: &[Start]) -> Sql<Vec<Fenced>> {
    if starts.len() > 1 {
        let slots: Vec<i64> = starts.iter().map(|start| start.lease.slot).collect();
        tx.hold_slots(&slots).await?;
    }
    let mut answers = Vec::with_capacity(starts.len());
    for start in starts {
        answers.push(begin(tx, start).await?);
    }
    Ok(answers)
}

async fn begin(tx: &mut Tx, start: &Start) -> Sql<Fenced> {
    let Some(held) = fenced(tx, start.lease, Check::StartToken).await? else { return Ok(Fenced::Lost) };
    if held.phase == Phase::Claimed {
        let now = tx.now.millis();
        tx.conn
            .exec(
                "UPDATE ostler.task SET phase = 4, runs = runs + 1, started_at = $2 WHERE id = $1",
                &[&held.slot, &now],
            )
            .await?;
        let session = tx.session_name(held.session).await?;
        tx.conn
            .exec(
                "INSERT INTO ostler.attempt(task, number, token, session, worker, started_at) VALUES($1, $2, $3, $4, $5, $6)",
                &[
                    &held.slot,
                    &int(held.runs + 1),
                    &big(held.token),
                    &Uid::of(session.0),
                    &Uid::of(start.worker.0),
                    &now,
                ],
            )
            .await?;
        tx.count(held.lane, Some(Phase::Claimed.state()), Some(Phase::Running.state()));
    }
    Ok(Fenced::Recorded)
}
