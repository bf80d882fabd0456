//! One attempt, from its start to its report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Ending, ErrorClass, Outcome, TaskId, Timestamp, WorkerId};
use ostler_exec::{
    AttemptResult, Breakers, Control, EventReceiver, Steps, TaskCalls, Work, WorkerFate, event_channel,
};
use ostler_store::calls::{Claimed, Fenced, Ran, Report, Start};
use ostler_store::{Bounds, Clock, LeaseRef, Store};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::account_writer::account_feed;
use crate::config::{MemoryGauge, PoolConfig, StartMode};
use crate::event_writer::write_events;
use crate::finisher::Finisher;
use crate::handler_options::HandlerOptions;
use crate::handler_runtime::HandlerRuntimes;
use crate::leases::{HeldLeases, RunningAttempt, StopReason};
use crate::steps::AttemptSteps;
use crate::task_desk::AttemptTasks;
use crate::telemetry::{EndedAttempt, Telemetry};
use crate::workers::ClaimedTask;

/// A task that has seen this many node deaths runs alone among such tasks. A single death may have had any cause, and
/// long-running work should not have to queue for it.
pub(crate) const ALONE_AFTER_DEATHS: u32 = 2;

/// The pool context: shared by all attempts of a pool.
pub(crate) struct PoolContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) pool: PoolConfig,
    pub(crate) held: HeldLeases,
    pub(crate) finisher: Finisher,
    pub(crate) memory: MemoryGauge,
    /// Runs tasks that several nodes have died of, or beside, one at a time: a task that takes its node down must not take
    /// the others down repeatedly.
    pub(crate) suspects: Arc<Mutex<()>>,
    pub(crate) stages: HandlerRuntimes,
    pub(crate) options: HandlerOptions,
    pub(crate) breakers: Breakers,
    pub(crate) telemetry: Telemetry,
}

/// How an attempt ended, as reported to its worker.
pub(crate) struct AttemptEnding {
    pub(crate) task: TaskId,
    pub(crate) ending: Ending,
    pub(crate) slot: WorkerFate,
    /// How long it ran; `None` if it did not.
    pub(crate) took: Option<Duration>,
    pub(crate) suspect: bool,
    /// The resource that the node lacked, if that kept the work from starting.
    pub(crate) shortage: Option<String>,
}

/// How late an executor may answer before its attempt is given up.
const SLACK: Duration = Duration::from_millis(500);
/// How long the worker of a failed attempt waits until its report is written: a store that is away must not hold up a drain.
const MAX_REPORT_WAIT: Duration = Duration::from_secs(2);

/// Runs one attempt. `None`: it was given up in the meantime and has already been reported.
pub(crate) async fn run(
    context: &PoolContext,
    waiting: ClaimedTask,
    worker: WorkerId,
) -> Option<AttemptEnding> {
    let ClaimedTask { claimed, signals, .. } = waiting;
    let (lease, suspect) = (claimed.lease.as_ref(), claimed.suspect);
    let alone = if claimed.node_deaths >= ALONE_AFTER_DEATHS {
        wait_alone(&context.suspects, &signals.cancel).await
    } else {
        None
    };
    let durable = suspect || context.pool.beginning == StartMode::Durable;
    let not_begun = AttemptEnding {
        task: lease.task,
        ending: Ending::HandedBack,
        slot: WorkerFate::Reusable,
        took: None,
        suspect,
        shortage: None,
    };
    if signals.cancel.is_cancelled() || (durable && !begin(context, lease, worker).await) {
        give_back(context, claimed).await;
        return Some(not_begun);
    }
    let began = Instant::now();
    let (timeout, grace) = (claimed.policy.timeout, context.pool.grace);
    let due = began.checked_add(timeout + grace * 2 + SLACK);
    let tag = context.telemetry.attempt(&claimed, worker);
    context.telemetry.attempt_started(&tag, context.clock.now());
    let span = context.telemetry.attempt_span(&tag);
    let refused = context.held.entrust(RunningAttempt {
        lease: claimed.lease,
        worker,
        began,
        due,
        timeout,
        durable,
        suspect,
        _alone: alone,
        tag,
    });
    if let Some(refused) = refused {
        // The runtime was blocked for so long that the task was left to others.
        context.telemetry.attempt_lost(&refused.tag, Duration::ZERO);
        return Some(not_begun);
    }
    let (sender, events) = event_channel();
    let lost = signals.lost.clone();
    let desk = AttemptTasks::new(Arc::clone(&context.store), lease, Arc::clone(&claimed.queue));
    let work = Work {
        task: lease.task,
        token: lease.token,
        worker,
        attempt: claimed.attempt,
        queue: claimed.queue,
        kind: claimed.kind,
        payload: claimed.payload,
        timeout,
        grace,
        folder: claimed.folder,
        traceparent: claimed.traceparent,
    };
    let step_store = AttemptSteps::new(Arc::clone(&context.store), lease);
    let steps = Steps::kept(Arc::new(step_store));
    let tasks = TaskCalls::to(Arc::new(desk));
    let (cancel, breakers) = (signals.cancel, context.breakers.clone());
    let account = account_feed(&context.store, &context.pool.settings);
    let (lost_signal, told) = (signals.lost, account.clone());
    let charging = claimed.charging;
    let control = Control {
        cancel,
        lost: lost_signal,
        steps,
        tasks,
        breakers,
        account,
        charging,
        span,
        ..Control::new(sender)
    };
    let AttemptResult { outcome, output, slot, classing, shortage, reading } =
        recording(context, lease, &events, &lost, context.pool.executor.run(work, control)).await;
    // An attempt that did not start says nothing about run times.
    let took = shortage.is_none().then(|| began.elapsed());
    let outcome = context.pool.unclassed.judge(outcome, classing);
    let (entrusted, stop) = context.held.reclaim(lease)?;
    let outcome = match (stop, outcome) {
        // Finished work counts; if the lease is lost, the store rejects the report.
        (_, Outcome::Success) => Outcome::Success,
        // Another node reports the task now, or soon will.
        (Some(StopReason::Lost), _) => {
            context.telemetry.attempt_lost(&entrusted.tag, entrusted.began.elapsed());
            let task = lease.task;
            return Some(AttemptEnding { task, ending: Ending::NodeDied, slot, took, suspect, shortage });
        }
        (Some(StopReason::HandBack), Outcome::Cancelled) => Outcome::HandedBack,
        (Some(StopReason::HandBack | StopReason::Cancelled) | None, outcome) => outcome,
    };
    let (outcome, output) = keepable(outcome, output);
    let ending = outcome.ending();
    let (report, ended) = entrusted.report(outcome, output, context.clock.now());
    // A handler has none of its own: what the agents say that it asks is that of their account, which the pool uses.
    let report = Report { reading: reading.or_else(|| told.reading()), ..report };
    context.finisher.report(report, ended).await;
    if matches!(ending, Ending::Failed(_)) && slot != WorkerFate::Unresponsive {
        // A failure may close a gate: the worker takes nothing more that the gate would have kept back. A success closes none, and
        // its worker goes on at once. One that is unresponsive takes nothing more, and its runtime may soon be blocked.
        let _ = tokio::time::timeout(MAX_REPORT_WAIT, context.finisher.written_so_far()).await;
    }
    Some(AttemptEnding { task: lease.task, ending, slot, took, suspect, shortage })
}

