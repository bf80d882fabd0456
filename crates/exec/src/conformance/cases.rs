//! The conformance cases.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ostler_core::{ErrorClass, Id, Outcome, WorkerId};
use tokio_util::sync::CancellationToken;

use super::{Behaviour, Fixture, GRACE, LONG, SHORT};
use crate::contract::{AttemptResult, ClassSource, Control, Executor, Work, WorkerFate, WorkerOpening};
use crate::events::{EventReceiver, QueuedEvent, event_channel};

/// Whether a case could be run.
pub(super) enum Tried {
    Held,
    LeftOut,
}

type Case = fn(Arc<dyn Fixture>) -> Pin<Box<dyn Future<Output = Tried> + Send>>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const ALL: &[(&str, Case)] = &[$((stringify!($name), |fixture| Box::pin($name(fixture)))),*];
    };
}

cases![
    work_that_succeeds_gives_its_output,
    each_class_of_error_arrives_as_it_was_given,
    an_unclassed_failure_is_transient_and_says_that_this_is_assumed,
    a_kind_without_a_handler_is_a_permanent_failure,
    a_panic_is_a_failure_and_the_next_attempt_runs,
    what_hangs_ends_at_its_deadline,
    what_blocks_its_thread_is_given_up_and_the_next_attempt_runs,
    what_is_told_to_stop_stops,
    what_is_told_to_stop_and_finishes_in_time_has_succeeded,
    what_does_not_listen_is_ended_after_the_grace,
    what_has_lost_its_lease_is_ended_at_once,
    what_stops_and_loses_its_lease_meanwhile_is_ended_at_once,
    a_cancel_before_the_start_ends_it_at_once,
    a_big_output_arrives_whole,
    a_flood_of_notes_is_bounded_and_the_gap_is_marked,
    many_at_once_get_their_own_answers,
];

/// A generous margin for "in time" on a loaded machine, on top of what the case itself waits for.
const SLACK: Duration = Duration::from_secs(20);

struct Run {
    cancel: CancellationToken,
    lost: CancellationToken,
    notes: EventReceiver,
    ended: tokio::task::JoinHandle<AttemptResult>,
}

/// Each attempt has its own worker, opened before it and closed after it.
static NEXT_WORKER: AtomicU64 = AtomicU64::new(1);

/// Starts an attempt. Its worker is opened first: the time that takes is not part of the attempt.
async fn start(fixture: &Arc<dyn Fixture>, work: Work) -> Run {
    let (said, heard) = event_channel();
    let control = Control::new(said);
    let (cancel, lost) = (control.cancel.clone(), control.lost.clone());
    let notes = stored(heard);
    let (executor, work) = opened(fixture, work).await;
    let ended = tokio::spawn(async move {
        let worker = work.worker;
        let ended = executor.run(work, control).await;
        executor.close(worker).await;
        ended
    });
    Run { cancel, lost, notes, ended }
}

/// Stores what an attempt says, as a node does, and passes it on.
fn stored(heard: EventReceiver) -> EventReceiver {
    let (shown, notes) = event_channel();
    tokio::spawn(async move {
        let mut next = Vec::with_capacity(1);
        while heard.recv_many(&mut next, 1).await > 0 {
            for QueuedEvent { body, receipt } in next.drain(..) {
                let _ = shown.send(body).await;
                receipt.stored();
            }
        }
    });
    notes
}

async fn opened(fixture: &Arc<dyn Fixture>, work: Work) -> (Arc<dyn Executor>, Work) {
    let worker = WorkerId(Id::from_bits(NEXT_WORKER.fetch_add(1, Ordering::Relaxed).into()));
    let executor = fixture.executor();
    assert_eq!(executor.open(worker).await, WorkerOpening::Ready, "a worker comes up");
    (executor, Work { worker, ..work })
}

async fn end(run: Run) -> AttemptResult {
    let answer = tokio::time::timeout(LONG / 2 + SLACK, run.ended).await;
    answer.expect("an answer comes in time").expect("an executor never panics")
}

async fn once(fixture: &Arc<dyn Fixture>, behaviour: &Behaviour, timeout: Duration) -> Option<AttemptResult> {
    let work = Work { timeout, grace: GRACE, ..fixture.work(behaviour)? };
    Some(end(start(fixture, work).await).await)
}

macro_rules! need {
    ($value:expr) => {
        match $value {
            Some(value) => value,
            None => return Tried::LeftOut,
        }
    };
}

/// Whether nothing of the work is left: its slot is free, or its worker ended with it.
fn is_over(slot: WorkerFate) -> bool {
    match slot {
        WorkerFate::Reusable | WorkerFate::Spent | WorkerFate::Dead => true,
        WorkerFate::Unresponsive => false,
    }
}

