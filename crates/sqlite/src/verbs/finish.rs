//! Attempts end: the one ending for all of them.

use std::time::Duration;

use ostler_core::{
    AttemptEnd, Effect, Ending, LeasePhase, Next, Outcome, Probe, State, StateName, Timestamp, Transition,
    decide,
};
use ostler_sql::poll_now;
use ostler_sql::task::{moved, set_state};
use ostler_store::calls::{Finished, Ran, Report};
use ostler_store::outbox::OutboxFilter;
use ostler_store::views::QueueSettings;
use ostler_store::{Check, LeaseRef, bounded};
use rusqlite::{CachedStatement, params};

use super::outbox::{OutboxInput, note};
use super::start::{FENCE, Leased, fenced};
use crate::row::{FoundTask, Mishaps, Phase, Uid, find, ran_bytes};
use crate::tx::{EndEffects, Grant, Sql, Tx};
use ostler_sql::codec::failure_text;
use ostler_sql::dependents;
use ostler_sql::gates;
use ostler_sql::limit_keys;

pub(crate) fn run(tx: &mut Tx<'_>, reports: &[Report]) -> Sql<Vec<Finished>> {
    let mut hot = Hot::prepare(tx)?;
    reports.iter().map(|report| finish(tx, &mut hot, report)).collect()
}

fn finish(tx: &mut Tx<'_>, hot: &mut Hot<'_>, report: &Report) -> Sql<Finished> {
    let lease = report.lease.as_ref();
    if let (Outcome::Success, Some(ran)) = (&report.outcome, report.ran)
        && let Some(finished) = complete_remembered(tx, hot, lease, ran, report.output.as_deref())?
    {
        return Ok(finished);
    }
    let check = Check::of_report(&report.outcome);
    let Some(held) = fenced(tx, &mut hot.fence, lease, check)? else {
        return Ok(Finished::LeaseLost);
    };
    if matches!(report.outcome, Outcome::Success) && held.phase.state().is_leased() {
        return complete(tx, hot, lease, &held, report.ran, report.output.as_deref());
    }
    let Some(found) = find(tx.conn, "WHERE t.id = ?1", [held.slot])? else { return Ok(Finished::LeaseLost) };
    let state = end_attempt(tx, &found, &report.outcome, report.ran, report.output.as_deref())?;
    Ok(Finished::Recorded(state))
}

/// The statements of the hot path, prepared once for a batch.
struct Hot<'a> {
    fence: CachedStatement<'a>,
    remembered: CachedStatement<'a>,
    record: CachedStatement<'a>,
}

impl<'a> Hot<'a> {
    fn prepare(tx: &Tx<'a>) -> Sql<Self> {
        Ok(Self {
            fence: tx.prepare(FENCE)?,
            remembered: tx.prepare(
                "UPDATE task SET phase = 5, why = 0, runs = ?4, started_at = ?5, finished_at = ?6, ran = ?7, output = ?8
                 WHERE id = ?1 AND uid = ?2 AND token = ?3 AND phase = 3 AND trouble >= 0",
            )?,
            record: tx.prepare(RECORD)?,
        })
    }
}

/// The hot path: a success leads to `completed` whatever else is true of the task, and what else is needed is remembered
/// from the claim. So the row is written without being read, and the attempt's record with it; the fence stands in the
/// statement, and so does that nobody waits for the task. `None`: not remembered, or not so any more.
fn complete_remembered(
    tx: &mut Tx<'_>,
    hot: &mut Hot<'_>,
    lease: LeaseRef,
    ran: Ran,
    output: Option<&str>,
) -> Sql<Option<Finished>> {
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
    let done = CompletedTask { lane, slot: lease.row, limit, lease, attempt: runs + 1 };
    make_room(tx, &done, Phase::Claimed)?;
    Ok(Some(Finished::Recorded(StateName::Completed)))
}