/// Turns a success whose output no store accepts into a failure that says so: a rejected report would leave the task
/// without an outcome.
fn keepable(outcome: Outcome, output: Option<String>) -> (Outcome, Option<String>) {
    let refused = match (&outcome, &output) {
        (Outcome::Success, Some(output)) => Bounds::default().check_output(output).err(),
        (Outcome::Success, None)
        | (Outcome::Failed(_) | Outcome::NodeDied | Outcome::HandedBack | Outcome::Cancelled, _) => None,
    };
    match refused {
        None => (outcome, output),
        Some(error) => (AttemptResult::failed_with(ErrorClass::Permanent, error.to_string()).outcome, None),
    }
}

impl RunningAttempt {
    /// The report of the attempt, and what telemetry says when the store has answered it.
    fn report(self, outcome: Outcome, output: Option<String>, now: Timestamp) -> (Report, EndedAttempt) {
        let took = self.began.elapsed();
        let ended = self.tag.ended(&outcome, took, now);
        let ran = (!self.durable).then_some(Ran { worker: self.worker, took });
        (Report { lease: self.lease, ran, outcome, output, reading: None }, ended)
    }
}

/// Gives up overdue attempts, whose runtime is blocked.
pub(crate) async fn give_up(
    context: &PoolContext,
    overdue: Vec<(RunningAttempt, Option<StopReason>)>,
) -> Vec<(WorkerId, AttemptEnding)> {
    let mut given_up = Vec::new();
    for (entrusted, stop) in overdue {
        let RunningAttempt { worker, timeout, suspect, .. } = entrusted;
        let (outcome, took) = (AttemptResult::too_long(timeout).outcome, Some(entrusted.began.elapsed()));
        let (task, ending) = (entrusted.lease.task(), outcome.ending());
        given_up.push((
            worker,
            AttemptEnding { task, ending, slot: WorkerFate::Unresponsive, took, suspect, shortage: None },
        ));
        if stop != Some(StopReason::Lost) {
            let (report, ended) = entrusted.report(outcome, None, context.clock.now());
            context.finisher.report(report, ended).await;
        }
    }
    given_up
}

/// Hands back a claimed task that has not started. If a cancel was requested, the store cancels it.
pub(crate) async fn give_back(context: &PoolContext, claimed: Claimed) {
    if context.held.let_go(claimed.lease.as_ref()) != Some(StopReason::Lost) {
        context.finisher.hand_back(claimed.lease).await;
    }
}

/// Waits until no other task runs that several nodes have died of, unless the task is asked to stop before.
async fn wait_alone(suspects: &Arc<Mutex<()>>, cancel: &CancellationToken) -> Option<OwnedMutexGuard<()>> {
    cancel.run_until_cancelled(Arc::clone(suspects).lock_owned()).await
}

/// Writes the start. Returns false if the lease is lost or the store cannot be written; the work must not begin.
async fn begin(context: &PoolContext, lease: LeaseRef, worker: WorkerId) -> bool {
    let answer = context.store.start(vec![Start { lease, worker }]).await;
    matches!(answer.as_deref(), Ok([Fenced::Recorded]))
}

/// Runs the work while storing its events.
async fn recording(
    context: &PoolContext,
    lease: LeaseRef,
    events: &EventReceiver,
    lost: &CancellationToken,
    running: impl Future<Output = AttemptResult>,
) -> AttemptResult {
    let (store, prices) = (context.store.as_ref(), &context.pool.prices);
    let mut writing = std::pin::pin!(write_events(store, lease, events, lost, prices));
    let mut over = false;
    let mut running = std::pin::pin!(running);
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut running => break ended,
            () = &mut writing, if !over => over = true,
        }
    };
    // Events are written before the outcome: after it, the lease is no longer valid. Code left running by the work may keep
    // its sender; it is not waited for.
    events.close();
    if !over {
        writing.await;
    }
    ended
}
