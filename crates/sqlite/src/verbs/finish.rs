//! Attempts end: the one ending for all of them.

use ostler_core::{
    AccountEnd, AccountReading, AttemptEnd, Effect, EndKind, Ending, Outcome, Probe, Settlement, State,
    StateName, Timestamp,
};
use ostler_sql::poll_now;
use ostler_sql::task::moved;
use ostler_store::calls::{Finished, Ran, Report};
use ostler_store::{Check, LeaseRef};
use rusqlite::{CachedStatement, params};

use super::start::{FENCE, Leased, fenced};
use crate::row::{Phase, Uid, find, ran_bytes};
use crate::tx::{EndEffects, Grant, Sql, Tx};
use ostler_sql::budgets;
use ostler_sql::chunks::{put_output, split_output};
use ostler_sql::dependents;
use ostler_sql::end_attempt::{EndingAttempt, Yields, end_attempt, record};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::outbox::{OutboxInput, note};

pub(crate) fn run(tx: &mut Tx<'_>, reports: &[Report]) -> Sql<Vec<Finished>> {
    let mut hot = Hot::prepare(tx)?;
    reports.iter().map(|report| finish(tx, &mut hot, report)).collect()
}

fn finish(tx: &mut Tx<'_>, hot: &mut Hot<'_>, report: &Report) -> Sql<Finished> {
    let lease = report.lease.as_ref();
    let (output, long) = split_output(report.output.as_deref());
    if let (Outcome::Success, Some(ran)) = (&report.outcome, report.ran)
        && let Some(finished) = complete_remembered(tx, hot, report, ran, output)?
    {
        long.map_or(Ok(()), |long| poll_now(put_output(tx, lease.row, long)))?;
        return Ok(finished);
    }
    let check = Check::of_report(&report.outcome);
    let Some(held) = fenced(tx, &mut hot.fence, lease, check)? else {
        return Ok(Finished::LeaseLost);
    };
    if matches!(report.outcome, Outcome::Success) && held.phase.state().is_leased() {
        long.map_or(Ok(()), |long| poll_now(put_output(tx, held.slot, long)))?;
        return complete(tx, report, &held, output);
    }
    let Some(found) = find(tx.conn, held.slot)? else { return Ok(Finished::LeaseLost) };
    let state = poll_now(end_attempt(tx, &found, &report.outcome, report.ran, Yields::of(report)))?;
    Ok(Finished::Recorded(state))
}

/// The statements of the hot path, prepared once for a batch.
struct Hot<'a> {
    fence: CachedStatement<'a>,
    remembered: CachedStatement<'a>,
}

impl<'a> Hot<'a> {
    fn prepare(tx: &Tx<'a>) -> Sql<Self> {
        Ok(Self {
            fence: tx.prepare(FENCE)?,
            remembered: tx.prepare(
                "UPDATE task SET phase = 5, why = 0, runs = ?4, started_at = ?5, finished_at = ?6, ran = ?7, output = ?8
                 WHERE id = ?1 AND uid = ?2 AND token = ?3 AND phase = 3 AND trouble >= 0",
            )?,
        })
    }
}

/// The hot path: a success leads to `completed` whatever else is true of the task, and what else is needed is remembered
/// from the claim. So the row is written without being read, and the attempt's record with it; the fence stands in the
/// statement, and so does that no task waits for this one. `None`: not remembered, or not so any more.
fn complete_remembered(
    tx: &mut Tx<'_>,
    hot: &mut Hot<'_>,
    report: &Report,
    ran: Ran,
    output: Option<&str>,
) -> Sql<Option<Finished>> {
    let lease = report.lease.as_ref();
    let Some(Grant { lane, limit, session, runs, .. }) = tx.recall(lease.row, lease.token) else {
        return Ok(None);
    };
    let now = tx.now;
    let who = ran_bytes(ran.worker, tx.session_name(session)?);
    let written = hot.remembered.execute(params![
        lease.row,
        Uid::of(lease.task.0),
        lease.token,
        runs + 1,
        now.before(ran.took).millis(),
        now.millis(),
        who,
        output
    ])?;
    if written == 0 {
        return Ok(None);
    }
    tx.count_run(lane, now.since(now.before(ran.took)));
    tx.tally(lane).attempts += 1;
    let done = CompletedTask {
        lane,
        slot: lease.row,
        limit,
        lease,
        attempt: runs + 1,
        began: Some(now.before(ran.took)),
        reading: report.reading.as_ref(),
    };
    make_room(tx, &done, Phase::Claimed)?;
    Ok(Some(Finished::Recorded(StateName::Completed)))
}

