//! Schedule overlaps: runs that meet the previous run, or a full queue.

use std::time::Duration;

use ostler_core::{CancelReason, Outcome, Overlap, State, StateName};

use super::super::scene::{Scene, heard};
use super::runner::cases;
use super::schedules::{fire, firing, put, run, shown};
use ostler_store::calls::{Prune, QueueChange};
use ostler_store::schedules::{Fired, ScheduleChange, Skipped};

cases![
    an_overlap_is_skipped,
    an_overlap_is_queued,
    an_overlap_that_waits_is_replaced,
    an_overlap_that_runs_is_asked_to_stop,
    a_run_that_is_over_or_gone_overlaps_nothing,
    what_waits_for_a_replaced_run_hears_of_it,
    a_full_queue_leaves_a_run_out,
    who_is_replaced_makes_room_in_a_full_queue,
    a_run_that_is_there_already_is_left_out,
];

async fn an_overlap_is_skipped(s: &Scene) {
    put(s, Overlap::Skip).await;
    let (first, _) = run(s).await;
    let skipped = Fired::Skipped(Skipped::Overlap(first));
    assert_eq!(run(s).await.1, skipped, "it waits");
    let node = s.join().await;
    s.run(node).await;
    assert_eq!(run(s).await.1, skipped, "it runs");
    let record = shown(s).await;
    assert_eq!((record.last_task, record.schedule.next_at), (Some(first), Some(s.now())));
    assert_eq!(s.counts().await.submitted(), 1);
}

async fn an_overlap_is_queued(s: &Scene) {
    put(s, Overlap::Queue).await;
    let (first, fired) = run(s).await;
    assert_eq!(fired, Fired::Enqueued(first));
    let (second, fired) = run(s).await;
    assert_eq!(fired, Fired::Enqueued(second));
    assert_eq!((s.counts().await.queued, shown(s).await.last_task), (2, Some(second)));
}

async fn an_overlap_that_waits_is_replaced(s: &Scene) {
    put(s, Overlap::Replace).await;
    let (before, fired) = run(s).await;
    assert_eq!(fired, Fired::Enqueued(before));
    let finished_at = s.now();
    let (second, fired) = run(s).await;
    assert_eq!(fired, Fired::Replaced { run: second, before });
    let reason = CancelReason::Replaced;
    assert_eq!(s.task(before).await.state, State::Cancelled { finished_at, reason });
    assert_eq!((s.counts().await.queued, s.counts().await.cancelled), (1, 1));
}

async fn an_overlap_that_runs_is_asked_to_stop(s: &Scene) {
    put(s, Overlap::Replace).await;
    let (before, _) = run(s).await;
    let node = s.join().await;
    let lease = s.run(node).await;
    let mut control = s.store.control();
    control.arm();
    let asked_at = s.now();
    let task = s.draft();
    let run = task.id;
    assert_eq!(fire(s, firing(s, Some(task))).await, Fired::Replaced { run, before });
    heard("a run that is to be stopped", &mut control).await;
    let shown = s.task(before).await;
    assert_eq!((shown.state.name(), shown.cancel_requested_at), (StateName::Running, Some(asked_at)));
    s.finish(lease, Outcome::Cancelled).await;
    assert_eq!(s.state(before).await, StateName::Cancelled);
    assert_eq!(s.state(run).await, StateName::Queued);
}

async fn a_run_that_is_over_or_gone_overlaps_nothing(s: &Scene) {
    for overlap in Overlap::ALL {
        let node = s.join().await;
        put(s, overlap).await;
        let task = s.draft();
        let first = task.id;
        fire(s, firing(s, Some(task))).await;
        let lease = s.run(node).await;
        s.finish(lease, Outcome::Success).await;
        s.pass(Duration::from_secs(3_600));
        let (second, fired) = run(s).await;
        assert_eq!(fired, Fired::Enqueued(second));
        assert_eq!(s.state(first).await, StateName::Completed);
        s.cancel(second).await;
        s.store.prune(Prune::Tasks(vec![second])).await.expect("prune answers");
        let (third, fired) = run(s).await;
        assert_eq!(fired, Fired::Enqueued(third));
        s.cancel(third).await;
        s.store.change_schedule("nightly", ScheduleChange::Remove).await.expect("change_schedule answers");
    }
}

async fn what_waits_for_a_replaced_run_hears_of_it(s: &Scene) {
    put(s, Overlap::Replace).await;
    let (before, _) = run(s).await;
    let waits = s.add_with(|task| task.after = vec![before]).await;
    run(s).await;
    assert_eq!(s.state(waits).await, StateName::Cancelled);
}

async fn a_full_queue_leaves_a_run_out(s: &Scene) {
    put(s, Overlap::Queue).await;
    s.add().await;
    s.configure(QueueChange::Limit(Some(1))).await;
    let (id, fired) = run(s).await;
    assert_eq!(fired, Fired::Skipped(Skipped::QueueFull { limit: 1 }));
    assert!(s.find(id).await.is_none());
    let record = shown(s).await;
    assert_eq!((record.schedule.next_at, record.last_task), (Some(s.now()), None), "it goes on all the same");
}

async fn who_is_replaced_makes_room_in_a_full_queue(s: &Scene) {
    put(s, Overlap::Replace).await;
    let (before, _) = run(s).await;
    s.configure(QueueChange::Limit(Some(1))).await;
    let (second, fired) = run(s).await;
    assert_eq!(fired, Fired::Replaced { run: second, before });
    s.configure(QueueChange::Limit(None)).await;
    s.add().await;
    s.configure(QueueChange::Limit(Some(1))).await;
    assert_eq!(run(s).await.1, Fired::Skipped(Skipped::QueueFull { limit: 1 }), "there were two");
    assert_eq!(s.state(second).await, StateName::Queued, "who is not replaced is not cancelled");
}

async fn a_run_that_is_there_already_is_left_out(s: &Scene) {
    put(s, Overlap::Replace).await;
    let (before, _) = run(s).await;
    let known = s.draft();
    s.enqueue(known.clone()).await;
    let skipped = Fired::Skipped(Skipped::Existing(known.id));
    assert_eq!(fire(s, firing(s, Some(known))).await, skipped);
    assert_eq!(s.state(before).await, StateName::Queued);
    assert_eq!(shown(s).await.last_task, Some(before));
}
