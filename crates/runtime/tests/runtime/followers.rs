//! Followers of a running attempt: they miss nothing of a conversation, and know how many log lines were left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ostler_core::{EventBody, EventKind, Role, TaskId, Usage};
use ostler_exec::{Context, Inline, TaskError};
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig};
use ostler_store::events::{Event, EventQuery};
use ostler_store::views::TaskRef;
use ostler_store::{MAX_PAGE, Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Signal, TempStore};

use crate::comeback::Stalled;

const QUEUE: &str = "documents";
const KIND: &str = "read";

struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
}

impl Scene {
    fn new() -> Self {
        Self { here: TempStore::real(), ids: Arc::new(Ids::new(17)) }
    }

    async fn node(&self, handlers: Inline) -> Node {
        let ids = Arc::clone(&self.ids);
        let clock = Arc::new(SystemClock);
        let parts = NodeDeps { store: self.here.store(), clock, ids: Arc::new(move || ids.task().0) };
        let pool = PoolConfig::new(QUEUE, Arc::new(handlers), 1);
        let lease = LeaseTimes { heartbeat: Duration::from_millis(200), ..LeaseTimes::default() };
        let config = NodeConfig { lease, ..NodeConfig::new("node", vec![pool]) };
        Node::start(parts, config).await.expect("the node starts")
    }

    async fn add(&self) -> TaskId {
        let task = self.ids.new_task(QUEUE, KIND);
        let id = task.id;
        self.here.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }
}

/// Follows a task from behind this event on, until it has read `most` events, or the task has ended.
async fn follow(store: &dyn Store, task: TaskId, after: u64, most: usize) -> Vec<Event> {
    let mut changes = store.changes();
    let mut events: Vec<Event> = Vec::new();
    let mut last_news = Instant::now();
    while events.len() < most {
        // The state is read before the events, so that all events of an ended task are read.
        let found = store.show(TaskRef::Id(task)).await.expect("the store answers").expect("it is there");
        let after = events.last().map_or(after, |event| event.number);
        let query =
            EventQuery { limit: (most - events.len()).min(MAX_PAGE), ..EventQuery::default().after(after) };
        let more = store.read_events(task, query).await.expect("the store answers");
        if !more.is_empty() {
            last_news = Instant::now();
            events.extend(more);
        } else if found.task.state.name().is_terminal() {
            break;
        } else {
            assert!(last_news.elapsed() < MAX_WAIT, "nothing follows event {after}");
            changes.wait().await;
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_a_hundred_times_has_every_conversation_event_once_and_in_order() {
    const EVENTS: u64 = 100_000;
    const CUTS: usize = 100;
    /// So few events before a cut that there are enough cuts, even if all log lines are left out.
    const LIFE: usize = 290;
    let scene = Scene::new();
    let handler = Inline::new().handle(KIND, |_, context: Context| async move {
        for number in 0..EVENTS {
            match number % 10 {
                0 => context.usage(Usage { input_tokens: number, ..Usage::default() }).await,
                1 | 2 => context.message(Role::Assistant, format!("message {number}")).await,
                _ => context.log(format!("line {number}")),
            }
        }
        Ok::<_, TaskError>(None)
    });
    let id = scene.add().await;
    let node = scene.node(handler).await;
    let (mut seen, mut lives): (Vec<Event>, usize) = (Vec::new(), 0);
    loop {
        // All that a follower keeps over a cut is the number of the last event that it read.
        let after = seen.last().map_or(0, |event| event.number);
        let events = follow(scene.here.second().as_ref(), id, after, LIFE).await;
        let is_over = events.len() < LIFE;
        seen.extend(events);
        lives += 1;
        if is_over {
            break;
        }
    }
    assert!(lives > CUTS, "it was cut {} times", lives - 1);
    assert!(seen.iter().zip(1..).all(|(event, number)| event.number == number), "each event once, in order");

    let numbers = |wanted: EventKind, number: fn(&EventBody) -> u64| -> Vec<u64> {
        let bodies = seen.iter().map(|event| &event.body);
        bodies.filter(|body| body.kind() == wanted).map(number).collect()
    };
    let of_text = |body: &EventBody| {
        let text = body.text().and_then(|text| text.split_once(' '));
        text.map_or(0, |(_, number)| number.parse().expect("a number"))
    };
    let expected = |wanted: &[u64]| -> Vec<u64> {
        (0..EVENTS).filter(|number| wanted.contains(&(number % 10))).collect()
    };
    assert!(numbers(EventKind::Message, of_text) == expected(&[1, 2]), "every message once, in order");
    let tokens = |body: &EventBody| if let EventBody::Usage(usage) = body { usage.input_tokens } else { 0 };
    assert!(numbers(EventKind::Usage, tokens) == expected(&[0]), "every usage once, in order");
    let lines = numbers(EventKind::Log, of_text);
    assert!(lines.is_sorted(), "lines are in order");
    let thinned = |body: &EventBody| if let EventBody::Thinned { lines } = body { *lines } else { 0 };
    let thinned: u64 = numbers(EventKind::Thinned, thinned).iter().sum();
    assert_eq!(lines.len() as u64 + thinned, EVENTS * 7 / 10, "each line is there, or counted as left out");
    node.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_survives_a_store_that_is_away_for_a_while() {
    /// More than the buffer holds.
    const MESSAGES: u64 = 5_000;
    let scene = Scene::new();
    let (began, away, sent) = (Signal::new("began"), Signal::new("away"), Arc::new(AtomicU64::new(0)));
    let handler = {
        let (began, away, sent) = (began.clone(), away.clone(), Arc::clone(&sent));
        Inline::new().handle(KIND, move |_, context: Context| {
            let (began, away, sent) = (began.clone(), away.clone(), Arc::clone(&sent));
            async move {
                began.emit();
                away.wait().await;
                for number in 0..MESSAGES {
                    context.message(Role::User, format!("message {number}")).await;
                    sent.fetch_add(1, Ordering::SeqCst);
                }
                Ok::<_, TaskError>(None)
            }
        })
    };
    let id = scene.add().await;
    let node = scene.node(handler).await;
    began.wait().await;
    let stalled = Stalled::new(scene.here.folder());
    away.emit();
    // The source is held back: it sends what the buffer holds, and no more.
    let mut before = u64::MAX;
    while before != sent.load(Ordering::SeqCst) || before == 0 {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(before < MESSAGES, "all {before} messages were taken without a store");
    drop(stalled);
    let events = follow(scene.here.store().as_ref(), id, 0, usize::MAX).await;
    let texts: Vec<&str> = events.iter().filter_map(|event| event.body.text()).collect();
    let expected: Vec<String> = (0..MESSAGES).map(|number| format!("message {number}")).collect();
    assert!(texts == expected, "{} of {MESSAGES} messages are there", texts.len());
    node.drain(MAX_WAIT).await;
}