/// The same, where the row had to be read.
fn complete(
    tx: &mut Tx<'_>,
    hot: &mut Hot<'_>,
    lease: LeaseRef,
    held: &Leased,
    ran: Option<Ran>,
    output: Option<&str>,
) -> Sql<Finished> {
    let runs = held.runs + u32::from(held.phase == Phase::Claimed && ran.is_some());
    tx.prepare(
        "UPDATE task SET phase = 5, why = 0, runs = ?3, finished_at = ?4, output = ?5 WHERE id = ?1 AND token = ?2",
    )?
    .execute(params![held.slot, held.token, runs, tx.now.millis(), output])?;
    completed(tx, hot, lease, held, ran)
}

/// What follows when a task was written as completed.
fn completed(
    tx: &mut Tx<'_>,
    hot: &mut Hot<'_>,
    lease: LeaseRef,
    held: &Leased,
    ran: Option<Ran>,
) -> Sql<Finished> {
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
    record(tx, &mut hot.record, &run, ran, &end)?;
    let lease = LeaseRef { task: lease.task, token: held.token, row: held.slot };
    let done =
        CompletedTask { lane: held.lane, slot: held.slot, limit: held.limit, lease, attempt: run.number };
    make_room(tx, &done, held.phase)?;
    if held.awaited {
        poll_now(dependents::ended(tx, held.slot))?;
    }
    Ok(Finished::Recorded(StateName::Completed))
}

/// A task that was written as completed.
struct CompletedTask {
    lane: i64,
    slot: i64,
    limit: Option<i64>,
    lease: LeaseRef,
    attempt: u32,
}

/// A task was completed: it is counted, its gates hear of it, its key has room for another, and somebody may be told.
fn make_room(tx: &mut Tx<'_>, done: &CompletedTask, from: Phase) -> Sql<()> {
    let CompletedTask { lane, slot, limit, lease, attempt } = *done;
    poll_now(moved(tx, lane, limit, from, Phase::Completed))?;
    let EndEffects { tell, counted } = tx.ends_of(lane)?;
    if counted || limit.is_some() {
        let queue = tx.queue_of(lane)?;
        let rules = if counted {
            let attempt = Probe { task: lease.task, token: lease.token };
            let effect = Effect::BreakerSuccess;
            poll_now(gates::ended(
                tx,
                &gates::GateFeedback { queue: &queue, limit, attempt, effect, unused: None },
            ))?
        } else {
            tx.key_rules(&queue)?
        };
        poll_now(limit_keys::settle(tx, limit, &rules))?;
    }
    if tell == OutboxFilter::NONE {
        return Ok(());
    }
    let state = State::Completed { finished_at: tx.now };
    note(tx, tell, &OutboxInput { lane, slot, attempt, state: &state, outcome: Some(&Outcome::Success) })
}

