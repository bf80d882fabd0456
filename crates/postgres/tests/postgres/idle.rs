//! Idle connections that a network drops silently: the loss is detected, and another connection replaces them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, TaskId};
use ostler_postgres::{Listening, Options, Postgres};
use ostler_store::Store;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_testkit::{MAX_WAIT, PrivatePostgres, Proxy};
use tokio::time::timeout;

/// How long to wait for one notification before the next is sent.
const HINT: Duration = Duration::from_millis(200);

async fn open(url: &str, schema: &str, listening: Listening, check_idle: Duration) -> Arc<Postgres> {
    // No timeout expires during the test.
    let patience = 4 * MAX_WAIT;
    let options =
        Options { schema: schema.to_owned(), listening, check_idle, patience, ..Options::default() };
    Arc::new(Postgres::open(url, options).await.expect("the store opens"))
}

fn draft(number: u128) -> NewTask {
    NewTask::new(TaskId(Id::from_bits(number)), "mail", "send", "{}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_connection_that_falls_silent_is_replaced() {
    let server = PrivatePostgres::shared();
    let proxy = Proxy::start(server).await;
    let hears = open(&proxy.url(), "hears", Listening::On, HINT).await;
    let tells = open(&server.url(), "hears", Listening::Off, HINT).await;
    let mut wakeups = hears.wakeups();
    wakeups.arm();
    tells.enqueue(vec![draft(1)]).await.expect("enqueue answers");
    timeout(MAX_WAIT, wakeups.wait()).await.expect("a hint is heard");
    proxy.silence_open();
    let until = Instant::now() + MAX_WAIT;
    for number in 2.. {
        wakeups.arm();
        tells.enqueue(vec![draft(number)]).await.expect("enqueue answers");
        if timeout(HINT, wakeups.wait()).await.is_ok() {
            break;
        }
        assert!(Instant::now() < until, "no hint is heard any more");
    }
    // Later notifications arrive as well, not only the signal that follows a new LISTEN.
    wakeups.arm();
    tells.enqueue(vec![draft(0)]).await.expect("enqueue answers");
    timeout(MAX_WAIT, wakeups.wait()).await.expect("a hint is heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_the_pool_that_fell_silent_are_replaced_before_they_are_used() {
    let server = PrivatePostgres::shared();
    let proxy = Proxy::start(server).await;
    let store = open(&proxy.url(), "idle", Listening::Off, Duration::ZERO).await;
    let calls: Vec<_> = (1..=4)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.show(ostler_store::views::TaskRef::Id(draft(number).id)).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("no caller panics"), Ok(None), "several connections are open");
    }
    proxy.silence_open();
    let answer = timeout(MAX_WAIT, store.enqueue(vec![draft(1)])).await.expect("it is not waited for ever");
    assert_eq!(answer, Ok(vec![Enqueued::Created(draft(1).id)]));
}
