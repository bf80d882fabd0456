//! Events of tasks and attempts, target `ostler::task`, and the span of an attempt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_core::{
    Ending, ErrorClass, Facts, LeasePhase, Next, Outcome, Policy, TaskId, Timestamp, WorkerId, decide,
    show_duration,
};
use ostler_store::calls::{Claimed, Enqueued, Finished, NewTask};
use ostler_store::{Error, Store};
use tracing::{Level, Span, event, info_span};

use super::counters::{AttemptOutcome, LaneCounters, count};
use super::{TASK, Telemetry, is_enabled};

/// What identifies an attempt in every event about it.
pub(crate) struct AttemptTag {
    attempt: u32,
    worker: WorkerId,
    queue: Arc<str>,
    kind: Arc<str>,
    /// As claimed, for the backoff of a retry: the store decides with the same rule.
    facts: Facts,
    policy: Policy,
    created_at: Timestamp,
    lane: Arc<LaneCounters>,
}

/// An attempt whose report is under way.
pub(crate) struct EndedAttempt {
    tag: AttemptTag,
    ending: Ending,
    took: Duration,
    failure: Option<FailureNote>,
}

/// A failure, as far as an event shows it.
struct FailureNote {
    class: ErrorClass,
    /// Empty if no subscriber wants failures.
    message: String,
    /// How long the task waits if it is queued again.
    wait: Duration,
}

/// Tasks that are about to be stored.
pub(crate) struct NewSubmission {
    telemetry: Telemetry,
    tasks: Vec<(TaskId, Arc<LaneCounters>)>,
}

/// Emits an event with the fields of an attempt.
macro_rules! attempt_event {
    ($telemetry:expr, $level:expr, $name:literal, $tag:expr, { $($fields:tt)* }, $($sentence:tt)+) => {{
        let (telemetry, tag): (&Telemetry, &AttemptTag) = ($telemetry, $tag);
        telemetry.emit($level, || {
            event!(
                name: $name,
                target: TASK,
                $level,
                {
                    task = %tag.facts.id,
                    attempt = tag.attempt,
                    queue = &*tag.queue,
                    kind = &*tag.kind,
                    worker = %tag.worker,
                    node = &*telemetry.node,
                    $($fields)*
                },
                $($sentence)+
            );
        });
    }};
}

impl Telemetry {
    /// Describes an attempt that is about to start.
    pub(crate) fn attempt(&self, claimed: &Claimed, worker: WorkerId) -> AttemptTag {
        let facts = Facts {
            id: claimed.lease.task(),
            phase: LeasePhase::Running,
            failures: claimed.failures,
            // It only decides whether the task is put in quarantine, and the store says so.
            crashes: 0,
            node_deaths: claimed.node_deaths,
            cancel_requested: false,
            not_after: claimed.not_after,
            deadline: claimed.deadline,
        };
        AttemptTag {
            attempt: claimed.attempt,
            worker,
            queue: Arc::clone(&claimed.queue),
            kind: Arc::clone(&claimed.kind),
            facts,
            policy: claimed.policy,
            created_at: claimed.created_at,
            lane: self.counters.lane(&claimed.queue, &claimed.kind),
        }
    }

    /// The span around the work of an attempt: what a handler reports with `tracing` is in it.
    pub(crate) fn attempt_span(&self, tag: &AttemptTag) -> Span {
        self.span(Level::INFO, || {
            info_span!(
                target: TASK,
                "attempt",
                task = %tag.facts.id,
                attempt = tag.attempt,
                queue = &*tag.queue,
                kind = &*tag.kind,
                worker = %tag.worker,
                node = &*self.node,
            )
        })
    }

    /// An attempt starts at this time.
    pub(crate) fn attempt_started(&self, tag: &AttemptTag, now: Timestamp) {
        count(&tag.lane.started);
        if tag.attempt == 1 {
            tag.lane.waited.record(now.since(tag.created_at));
        }
        attempt_event!(self, Level::DEBUG, "task.started", tag, {}, "task started");
    }

    /// The store has answered the report of an attempt.
    pub(crate) fn attempt_ended(&self, ended: &EndedAttempt, finished: Finished) {
        let EndedAttempt { tag, ending, took, failure } = ended;
        let outcome = AttemptOutcome::of(*ending, finished);
        tag.lane.count_end(outcome);
        tag.lane.took.record(*took);
        let duration_ms = millis(*took);
        match (outcome, failure) {
            (AttemptOutcome::Completed, _) => self.completed(tag, duration_ms),
            (AttemptOutcome::Lost, _) => self.lost(tag, duration_ms),
            (AttemptOutcome::Cancelled, _) => {
                attempt_event!(self, Level::DEBUG, "task.cancelled", tag, { duration_ms }, "task cancelled");
            }
            (AttemptOutcome::Failed | AttemptOutcome::Retried | AttemptOutcome::Postponed, Some(failure)) => {
                self.failed(tag, outcome, failure, duration_ms);
            }
            // Also a death of the node in its last permitted attempt, which no node reports itself.
            (
                AttemptOutcome::Returned
                | AttemptOutcome::Failed
                | AttemptOutcome::Retried
                | AttemptOutcome::Postponed,
                _,
            ) => {
                attempt_event!(
                    self, Level::DEBUG, "task.returned", tag, { duration_ms, outcome = ending.name() },
                    "task returned to its queue"
                );
            }
        }
    }

