//! Control signals: hints that a node should renew now. They are separate from wakeups: ready tasks do not trigger them.

use super::super::scene::{Scene, heard, quiet};
use super::runner::cases;
use ostler_store::Wakeups;
use ostler_store::calls::CancelAnswer;
use ostler_store::node_commands::{CommandAnswer, NodeCommand};

cases![
    a_cancel_of_a_leased_task_is_news,
    an_order_is_news,
    news_reach_another_connection,
    what_happened_between_arming_and_waiting_is_not_missed,
    a_new_task_is_no_news,
    a_cancel_that_needs_no_worker_is_no_news,
    news_do_not_wake_who_waits_for_tasks,
    a_command_to_an_absent_node_is_no_news,
];

fn armed(mut bell: Wakeups) -> Wakeups {
    bell.arm();
    bell
}

async fn a_cancel_of_a_leased_task_is_news(s: &Scene) {
    let node = s.join().await;
    let claimed = s.leased(node).await.task();
    let running = s.running(node).await.task();
    let mut control = armed(s.store.control());
    for id in [claimed, running] {
        let (answer, ()) = tokio::join!(s.cancel(id), heard("a cancel", &mut control));
        assert_eq!(answer, CancelAnswer::Requested);
    }
}

async fn an_order_is_news(s: &Scene) {
    let node = s.join().await;
    let mut control = armed(s.store.control());
    let (answer, ()) =
        tokio::join!(s.store.command(node, NodeCommand::Drain), heard("a node command", &mut control));
    assert_eq!(answer, Ok(CommandAnswer::Given { number: 1 }));
}

async fn news_reach_another_connection(s: &Scene) {
    let node = s.join().await;
    let id = s.running(node).await.task();
    let second = s.fixture.second().await;
    let mut control = armed(second.control());
    s.cancel(id).await;
    heard("a cancel through the first connection", &mut control).await;
    s.store.command(node, NodeCommand::Drain).await.expect("order answers");
    heard("a node command through the first connection", &mut control).await;
}

async fn what_happened_between_arming_and_waiting_is_not_missed(s: &Scene) {
    let node = s.join().await;
    let mut control = armed(s.store.control());
    s.store.command(node, NodeCommand::Drain).await.expect("order answers");
    heard("a node command before the wait", &mut control).await;
}

async fn a_new_task_is_no_news(s: &Scene) {
    let second = s.fixture.second().await;
    for store in [&s.store, &second] {
        let (mut control, mut ready) = (armed(store.control()), armed(store.wakeups()));
        s.add().await;
        heard("a new task", &mut ready).await;
        quiet("a new task", &mut control).await;
    }
}

async fn a_cancel_that_needs_no_worker_is_no_news(s: &Scene) {
    let id = s.add().await;
    let mut control = armed(s.store.control());
    for answer in [CancelAnswer::Cancelled, CancelAnswer::Ended(ostler_core::StateName::Cancelled)] {
        assert_eq!(s.cancel(id).await, answer);
    }
    assert_eq!(s.cancel(s.task_id()).await, CancelAnswer::NotFound);
    quiet("a cancel that concerns no node", &mut control).await;
}

async fn news_do_not_wake_who_waits_for_tasks(s: &Scene) {
    let node = s.join().await;
    let id = s.running(node).await.task();
    let second = s.fixture.second().await;
    for store in [&s.store, &second] {
        // Earlier enqueues may still wake it: drain those hints first.
        let (mut control, mut ready) = (armed(store.control()), armed(store.wakeups()));
        s.add().await;
        heard("a new task", &mut ready).await;
        s.cancel(id).await;
        s.store.command(node, NodeCommand::Drain).await.expect("order answers");
        heard("a cancel and a node command", &mut control).await;
        quiet("a cancel or an order", &mut ready).await;
    }
}

async fn a_command_to_an_absent_node_is_no_news(s: &Scene) {
    let mut control = armed(s.store.control());
    assert_eq!(s.store.command(s.session_id(), NodeCommand::Drain).await, Ok(CommandAnswer::NoSuchNode));
    quiet("a command to an absent node", &mut control).await;
}