async fn still_works(fixture: &Arc<dyn Fixture>) {
    let ended =
        once(fixture, &Behaviour::Echo("\"on\"".into()), LONG).await.expect("every executor can echo");
    assert_eq!(ended, AttemptResult::success(Some("\"on\"".into())), "the next attempt runs");
}

async fn work_that_succeeds_gives_its_output(f: Arc<dyn Fixture>) -> Tried {
    let ended = need!(once(&f, &Behaviour::Echo("{\"a\":1}".into()), LONG).await);
    assert_eq!(ended, AttemptResult::success(Some("{\"a\":1}".into())));
    Tried::Held
}

async fn each_class_of_error_arrives_as_it_was_given(f: Arc<dyn Fixture>) -> Tried {
    for class in [
        ErrorClass::Transient,
        ErrorClass::Permanent,
        ErrorClass::Partial,
        ErrorClass::RateLimited,
        ErrorClass::QueueStop,
    ] {
        let ended = need!(once(&f, &Behaviour::Fail(class), LONG).await);
        let Outcome::Failed(failure) = ended.outcome else {
            panic!("{class:?} ended as {:?}", ended.outcome)
        };
        assert_eq!((failure.class, ended.classing), (class, ClassSource::Given));
        assert!(!failure.message.is_empty(), "a failure says why");
        if class == ErrorClass::Partial {
            assert!(failure.step.is_some() && failure.hint.is_some(), "{failure:?}");
        }
        if class == ErrorClass::RateLimited {
            assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
        }
    }
    Tried::Held
}

async fn an_unclassed_failure_is_transient_and_says_that_this_is_assumed(f: Arc<dyn Fixture>) -> Tried {
    let ended = need!(once(&f, &Behaviour::FailUnclassed, LONG).await);
    let class = ended.outcome.failure().map(|failure| failure.class);
    assert_eq!((class, ended.classing), (Some(ErrorClass::Transient), ClassSource::Assumed));
    Tried::Held
}

async fn a_kind_without_a_handler_is_a_permanent_failure(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::Echo(String::new())));
    if f.executor().served() == crate::contract::Served::Any {
        return Tried::LeftOut;
    }
    let ended = end(start(&f, Work { kind: "unserved".into(), ..work }).await).await;
    let Outcome::Failed(failure) = ended.outcome else { panic!("it ended as {:?}", ended.outcome) };
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert!(failure.message.contains("unserved"), "{}", failure.message);
    Tried::Held
}

async fn a_panic_is_a_failure_and_the_next_attempt_runs(f: Arc<dyn Fixture>) -> Tried {
    let ended = need!(once(&f, &Behaviour::Panic, LONG).await);
    let Outcome::Failed(failure) = ended.outcome else { panic!("it ended as {:?}", ended.outcome) };
    assert!(
        failure.message.contains("as requested"),
        "the message of the panic is kept: {}",
        failure.message
    );
    still_works(&f).await;
    Tried::Held
}

async fn what_hangs_ends_at_its_deadline(f: Arc<dyn Fixture>) -> Tried {
    let began = Instant::now();
    let ended = need!(once(&f, &Behaviour::Hang, SHORT).await);
    let Outcome::Failed(failure) = ended.outcome else { panic!("it ended as {:?}", ended.outcome) };
    assert_eq!(failure.class, ErrorClass::Timeout);
    assert!(is_over(ended.slot), "{:?}", ended.slot);
    assert!(began.elapsed() >= SHORT, "not before its time: {:?}", began.elapsed());
    still_works(&f).await;
    Tried::Held
}

async fn what_blocks_its_thread_is_given_up_and_the_next_attempt_runs(f: Arc<dyn Fixture>) -> Tried {
    let ended = need!(once(&f, &Behaviour::Block(SHORT + GRACE * 2), SHORT).await);
    let Outcome::Failed(failure) = ended.outcome else { panic!("it ended as {:?}", ended.outcome) };
    assert_eq!((failure.class, ended.slot), (ErrorClass::Timeout, WorkerFate::Unresponsive));
    still_works(&f).await;
    let worker = need!(f.work(&Behaviour::Panic)).worker;
    let closed = tokio::time::timeout(SLACK, f.executor().close(worker)).await;
    assert!(closed.is_ok(), "a worker that was deaf is closed once its work has ended");
    Tried::Held
}

async fn what_is_told_to_stop_stops(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::StopWhenTold));
    let run = start(&f, Work { timeout: LONG, grace: LONG, ..work }).await;
    let _ = run.notes.recv().await;
    run.cancel.cancel();
    assert_eq!(end(run).await, AttemptResult::cancelled());
    still_works(&f).await;
    Tried::Held
}