/// EndEffects the attempt of a leased task, as `decide` says.
pub(crate) fn end_attempt(
    tx: &mut Tx<'_>,
    found: &FoundTask,
    outcome: &Outcome,
    ran: Option<Ran>,
    output: Option<&str>,
) -> Sql<StateName> {
    let task = &found.task;
    let Some(facts) = task.facts() else { return Ok(task.state.name()) };
    let outcome = &bounded(outcome);
    let settings = tx.queue_or_new(&task.queue)?.settings.clone();
    let (now, tell) = (tx.now, settings.outbox);
    let policy = task.overrides.resolve(&settings.of_kind(&task.kind));
    let transition = decide(&facts, outcome, &policy, now);
    let attempt = record_end(tx, found, outcome, ran)?;
    tx.tally(found.lane).retried += u64::from(transition.retries(&facts));
    write(tx, found, outcome, &transition, output)?;
    let state = match transition.next {
        Next::Queue { run_at, why } => {
            let rules = tx.key_rules(&task.queue)?;
            poll_now(gates::arrived(tx, &rules, found.limit, run_at, why))?
        }
        Next::Complete => State::Completed { finished_at: now },
        Next::Fail(reason) => State::Failed { finished_at: now, reason },
        Next::Cancel(reason) => State::Cancelled { finished_at: now, reason },
    };
    poll_now(set_state(tx, found.slot, found.lane, found.limit, Phase::of(&task.state), &state))?;
    if let Some(reason) = transition.effect.pause_reason(outcome)
        && settings.paused.is_none()
    {
        let paused = QueueSettings { paused: Some(reason), ..settings };
        tx.set_settings(&task.queue, &paused)?;
    }
    let begun = facts.phase == LeasePhase::Running || ran.is_some();
    let unused = (matches!(outcome, Outcome::HandedBack) && !begun).then_some(task.cost);
    let attempted = Probe { task: task.id, token: task.token };
    let (queue, limit, effect) = (task.queue.as_str(), found.limit, transition.effect);
    let rules = poll_now(gates::ended(
        tx,
        &gates::GateFeedback { queue, limit, attempt: attempted, effect, unused },
    ))?;
    poll_now(limit_keys::settle(tx, found.limit, &rules))?;
    let end =
        OutboxInput { lane: found.lane, slot: found.slot, attempt, state: &state, outcome: Some(outcome) };
    note(tx, tell, &end)?;
    if found.awaited && state.name().is_terminal() {
        poll_now(dependents::ended(tx, found.slot))?;
    }
    Ok(state.name())
}

/// Writes what the end of an attempt changes in the task's row, apart from its state.
fn write(
    tx: &Tx<'_>,
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
    tx.prepare(
        "UPDATE task SET failures = ?2, trouble = ?3, failure = coalesce(?4, failure), output = coalesce(?5, output)
         WHERE id = ?1",
    )?
    .execute(params![found.slot, transition.failures, trouble.code(), failure, output])?;
    Ok(())
}

/// Records how the attempt ended, and answers how many have begun.
fn record_end(tx: &mut Tx<'_>, found: &FoundTask, outcome: &Outcome, ran: Option<Ran>) -> Sql<u32> {
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
        tx.prepare("UPDATE task SET runs = runs + 1 WHERE id = ?1")?.execute([found.slot])?;
    }
    let session =
        tx.prepare("SELECT session FROM task WHERE id = ?1")?.query_row([found.slot], |row| row.get(0))?;
    let run = EndingAttempt {
        slot: found.slot,
        lane: found.lane,
        number: task.runs + u32::from(lazily),
        token: task.token,
        session,
        started_at,
    };
    let end =
        AttemptEnd { finished_at: tx.now, ending: outcome.ending(), failure: outcome.failure().cloned() };
    let mut insert = tx.prepare(RECORD)?;
    record(tx, &mut insert, &run, ran, &end)?;
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

/// An attempt whose begin and end are one write.
const RECORD: &str =
    "INSERT INTO attempt(task, number, token, session, worker, started_at, finished_at, ending, failure)
     VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

fn record(
    tx: &mut Tx<'_>,
    insert: &mut CachedStatement<'_>,
    run: &EndingAttempt,
    ran: Option<Ran>,
    end: &AttemptEnd,
) -> Sql<()> {
    let failure = end.failure.as_ref().map(|failure| failure_text(failure, end.finished_at, end.finished_at));
    let finished_at = end.finished_at.millis();
    let took: Duration = match (run.started_at, ran) {
        (Some(started_at), _) => {
            tx.prepare("UPDATE attempt SET finished_at = ?3, ending = ?4, failure = ?5 WHERE task = ?1 AND number = ?2")?
                .execute(params![run.slot, run.number, finished_at, end.ending.name(), failure])?;
            end.finished_at.since(started_at)
        }
        (None, Some(ran)) => {
            let session = tx.session_name(run.session)?;
            let started_at = end.finished_at.before(ran.took);
            insert.execute(params![
                run.slot,
                run.number,
                run.token,
                Uid::of(session.0),
                Uid::of(ran.worker.0),
                started_at.millis(),
                finished_at,
                end.ending.name(),
                failure,
            ])?;
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
