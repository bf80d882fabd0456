//! Attempts end: the one ending for all of them.

use std::time::Duration;

use ostler_core::{
    AttemptEnd, Effect, Ending, LeasePhase, Next, Outcome, Probe, State, StateName, Timestamp, Transition,
    decide,
};
use ostler_store::calls::{Finished, Ran, Report};
use ostler_store::views::QueueSettings;
use ostler_store::{Check, LeaseRef, bounded};

use super::outbox::{OutboxInput, note};
use super::start::{Leased, fenced};
use super::success;
use crate::cache::Cache;
use crate::conn::{Conn, big, get, int};
use crate::fault::Sql;
use crate::locks::Locks;
use crate::row::{BY_SLOT, FoundTask, Mishaps, Phase, Uid, find};
use crate::tx::Tx;
use ostler_sql::codec::failure_text;
use ostler_sql::dependents;
use ostler_sql::gates;
use ostler_sql::limit_keys;
use ostler_sql::task::{moved, set_state};

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
            Some(hot) if written.contains(&slot(report)) => success::count(tx, hot)?,
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
    let Some(found) = find(&tx.conn, BY_SLOT, &[&held.slot]).await? else { return Ok(Finished::LeaseLost) };
    tx.locked(&found.task.queue)?;
    if matches!(report.outcome, Outcome::Success) && held.phase.state().is_leased() {
        return complete(tx, lease, &held, &found, report).await;
    }
    let state = end_attempt(tx, &found, &report.outcome, report.ran, report.output.as_deref()).await?;
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
    tx.conn
        .exec(
            "UPDATE ostler.task SET phase = 5, why = 0, runs = $3, finished_at = $4, output = $5 WHERE id = $1 AND token = $2",
            &[&held.slot, &big(held.token), &int(number), &tx.now.millis(), &report.output],
        )
        .await?;
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
    let counted = settings.breaker.is_some() || settings.concurrency.is_some();
    if counted || held.limit.is_some() {
        let rules = if counted {
            let attempt = Probe { task: lease.task, token: held.token };
            let (limit, effect) = (held.limit, Effect::BreakerSuccess);
            gates::ended(tx, &gates::GateFeedback { queue, limit, attempt, effect, unused: None }).await?
        } else {
            tx.key_rules(queue)?
        };
        limit_keys::settle(tx, held.limit, &rules).await?;
    }
    let state = State::Completed { finished_at: tx.now };
    let outcome = Some(&Outcome::Success);
    let end = OutboxInput { lane: held.lane, slot: held.slot, attempt: number, state: &state, outcome };
    note(tx, settings.outbox, &end);
    if held.awaited {
        dependents::ended(tx, held.slot).await?;
    }
    Ok(Finished::Recorded(StateName::Completed))
}

/// Ends the attempt of a leased task, as `decide` says. The row is held.
pub(crate) async fn end_attempt(
    tx: &mut Tx,
    found: &FoundTask,
    outcome: &Outcome,
    ran: Option<Ran>,
    output: Option<&str>,
) -> Sql<StateName> {
    let task = &found.task;
    let Some(facts) = task.facts() else { return Ok(task.state.name()) };
    let outcome = &bounded(outcome);
    let settings = tx.settings(&task.queue)?;
    let (now, tell) = (tx.now, settings.outbox);
    let policy = task.overrides.resolve(&settings.of_kind(&task.kind));
    let transition = decide(&facts, outcome, &policy, now);
    let attempt = record_end(tx, found, outcome, ran).await?;
    tx.tally(found.lane).retried += u64::from(transition.retries(&facts));
    write(tx, found, outcome, &transition, output).await?;
    let state = match transition.next {
        Next::Queue { run_at, why } => {
            let rules = tx.key_rules(&task.queue)?;
            gates::arrived(tx, &rules, found.limit, run_at, why).await?
        }
        Next::Complete => State::Completed { finished_at: now },
        Next::Fail(reason) => State::Failed { finished_at: now, reason },
        Next::Cancel(reason) => State::Cancelled { finished_at: now, reason },
    };
    set_state(tx, found.slot, found.lane, found.limit, Phase::of(&task.state), &state).await?;
    if let Some(reason) = transition.effect.pause_reason(outcome)
        && settings.paused.is_none()
    {
        let paused = QueueSettings { paused: Some(reason), ..settings };
        tx.set_settings(&task.queue, &paused).await?;
    }
    let begun = facts.phase == LeasePhase::Running || ran.is_some();
    let unused = (matches!(outcome, Outcome::HandedBack) && !begun).then_some(task.cost);
    let attempted = Probe { task: task.id, token: task.token };
    let (queue, limit, effect) = (task.queue.as_str(), found.limit, transition.effect);
    let rules =
        gates::ended(tx, &gates::GateFeedback { queue, limit, attempt: attempted, effect, unused }).await?;
    limit_keys::settle(tx, found.limit, &rules).await?;
    note(
        tx,
        tell,
        &OutboxInput { lane: found.lane, slot: found.slot, attempt, state: &state, outcome: Some(outcome) },
    );
    if found.awaited && state.name().is_terminal() {
        dependents::ended(tx, found.slot).await?;
    }
    Ok(state.name())
}

