//! Hooks: retries with backoff, and a task that is enqueued once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ostler_core::EndKind;
use ostler_ops::hooks::{HookAttempt, HookError, HookNotice, HookRunner, HookSet, TaskHook};
use ostler_store::calls::QueueChange;
use ostler_store::outbox::OutboxEntry;
use ostler_store::views::{Filter, TaskDetail, TaskRef};
use ostler_store::{Bounds, Clock as _, Store as _};

use ostler_wire::remains::AttemptRemains;

use crate::world::{QUEUE, World};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Fails so often, then succeeds.
struct Flaky {
    tries: Arc<AtomicU32>,
    fails: u32,
    how: fn(String) -> HookError,
}

#[async_trait]
impl HookAttempt for Flaky {
    async fn run(&self, _notice: &HookNotice, _timeout: Duration) -> Result<(), HookError> {
        let tries = self.tries.fetch_add(1, Ordering::Relaxed) + 1;
        if tries > self.fails { Ok(()) } else { Err((self.how)(format!("no {tries}"))) }
    }
}

/// Never answers.
struct Hanging;

#[async_trait]
impl HookAttempt for Hanging {
    async fn run(&self, _notice: &HookNotice, _timeout: Duration) -> Result<(), HookError> {
        std::future::pending().await
    }
}

fn flaky(fails: u32, how: fn(String) -> HookError) -> (Arc<AtomicU32>, HookRunner) {
    let tries = Arc::new(AtomicU32::new(0));
    let way = Box::new(Flaky { tries: Arc::clone(&tries), fails, how });
    (tries, HookRunner { name: "hook".to_owned(), way, timeout: TIMEOUT, attempts: 3 })
}

async fn letter(world: &World) -> (OutboxEntry, TaskDetail) {
    let id = world.enqueue(1).await[0];
    world.fail(1).await;
    let found = world.store.show(TaskRef::Id(id)).await.expect("read").expect("it is there");
    let entry = OutboxEntry {
        earlier: 2,
        number: 17,
        queue: QUEUE.to_owned(),
        task: id,
        kind: "send".to_owned(),
        attempt: 1,
        what: EndKind::Failed,
        at: world.clock.now(),
        failure: None,
        run_at: None,
    };
    (entry, found)
}

async fn deliver(world: &World, hooks: Vec<HookRunner>) -> Result<(), Vec<String>> {
    let (entry, found) = letter(world).await;
    HookSet::new(hooks).expect("there are hooks").deliver(world.store(), &entry, &found).await
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_retried_until_it_succeeds_and_a_hopeless_one_is_not() {
    let world = World::new();
    let (tries, hook) = flaky(2, HookError::MayPass);
    assert_eq!(deliver(&world, vec![hook]).await, Ok(()));
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let (tries, hook) = flaky(2, HookError::Never);
    assert_eq!(deliver(&world, vec![hook]).await, Err(vec!["hook failed after 1 attempt: no 1".to_owned()]));
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn hooks_run_at_the_same_time_and_each_that_missed_says_so_within_the_patience() {
    let world = World::new();
    let hanging =
        HookRunner { name: "slow".to_owned(), way: Box::new(Hanging), timeout: TIMEOUT, attempts: 2 };
    let ((_, lost), (won, good)) = (flaky(9, HookError::MayPass), flaky(0, HookError::MayPass));
    let (entry, found) = letter(&world).await;
    let hooks = HookSet::new(vec![hanging, lost, good]).expect("there are hooks");
    let began = tokio::time::Instant::now();
    let missed = hooks.deliver(world.store(), &entry, &found).await.expect_err("two are missed");
    let expected = ["hook failed after 3 attempts: no 3", "slow failed after 2 attempts: it does not finish"];
    assert_eq!((missed.as_slice(), won.load(Ordering::Relaxed)), (&expected.map(str::to_owned)[..], 1));
    assert!(began.elapsed() <= hooks.patience());
    assert!(HookSet::new(Vec::new()).is_none());
}

#[tokio::test]
async fn the_task_of_a_hook_is_enqueued_once_though_its_notice_comes_twice() {
    let world = World::new();
    let (entry, found) = letter(&world).await;
    let notice = HookNotice::new(&entry, &found, AttemptRemains::default());
    let store = Arc::new(world.store.clone());
    let hook = TaskHook::new(store, Bounds::default(), "alerts".to_owned(), "dead".to_owned());
    for _ in 0..2 {
        assert_eq!(hook.run(&notice, TIMEOUT).await, Ok(()));
    }
    let alerts = Filter { queue: Some("alerts".to_owned()), ..Filter::default() };
    let tasks = world.store.list(alerts, None, 10).await.expect("a list").tasks;
    assert_eq!(tasks.len(), 1);
    let payload: serde_json::Value = serde_json::from_str(&tasks[0].payload).expect("JSON");
    assert_eq!((&payload["event"], &payload["sequence"]), (&"failed".into(), &17.into()));
    assert_eq!((&payload["earlier"], &payload["attempt"]["number"]), (&2.into(), &1.into()));
    assert_eq!(payload["id"], entry.task.to_string());
}

#[tokio::test]
async fn a_full_queue_may_have_room_later_and_a_payload_limit_stays_too_small() {
    let world = World::new();
    let (entry, found) = letter(&world).await;
    let notice = HookNotice::new(&entry, &found, AttemptRemains::default());
    let hook =
        |bounds| TaskHook::new(Arc::new(world.store.clone()), bounds, QUEUE.to_owned(), "dead".to_owned());
    world.store.configure(QUEUE, vec![QueueChange::Limit(Some(1))]).await.expect("it is configured");
    world.enqueue(1).await;
    let full = hook(Bounds::default()).run(&notice, TIMEOUT).await;
    assert!(matches!(full, Err(HookError::MayPass(_))), "{full:?}");
    let narrow = Bounds { payload_bytes: 10, ..Bounds::default() };
    let never = hook(narrow).run(&notice, TIMEOUT).await;
    assert!(matches!(never, Err(HookError::Never(_))), "{never:?}");
}