/// The same, where the row had to be read.
fn complete(tx: &mut Tx<'_>, report: &Report, held: &Leased, output: Option<&str>) -> Sql<Finished> {
    let runs = held.runs + u32::from(held.phase == Phase::Claimed && report.ran.is_some());
    tx.prepare(
        "UPDATE task SET phase = 5, why = 0, runs = ?3, finished_at = ?4, output = ?5 WHERE id = ?1 AND token = ?2",
    )?
    .execute(params![held.slot, held.token, runs, tx.now.millis(), output])?;
    completed(tx, report, held)
}

/// What follows when a task was written as completed.
fn completed(tx: &mut Tx<'_>, report: &Report, held: &Leased) -> Sql<Finished> {
    let ran = report.ran;
    let started_at = held.started_at.filter(|_| held.phase == Phase::Running);
    let run = EndingAttempt {
        slot: held.slot,
        lane: held.lane,
        number: held.runs + u32::from(started_at.is_none() && ran.is_some()),
        token: held.token,
        session: held.session,
        started_at,
    };
    let end = AttemptEnd { finished_at: tx.now, ending: Ending::Success, failure: None };
    poll_now(record(tx, &run, ran, &end))?;
    let lease = LeaseRef { task: report.lease.task(), token: held.token, row: held.slot };
    let done = CompletedTask {
        lane: held.lane,
        slot: held.slot,
        limit: held.limit,
        lease,
        attempt: run.number,
        began: started_at.or(ran.map(|ran| tx.now.before(ran.took))),
        reading: report.reading.as_ref(),
    };
    make_room(tx, &done, held.phase)?;
    if held.awaited {
        poll_now(dependents::ended(tx, held.slot))?;
    }
    Ok(Finished::Recorded(StateName::Completed))
}

/// A task that was written as completed.
struct CompletedTask<'a> {
    lane: i64,
    slot: i64,
    limit: Option<i64>,
    lease: LeaseRef,
    attempt: u32,
    began: Option<Timestamp>,
    reading: Option<&'a AccountReading>,
}

/// A task was completed: it is counted, its gates hear of it, its key has room for another, and an outbox entry may be written.
fn make_room(tx: &mut Tx<'_>, done: &CompletedTask<'_>, from: Phase) -> Sql<()> {
    let CompletedTask { lane, slot, limit, lease, attempt, began, reading } = *done;
    poll_now(moved(tx, lane, limit, from, Phase::Completed))?;
    let EndEffects { tell, counted, charged } = tx.ends_of(lane)?;
    if charged {
        poll_now(budgets::settle(tx, slot, lease.token, Settlement::Ran))?;
    }
    if counted || limit.is_some() {
        let queue = tx.queue_of(lane)?;
        let rules = if counted {
            let attempt = Probe { task: lease.task, token: lease.token };
            let end = AccountEnd { effect: Effect::BreakerSuccess, began, why: None, reading };
            poll_now(gates::ended(
                tx,
                &gates::GateFeedback { queue: &queue, limit, attempt, end, unused: None },
            ))?
        } else {
            tx.key_rules(&queue)?
        };
        poll_now(limit_keys::settle(tx, limit, &rules))?;
    }
    if !tell.has(EndKind::Completed) {
        return Ok(());
    }
    let state = State::Completed { finished_at: tx.now };
    let outcome = Some(&Outcome::Success);
    let queue = tx.queue_of(lane)?;
    let subscribers = tx.queue_or_new(&queue)?.settings.subscribers.clone();
    poll_now(note(tx, &subscribers, &OutboxInput { lane, slot, attempt, state: &state, outcome }))
}