/// Writes what the end of an attempt changes in the task's row, apart from its state.
async fn write(
    tx: &Tx,
    found: &FoundTask,
    outcome: &Outcome,
    transition: &Transition,
    output: Option<&str>,
) -> Sql<()> {
    let task = &found.task;
    let output = output.filter(|_| matches!(outcome, Outcome::Success));
    let failure = outcome
        .failure()
        .map(|failure| failure_text(failure, task.first_failure_at.unwrap_or(tx.now), tx.now));
    let trouble = Mishaps {
        crashes: transition.crashes,
        node_deaths: transition.node_deaths,
        suspect: task.suspect || transition.becomes_suspect,
        awaited: found.awaited,
    };
    tx.conn
        .exec(
            "UPDATE ostler.task SET failures = $2, trouble = $3, failure = coalesce($4, failure), output = coalesce($5, output)
             WHERE id = $1",
            &[&found.slot, &int(transition.failures), &trouble.code(), &failure, &output],
        )
        .await?;
    Ok(())
}

/// Records how the attempt ended, and answers how many have begun.
async fn record_end(tx: &mut Tx, found: &FoundTask, outcome: &Outcome, ran: Option<Ran>) -> Sql<u32> {
    let task = &found.task;
    let started_at = match task.state {
        State::Running { started_at, .. } => Some(started_at),
        State::Claimed { .. }
        | State::Queued { .. }
        | State::Completed { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    };
    let lazily = started_at.is_none() && ran.is_some();
    if lazily {
        tx.conn.exec("UPDATE ostler.task SET runs = runs + 1 WHERE id = $1", &[&found.slot]).await?;
    }
    let run = EndingAttempt {
        slot: found.slot,
        lane: found.lane,
        number: task.runs + u32::from(lazily),
        token: task.token,
        session: found.session.unwrap_or_default(),
        started_at,
    };
    let end =
        AttemptEnd { finished_at: tx.now, ending: outcome.ending(), failure: outcome.failure().cloned() };
    record(tx, &run, ran, &end).await?;
    Ok(run.number)
}

/// An attempt that ends.
struct EndingAttempt {
    slot: i64,
    lane: i64,
    number: u32,
    token: u64,
    session: i64,
    /// When it began, if that was written.
    started_at: Option<Timestamp>,
}

async fn record(tx: &mut Tx, run: &EndingAttempt, ran: Option<Ran>, end: &AttemptEnd) -> Sql<()> {
    let failure = end.failure.as_ref().map(|failure| failure_text(failure, end.finished_at, end.finished_at));
    let finished_at = end.finished_at.millis();
    let took: Duration = match (run.started_at, ran) {
        (Some(started_at), _) => {
            tx.conn
                .exec(
                    "UPDATE ostler.attempt SET finished_at = $3, ending = $4, failure = $5 WHERE task = $1 AND number = $2",
                    &[&run.slot, &int(run.number), &finished_at, &end.ending.name(), &failure],
                )
                .await?;
            end.finished_at.since(started_at)
        }
        (None, Some(ran)) => {
            let session = tx.session_name(run.session).await?;
            let started_at = end.finished_at.before(ran.took);
            tx.conn
                .exec(
                    "INSERT INTO ostler.attempt(task, number, token, session, worker, started_at, finished_at, ending, failure)
                     VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                    &[
                        &run.slot,
                        &int(run.number),
                        &big(run.token),
                        &Uid::of(session.0),
                        &Uid::of(ran.worker.0),
                        &started_at.millis(),
                        &finished_at,
                        &end.ending.name(),
                        &failure,
                    ],
                )
                .await?;
            tx.tally(run.lane).attempts += 1;
            end.finished_at.since(started_at)
        }
        // It was claimed and never ran.
        (None, None) => return Ok(()),
    };
    match end.ending {
        Ending::Success | Ending::Failed(_) => tx.count_run(run.lane, took),
        Ending::NodeDied | Ending::HandedBack | Ending::Cancelled => {}
    }
    Ok(())
}
