//! Wakeups: hints that tasks became ready. They may be spurious; on a healthy store none that matters is lost.

use ostler_core::Outcome;

use super::super::scene::{Scene, TICK, TTL, heard};
use super::runner::cases;
use ostler_store::calls::{QueueChange, Report};

cases![
    a_new_task_wakes,
    a_new_task_wakes_another_connection,
    what_became_ready_between_arming_and_waiting_is_not_missed,
    a_task_that_comes_back_wakes,
    a_task_that_is_due_wakes,
    room_for_a_parked_task_wakes,
    a_resumed_queue_wakes,
];

async fn a_new_task_wakes(s: &Scene) {
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    let (ring, _) = tokio::join!(heard("a new task", &mut wakeups), s.add());
    assert_eq!(ring, ());
}

async fn a_new_task_wakes_another_connection(s: &Scene) {
    let second = s.fixture.second().await;
    let mut wakeups = second.wakeups();
    wakeups.arm();
    s.add().await;
    heard("a task of the first connection", &mut wakeups).await;
}

async fn what_became_ready_between_arming_and_waiting_is_not_missed(s: &Scene) {
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.add().await;
    heard("a task before the wait", &mut wakeups).await;
}

async fn a_task_that_comes_back_wakes(s: &Scene) {
    let node = s.join().await;
    let mut wakeups = s.store.wakeups();
    let lease = s.leased(node).await;
    let id = lease.task();
    wakeups.arm();
    s.store.finish(Report::hand_backs(vec![lease])).await.expect("finish answers");
    heard("a hand-back", &mut wakeups).await;
    s.run(node).await;
    wakeups.arm();
    s.pass(TTL + TICK);
    s.store.expire(10).await.expect("expire answers");
    heard("an expiry", &mut wakeups).await;
    s.cancel(id).await;
    wakeups.arm();
    s.replay(id).await;
    heard("a replay", &mut wakeups).await;
}

async fn a_task_that_is_due_wakes(s: &Scene) {
    let mut wakeups = s.store.wakeups();
    s.add_with(|task| task.run_at = Some(s.in_ms(1))).await;
    wakeups.arm();
    s.pass(TICK);
    s.store.make_ready(10).await.expect("make_ready answers");
    heard("a task that is due", &mut wakeups).await;
}

async fn room_for_a_parked_task_wakes(s: &Scene) {
    s.configure(QueueChange::KeyConcurrency(Some(1))).await;
    let node = s.join().await;
    for _ in 0..3 {
        s.add_keyed("k").await;
    }
    let lease = s.lease(node).await;
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.finish(lease, Outcome::Success).await;
    heard("room in a key", &mut wakeups).await;
    s.configure(QueueChange::KeyConcurrency(Some(2))).await;
    heard("a higher cap", &mut wakeups).await;
}

async fn a_resumed_queue_wakes(s: &Scene) {
    s.add().await;
    s.configure(QueueChange::Pause("lunch".to_owned())).await;
    let mut wakeups = s.store.wakeups();
    wakeups.arm();
    s.configure(QueueChange::Resume).await;
    heard("a resumed queue", &mut wakeups).await;
}
