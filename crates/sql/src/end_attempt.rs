//! The end of an attempt: what `decide` says is written, recorded, and fed back to gates, the outbox and dependent tasks.

use std::time::Duration;

use ostler_core::{
    AccountEnd, AccountReading, AttemptEnd, Ending, LeasePhase, Next, Outcome, Probe, Settlement, State,
    StateName, Timestamp, Transition, decide, requeue_event,
};
use ostler_store::bounded;
use ostler_store::calls::{Ran, Report};
use ostler_store::views::QueueSettings;

use crate::chunks::{put_output, split_output};
use crate::codec::failure_text;
use crate::events::append_one;
use crate::outbox::{OutboxInput, note};
use crate::phase::{Mishaps, Phase};
use crate::task::{FoundTask, set_state};
use crate::tx::{Tx, key_rules};
use crate::{budgets, dependents, gates, limit_keys, params};

/// What an attempt reports besides its outcome.
#[derive(Clone, Copy, Default)]
pub struct Yields<'a> {
    /// The output after a success: JSON text.
    pub output: Option<&'a str>,
    pub reading: Option<&'a AccountReading>,
}

impl<'a> Yields<'a> {
    #[must_use]
    pub fn of(report: &'a Report) -> Self {
        Self { output: report.output.as_deref(), reading: report.reading.as_ref() }
    }
}

/// Ends the attempt of a leased task, as `decide` says. Its row is locked.
///
/// # Errors
/// When a statement fails.
pub async fn end_attempt<T: Tx>(
    tx: &mut T,
    found: &FoundTask,
    outcome: &Outcome,
    ran: Option<Ran>,
    yields: Yields<'_>,
) -> Result<StateName, T::Error> {
    let task = &found.task;
    let Some(facts) = task.facts() else { return Ok(task.state.name()) };
    let outcome = &bounded(outcome);
    let settings = tx.queue_or_new(&task.queue).await?.settings.clone();
    let subscribers = settings.subscribers.clone();
    let now = tx.now();
    let policy = task.overrides.resolve(&settings.of_kind(&task.kind));
    let decided = decide(&facts, outcome, &policy, now);
    let transition = if settings.account.is_some() { decided.of_account(now) } else { decided };
    let attempt = record_end(tx, found, outcome, ran).await?;
    if settings.is_charged() {
        budgets::settle(tx, found.slot, task.token, Settlement::from(outcome.ending())).await?;
    }
    tx.tally(found.lane).retried += u64::from(transition.retries(&facts));
    write(tx, found, outcome, &transition, yields.output).await?;
    let state = match transition.next {
        Next::Queue { run_at, why } => {
            let rules = key_rules(tx, &task.queue).await?;
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
    if let (State::Queued { .. }, Next::Queue { run_at, .. }) = (state, decided.next)
        && let Some(event) = requeue_event(outcome, run_at).filter(|_| begun)
    {
        append_one(tx, found.slot, &event).await?;
    }
    let unused = (matches!(outcome, Outcome::HandedBack) && !begun).then_some(task.cost);
    let attempted = Probe { task: task.id, token: task.token };
    let (queue, limit) = (task.queue.as_str(), found.limit);
    let end = AccountEnd {
        effect: transition.effect,
        began: task.state.started_at().or(ran.map(|ran| now.before(ran.took))),
        why: outcome.failure().map(|failure| failure.message.as_str()),
        reading: yields.reading,
    };
    let rules =
        gates::ended(tx, &gates::GateFeedback { queue, limit, attempt: attempted, end, unused }).await?;
    limit_keys::settle(tx, found.limit, &rules).await?;
    let end =
        OutboxInput { lane: found.lane, slot: found.slot, attempt, state: &state, outcome: Some(outcome) };
    note(tx, &subscribers, &end).await?;
    if found.awaited && state.name().is_terminal() {
        dependents::ended(tx, found.slot).await?;
    }
    Ok(state.name())
}

/// Writes what the end of an attempt changes in the task's row, except its state.
async fn write<T: Tx>(
    tx: &T,
    found: &FoundTask,
    outcome: &Outcome,
    transition: &Transition,
    output: Option<&str>,
) -> Result<(), T::Error> {
    let task = &found.task;
    let output = output.filter(|_| matches!(outcome, Outcome::Success));
    let (output, long) = split_output(output);
    if let Some(long) = long {
        put_output(tx, found.slot, long).await?;
    }
    let failure = outcome
        .failure()
        .map(|failure| failure_text(failure, task.first_failure_at.unwrap_or(tx.now()), tx.now()));
    let trouble = Mishaps {
        crashes: transition.crashes,
        node_deaths: transition.node_deaths,
        suspect: task.suspect || transition.becomes_suspect,
        awaited: found.awaited,
    };
    tx.exec(
            "UPDATE ostler.task SET failures = $2, trouble = $3, failure = coalesce($4, failure), output = coalesce($5, output)
             WHERE id = $1",
            params![found.slot, transition.failures, trouble.code(), failure, output],
        )
        .await?;
    Ok(())
}

/// Records how the attempt ended. Returns the number of attempts started.
async fn record_end<T: Tx>(
    tx: &mut T,
    found: &FoundTask,
    outcome: &Outcome,
    ran: Option<Ran>,
) -> Result<u32, T::Error> {
    let task = &found.task;
    let started_at = task.state.started_at();
    let lazily = started_at.is_none() && ran.is_some();
    if lazily {
        tx.exec("UPDATE ostler.task SET runs = runs + 1 WHERE id = $1", params![found.slot]).await?;
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
        AttemptEnd { finished_at: tx.now(), ending: outcome.ending(), failure: outcome.failure().cloned() };
    record(tx, &run, ran, &end).await?;
    Ok(run.number)
}

/// An attempt that ends.
pub struct EndingAttempt {
    pub slot: i64,
    pub lane: i64,
    pub number: u32,
    pub token: u64,
    pub session: i64,
    /// When it started, if that was written.
    pub started_at: Option<Timestamp>,
}

/// Records the end of an attempt that ran.
///
/// # Errors
/// When a statement fails.
pub async fn record<T: Tx>(
    tx: &mut T,
    run: &EndingAttempt,
    ran: Option<Ran>,
    end: &AttemptEnd,
) -> Result<(), T::Error> {
    let failure = end.failure.as_ref().map(|failure| failure_text(failure, end.finished_at, end.finished_at));
    let finished_at = end.finished_at.millis();
    let took: Duration = match (run.started_at, ran) {
        (Some(started_at), _) => {
            tx.exec(
                    "UPDATE ostler.attempt SET finished_at = $3, ending = $4, failure = $5 WHERE task = $1 AND number = $2",
                    params![run.slot, run.number, finished_at, end.ending.name(), failure],
                )
                .await?;
            end.finished_at.since(started_at)
        }
        (None, Some(ran)) => {
            let session = tx.session_name(run.session).await?;
            let started_at = end.finished_at.before(ran.took);
            tx.exec(
                    "INSERT INTO ostler.attempt(task, number, token, session, worker, started_at, finished_at, ending, failure)
                     VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                    params![
                        run.slot,
                        run.number,
                        run.token,
                        session,
                        ran.worker,
                        started_at.millis(),
                        finished_at,
                        end.ending.name(),
                        failure,
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