    fn completed(&self, tag: &AttemptTag, duration_ms: u64) {
        match tag.facts.failures {
            0 => attempt_event!(
                self, Level::DEBUG, "task.completed", tag, { duration_ms, retries = 0_u32 }, "task completed"
            ),
            1 => attempt_event!(
                self, Level::DEBUG, "task.completed", tag, { duration_ms, retries = 1_u32 },
                "task completed after 1 retry"
            ),
            retries => attempt_event!(
                self, Level::DEBUG, "task.completed", tag, { duration_ms, retries },
                "task completed after {retries} retries"
            ),
        }
    }

    fn failed(&self, tag: &AttemptTag, outcome: AttemptOutcome, failure: &FailureNote, duration_ms: u64) {
        self.breakers.look();
        let FailureNote { class, message, wait } = failure;
        let (class, error, backoff_ms) = (class.name(), message.as_str(), millis(*wait));
        match outcome {
            AttemptOutcome::Failed => attempt_event!(
                self, Level::WARN, "task.failed", tag, { duration_ms, class, error },
                "task failed and is a dead letter now"
            ),
            AttemptOutcome::Retried => attempt_event!(
                self, Level::WARN, "task.retried", tag, { duration_ms, class, backoff_ms, error },
                "task failed; it is retried in {}", show_duration(*wait)
            ),
            AttemptOutcome::Completed
            | AttemptOutcome::Postponed
            | AttemptOutcome::Cancelled
            | AttemptOutcome::Returned
            | AttemptOutcome::Lost => attempt_event!(
                self, Level::WARN, "task.postponed", tag, { duration_ms, class, backoff_ms, error },
                "task cannot run now; it waits, and no attempt is counted"
            ),
        }
    }

    /// An attempt ended without its lease: another node runs the task, or will.
    pub(crate) fn attempt_lost(&self, tag: &AttemptTag, took: Duration) {
        tag.lane.count_end(AttemptOutcome::Lost);
        tag.lane.took.record(took);
        self.lost(tag, millis(took));
    }

    fn lost(&self, tag: &AttemptTag, duration_ms: u64) {
        attempt_event!(
            self,
            Level::WARN,
            "task.lost",
            tag,
            { duration_ms },
            "the lease of a task was lost; this attempt does not count"
        );
    }

    /// Stores tasks, and reports those that are new.
    ///
    /// # Errors
    /// When the store returns an error.
    pub async fn enqueue(&self, store: &dyn Store, tasks: Vec<NewTask>) -> Result<Vec<Enqueued>, Error> {
        let submission = self.submitting(&tasks);
        let answers = store.enqueue(tasks).await?;
        submission.stored(&answers);
        Ok(answers)
    }

    /// Describes tasks that are about to be stored.
    pub(crate) fn submitting(&self, tasks: &[NewTask]) -> NewSubmission {
        let of = |task: &NewTask| (task.id, self.counters.lane(&task.queue, &task.kind));
        NewSubmission { telemetry: self.clone(), tasks: tasks.iter().map(of).collect() }
    }
}

impl NewSubmission {
    /// The store has answered. Only new tasks are reported.
    pub(crate) fn stored(&self, answers: &[Enqueued]) {
        for ((task, lane), answer) in self.tasks.iter().zip(answers) {
            if !matches!(answer, Enqueued::Created(_)) {
                continue;
            }
            lane.submitted.fetch_add(1, Ordering::Relaxed);
            self.telemetry.emit(Level::DEBUG, || {
                event!(
                    name: "task.submitted",
                    target: TASK,
                    Level::DEBUG,
                    { task = %task, queue = &*lane.queue, kind = &*lane.kind, node = &*self.telemetry.node },
                    "task submitted"
                );
            });
        }
    }
}

impl AttemptTag {
    /// The attempt has ended at this time, and is about to be reported with this outcome.
    pub(crate) fn ended(self, outcome: &Outcome, took: Duration, now: Timestamp) -> EndedAttempt {
        let note = |failure: &ostler_core::Failure| FailureNote {
            class: failure.class,
            message: if is_enabled(Level::WARN) { failure.message.clone() } else { String::new() },
            wait: match decide(&self.facts, outcome, &self.policy, now).next {
                Next::Queue { run_at, .. } => run_at.since(now),
                Next::Complete | Next::Fail(_) | Next::Cancel(_) => Duration::ZERO,
            },
        };
        let failure = outcome.failure().map(note);
        EndedAttempt { ending: outcome.ending(), took, failure, tag: self }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
