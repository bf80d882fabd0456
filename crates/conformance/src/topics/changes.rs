//! Changes: hints that a task ended or an event was written, for watchers of this process and others.

use std::sync::Arc;

use ostler_core::{ErrorClass, EventBody, Outcome};
use ostler_store::{Changes, LAST_POLL, Store, Woken};
use tokio::time::Instant;

use super::super::scene::{Scene, failure};
use super::runner::cases;

cases![
    an_end_wakes_a_watcher,
    an_end_wakes_a_watcher_of_another_connection,
    an_event_wakes_a_watcher_of_another_connection,
    a_failure_wakes_a_watcher_of_another_connection,
    a_cancellation_wakes_a_watcher_of_another_connection,
    a_quiet_store_wakes_no_watcher,
];

/// A hint that is late counts as lost, so each change is repeated, up to this often.
const ROUNDS: usize = 20;

/// Another connection that watches. Its polls are rare by now, and other processes know of it.
struct Watcher {
    changes: Changes,
    _store: Arc<dyn Store>,
}

impl Watcher {
    async fn of(s: &Scene) -> Self {
        let store = s.fixture.second().await;
        let mut changes = store.changes();
        loop {
            let began = Instant::now();
            if changes.wait().await == Woken::Poll && began.elapsed() >= LAST_POLL / 2 {
                return Self { changes, _store: store };
            }
        }
    }

    async fn is_told(&mut self) -> bool {
        self.changes.wait().await == Woken::Hint
    }
}

async fn an_end_wakes_a_watcher(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let mut changes = s.store.changes();
    s.finish(lease, Outcome::Success).await;
    assert_eq!(changes.wait().await, Woken::Hint);
}

async fn an_end_wakes_a_watcher_of_another_connection(s: &Scene) {
    let node = s.join().await;
    let mut watcher = Watcher::of(s).await;
    for _ in 0..ROUNDS {
        s.completed(node).await;
        if watcher.is_told().await {
            return;
        }
    }
    panic!("the end of a task did not wake the watcher");
}

async fn an_event_wakes_a_watcher_of_another_connection(s: &Scene) {
    let node = s.join().await;
    let lease = s.running(node).await;
    let mut watcher = Watcher::of(s).await;
    for _ in 0..ROUNDS {
        s.store.append(lease.as_ref(), vec![EventBody::line("a line")]).await.expect("append answers");
        if watcher.is_told().await {
            return;
        }
    }
    panic!("an event did not wake the watcher");
}

async fn a_failure_wakes_a_watcher_of_another_connection(s: &Scene) {
    let node = s.join().await;
    let mut watcher = Watcher::of(s).await;
    for _ in 0..ROUNDS {
        let lease = s.running(node).await;
        s.finish(lease, failure(ErrorClass::Transient)).await;
        if watcher.is_told().await {
            return;
        }
    }
    panic!("no failure was told");
}

async fn a_cancellation_wakes_a_watcher_of_another_connection(s: &Scene) {
    let mut watcher = Watcher::of(s).await;
    for _ in 0..ROUNDS {
        let id = s.add().await;
        s.cancel(id).await;
        if watcher.is_told().await {
            return;
        }
    }
    panic!("no cancellation was told");
}

async fn a_quiet_store_wakes_no_watcher(s: &Scene) {
    let mut watcher = Watcher::of(s).await;
    assert!(!watcher.is_told().await, "a hint came of nothing");
}
