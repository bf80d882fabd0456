//! Several nodes on one store: settings conflicts, take-over and node commands.

use std::sync::Arc;
use std::time::Duration;

use ostler_exec::Inline;
use ostler_runtime::{LeaseTimes, Node, NodeConfig, NodeDeps, NodeState, PoolConfig, StartError, TakeOver};
use ostler_store::calls::QueueChange;
use ostler_store::node_commands::{CommandAnswer, NodeCommand};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, TempStore};

const QUEUE: &str = "documents";

fn parts(here: &TempStore, seed: u64) -> NodeDeps {
    let ids = Ids::new(seed);
    NodeDeps { store: here.store(), clock: Arc::new(SystemClock), ids: Arc::new(move || ids.task().0) }
}

fn config(name: &str, limit: u64, take_over: TakeOver) -> NodeConfig {
    let executor = Arc::new(Inline::new().handle("read", |_, _| async { Ok(None) }));
    let settings = vec![QueueChange::Limit(Some(limit))];
    let pool = PoolConfig { settings, ..PoolConfig::new(QUEUE, executor, 1) };
    // Only a control signal makes it renew soon.
    let lease = LeaseTimes {
        ttl: Duration::from_secs(60),
        heartbeat: Duration::from_secs(20),
        poll: Duration::from_secs(20),
    };
    NodeConfig { take_over, lease, ..NodeConfig::new(name, vec![pool]) }
}

async fn limit(store: &dyn Store) -> Option<u64> {
    store.queue_settings(QUEUE).await.expect("the store answers").limit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_settings_differ_from_a_living_ones_does_not_start() {
    let here = TempStore::real();
    let anna = Node::start(parts(&here, 1), config("anna", 10, TakeOver::No)).await.unwrap();
    let refused = Node::start(parts(&here, 2), config("bert", 20, TakeOver::No)).await.err();
    let Some(StartError::Differs(difference)) = refused else { panic!("it starts, or says {refused:?}") };
    let sentence = difference.to_string();
    for word in ["\"documents\"", "\"anna\"", "queue_limit is 10 there, and 20 here"] {
        assert!(sentence.contains(word), "{sentence}");
    }
    assert_eq!(limit(here.store().as_ref()).await, Some(10), "nothing was changed");
    assert_eq!(here.store().survey().await.unwrap().nodes.len(), 1, "it left");

    let same = Node::start(parts(&here, 3), config("carl", 10, TakeOver::No)).await.unwrap();
    same.drain(MAX_WAIT).await;
    anna.drain(MAX_WAIT).await;
    let alone = Node::start(parts(&here, 4), config("dora", 20, TakeOver::No)).await.unwrap();
    assert_eq!(limit(here.store().as_ref()).await, Some(20), "no other node is there");
    alone.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_takes_over_brings_its_own_settings() {
    let here = TempStore::real();
    let anna = Node::start(parts(&here, 1), config("anna", 10, TakeOver::No)).await.unwrap();
    let bert = Node::start(parts(&here, 2), config("bert", 20, TakeOver::Yes)).await.unwrap();
    assert_eq!(limit(here.store().as_ref()).await, Some(20));
    anna.drain(MAX_WAIT).await;
    bert.drain(MAX_WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_ordered_to_drain_says_so_at_once() {
    let here = TempStore::real();
    let node = Node::start(parts(&here, 1), config("anna", 10, TakeOver::No)).await.unwrap();
    let answer = here.store().command(node.session(), NodeCommand::Drain).await.unwrap();
    assert_eq!(answer, CommandAnswer::Given { number: 1 });
    let mut state = node.state();
    let drains = state.wait_for(|state| *state == NodeState::Draining);
    // The next heartbeat is up to twenty seconds away.
    tokio::time::timeout(MAX_WAIT, drains).await.expect("it hears of it").expect("it is there");
    node.drain(MAX_WAIT).await;
}
