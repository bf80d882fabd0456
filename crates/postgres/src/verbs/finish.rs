//! Attempts end: the one ending for all of them.

use ostler_core::{AccountEnd, AttemptEnd, Effect, Ending, Outcome, Probe, Settlement, State, StateName};
use ostler_store::calls::{Finished, Report};
use ostler_store::{Check, LeaseRef};

use super::start::{Leased, fenced};
use super::success;
use crate::cache::Cache;
use crate::conn::{Conn, big, get, int};
use crate::fault::Sql;
use crate::locks::Locks;
use crate::row::{FoundTask, Phase, find};
use crate::tx::Tx;
use ostler_sql::budgets;
use ostler_sql::chunks::{put_output, split_output};
use ostler_sql::dependents;
use ostler_sql::end_attempt::{EndingAttempt, Yields, end_attempt, record};
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::outbox::{OutboxInput, note};
use ostler_sql::task::moved;

/// Whose locks are needed: those of the queues of all tasks. What was claimed here is remembered; the rest has to be looked up.
pub(crate) fn locks(cache: &Cache, reports: &[Report]) -> (Locks, Vec<i64>) {
    let (mut locks, mut unknown) = (Locks::none(), Vec::new());
    for lease in reports.iter().map(|report| report.lease.as_ref()) {
        match cache.recall(lease.row, lease.token) {
            Some(grant) => locks = locks.queue(&grant.queue),
            None => unknown.push(lease.row),
        }
    }
    (locks, unknown)
}

/// The queues of these tasks.
pub(crate) async fn queues_of(conn: &Conn, slots: &[i64]) -> Sql<Locks> {
    let rows = conn
        .rows(
            "SELECT DISTINCT q.name FROM ostler.task t JOIN ostler.queue q ON q.id = t.queue WHERE t.id = ANY($1)",
            &[&slots],
        )
        .await?;
    rows.iter().try_fold(Locks::none(), |locks, row| Ok(locks.queue(&get::<String>(row, 0)?)))
}

pub(crate) async fn run(tx: &mut Tx, reports: &[Report]) -> Sql<Vec<Finished>> {
    let hot = success::among(tx, reports)?;
    let written = success::write(tx, &hot).await?;
    let slot = |report: &Report| report.lease.as_ref().row;
    let others: Vec<i64> = reports.iter().map(slot).filter(|slot| !written.contains(slot)).collect();
    if others.len() > 1 {
        tx.hold_slots(&others).await?;
    }
    let mut answers = Vec::with_capacity(reports.len());
    for (at, report) in reports.iter().enumerate() {
        answers.push(match hot.get(&at) {
            Some(hot) if written.contains(&slot(report)) => success::count(tx, hot).await?,
            Some(_) | None => finish(tx, report).await?,
        });
    }
    tx.cache.forget(reports.iter().map(slot));
    Ok(answers)
}

async fn finish(tx: &mut Tx, report: &Report) -> Sql<Finished> {
    let lease = report.lease.as_ref();
    let check = Check::of_report(&report.outcome);
    let Some(held) = fenced(tx, lease, check).await? else { return Ok(Finished::LeaseLost) };
    let Some(found) = find(&tx.conn, held.slot).await? else { return Ok(Finished::LeaseLost) };
    tx.locked(&found.task.queue)?;
    if matches!(report.outcome, Outcome::Success) && held.phase.state().is_leased() {
        return complete(tx, lease, &held, &found, report).await;
    }
    let state = end_attempt(tx, &found, &report.outcome, report.ran, Yields::of(report)).await?;
    Ok(Finished::Recorded(state))
}

/// A success: it leads to `completed` whatever else is true of the task.
async fn complete(
    tx: &mut Tx,
    lease: LeaseRef,
    held: &Leased,
    found: &FoundTask,
    report: &Report,
) -> Sql<Finished> {
    let started_at = held.started_at.filter(|_| held.phase == Phase::Running);
    let number = held.runs + u32::from(started_at.is_none() && report.ran.is_some());
    let (output, long) = split_output(report.output.as_deref());
    tx.conn
        .exec(
            "UPDATE ostler.task SET phase = 5, why = 0, runs = $3, finished_at = $4, output = $5 WHERE id = $1 AND token = $2",
            &[&held.slot, &big(held.token), &int(number), &tx.now.millis(), &output],
        )
        .await?;
    if let Some(long) = long {
        put_output(tx, held.slot, long).await?;
    }
    let run = EndingAttempt {
        slot: held.slot,
        lane: held.lane,
        number,
        token: held.token,
        session: held.session,
        started_at,
    };
    let end = AttemptEnd { finished_at: tx.now, ending: Ending::Success, failure: None };
    record(tx, &run, report.ran, &end).await?;
    let queue = &found.task.queue;
    moved(tx, held.lane, held.limit, held.phase, Phase::Completed).await?;
    let settings = tx.settings(queue)?;
    if settings.is_charged() {
        budgets::settle(tx, held.slot, held.token, Settlement::Ran).await?;
    }
    let counted = settings.counts_ends();
    let subscribers = settings.subscribers.clone();
    if counted || held.limit.is_some() {
        let rules = if counted {
            let attempt = Probe { task: lease.task, token: held.token };
            let limit = held.limit;
            let end = AccountEnd {
                effect: Effect::BreakerSuccess,
                began: started_at.or(report.ran.map(|ran| tx.now.before(ran.took))),
                why: None,
                reading: report.reading.as_ref(),
            };
            gates::ended(tx, &gates::GateFeedback { queue, limit, attempt, end, unused: None }).await?
        } else {
            tx.key_rules(queue)?
        };
        limit_keys::settle(tx, held.limit, &rules).await?;
    }
    let state = State::Completed { finished_at: tx.now };
    let outcome = Some(&Outcome::Success);
    let end = OutboxInput { lane: held.lane, slot: held.slot, attempt: number, state: &state, outcome };
    note(tx, &subscribers, &end).await?;
    if held.awaited {
        dependents::ended(tx, held.slot).await?;
    }
    Ok(Finished::Recorded(StateName::Completed))
}