async fn what_is_told_to_stop_and_finishes_in_time_has_succeeded(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::FinishWhenTold));
    let run = start(&f, Work { timeout: LONG, grace: LONG, ..work }).await;
    let _ = run.notes.recv().await;
    run.cancel.cancel();
    assert_eq!(end(run).await.outcome, Outcome::Success);
    Tried::Held
}

async fn what_does_not_listen_is_ended_after_the_grace(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::Hang));
    let run = start(&f, Work { timeout: LONG, grace: GRACE, ..work }).await;
    run.cancel.cancel();
    let ended = end(run).await;
    assert!(is_over(ended.slot), "{:?}", ended.slot);
    assert_eq!(ended.outcome, Outcome::Cancelled);
    still_works(&f).await;
    Tried::Held
}

async fn what_has_lost_its_lease_is_ended_at_once(f: Arc<dyn Fixture>) -> Tried {
    // It would stop by itself, or finish, on a stop signal; it gets none.
    for behaviour in [Behaviour::FinishAfter(LONG), Behaviour::Hang] {
        let work = need!(f.work(&behaviour));
        let run = start(&f, Work { timeout: LONG, grace: LONG, ..work }).await;
        let _ = run.notes.recv().await;
        let lost_at = Instant::now();
        run.lost.cancel();
        run.cancel.cancel();
        let ended = end(run).await;
        assert!(is_over(ended.slot), "{behaviour:?}: {:?}", ended.slot);
        assert_eq!(ended.outcome, Outcome::Cancelled, "{behaviour:?}");
        assert!(lost_at.elapsed() < SLACK, "no grace is given: {:?}", lost_at.elapsed());
    }
    still_works(&f).await;
    Tried::Held
}

async fn what_stops_and_loses_its_lease_meanwhile_is_ended_at_once(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::FinishAfter(LONG)));
    let run = start(&f, Work { timeout: LONG, grace: LONG, ..work }).await;
    let _ = run.notes.recv().await;
    run.cancel.cancel();
    // It has received the stop signal, and takes its time.
    let _ = run.notes.recv().await;
    let lost_at = Instant::now();
    run.lost.cancel();
    let ended = end(run).await;
    assert!(is_over(ended.slot), "{:?}", ended.slot);
    assert_eq!(ended.outcome, Outcome::Cancelled);
    assert!(lost_at.elapsed() < SLACK, "the rest of the grace is not given: {:?}", lost_at.elapsed());
    still_works(&f).await;
    Tried::Held
}

async fn a_cancel_before_the_start_ends_it_at_once(f: Arc<dyn Fixture>) -> Tried {
    let work = need!(f.work(&Behaviour::StopWhenTold));
    let (said, _notes) = event_channel();
    let control = Control::new(said);
    control.cancel.cancel();
    let (executor, work) = opened(&f, Work { timeout: LONG, grace: LONG, ..work }).await;
    let ended = executor.run(work, control).await;
    assert_eq!(ended.outcome, Outcome::Cancelled);
    Tried::Held
}

async fn a_big_output_arrives_whole(f: Arc<dyn Fixture>) -> Tried {
    const BYTES: usize = 8 << 20;
    let ended = need!(once(&f, &Behaviour::BigOutput(BYTES), LONG).await);
    assert_eq!(ended.output.map(|output| output.len()), Some(BYTES));
    Tried::Held
}

async fn a_flood_of_notes_is_bounded_and_the_gap_is_marked(f: Arc<dyn Fixture>) -> Tried {
    const LINES: usize = 100_000;
    let work = need!(f.work(&Behaviour::Flood(LINES)));
    let mut run = start(&f, Work { timeout: LONG, grace: GRACE, ..work }).await;
    let ended = (&mut run.ended).await.expect("an executor never panics");
    assert_eq!(ended.outcome, Outcome::Success, "no handler listened, and it went on");
    let mut kept = 0;
    while run.notes.try_recv().is_some() {
        kept += 1;
    }
    assert!(kept > 0 && kept < LINES, "{kept} of {LINES} lines were kept");
    Tried::Held
}

async fn many_at_once_get_their_own_answers(f: Arc<dyn Fixture>) -> Tried {
    const MANY: usize = 16;
    let mut runs = Vec::new();
    for number in 0..MANY {
        let work = need!(f.work(&Behaviour::Echo(number.to_string())));
        runs.push(start(&f, Work { timeout: LONG, grace: GRACE, ..work }).await);
    }
    for (number, run) in runs.into_iter().enumerate() {
        assert_eq!(end(run).await, AttemptResult::success(Some(number.to_string())));
    }
    Tried::Held
}
