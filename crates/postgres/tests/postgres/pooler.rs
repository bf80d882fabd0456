//! A pooler between the store and the server: PgBouncer, which gives each transaction any free connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, TaskId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Listening, Options, Postgres};
use ostler_store::Store;
use ostler_store::calls::{Enqueued, NewTask};
use ostler_testkit::{MAX_WAIT, ManualClock, PoolMode, PrivatePgbouncer, PrivatePostgres};
use tokio::time::{sleep, timeout};

use crate::commits::verbs::{self, Case, Stage};

fn options(schema: &str, listening: Listening) -> Options {
    Options { schema: schema.to_owned(), connections: 4, listening, ..Options::default() }
}

async fn open(url: &str, options: Options) -> Arc<Postgres> {
    Arc::new(Postgres::open(url, options).await.expect("the store opens"))
}

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

fn draft(number: u128) -> NewTask {
    NewTask::new(TaskId(Id::from_bits(number)), "mail", "send", "{}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_is_carried_out_through_a_pooler_in_transaction_mode() {
    const ROUNDS: usize = 2;
    let server = PrivatePostgres::shared();
    // The schema name is part of all statements, but that of the cases is the default one.
    let pooler = PrivatePgbouncer::start(server, PoolMode::Transaction, 2);
    let clock = ManualClock::new();
    let with_clock =
        |schema: &str| Options { clock: Some(Arc::new(clock.clone())), ..options(schema, Listening::Off) };
    let mut stores = Vec::new();
    for _ in 0..ROUNDS {
        // Each client uses the same statement names, and all share two connections.
        stores.push((
            open(&pooler.url(), with_clock("ostler")).await,
            open(&pooler.url(), with_clock("aside")).await,
        ));
    }
    for (round, (store, aside)) in stores.into_iter().enumerate() {
        let direct = client(&server.url()).await;
        let stage = Stage { store, aside, direct, clock: clock.clone(), round };
        for Case { verb, act, check } in verbs::all(&stage).await {
            let acted = timeout(MAX_WAIT, act).await;
            assert_eq!(acted, Ok(Ok(())), "{verb}");
            assert_eq!(check(&stage).await, Ok(()), "after {verb}");
        }
    }
    // Nothing stays on the connections that other clients get next. The query itself is unnamed.
    let next = client(&pooler.url()).await;
    let named = next.query_typed_one("SELECT count(*) FROM pg_prepared_statements", &[]).await;
    assert_eq!(named.expect("a count").get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_restarted_is_found_again() {
    let mut pooler = PrivatePgbouncer::start(PrivatePostgres::shared(), PoolMode::Transaction, 2);
    let store = open(&pooler.url(), options("restarted", Listening::On)).await;
    assert_eq!(store.enqueue(vec![draft(1)]).await, Ok(vec![Enqueued::Created(draft(1).id)]));
    tokio::task::block_in_place(|| pooler.restart());
    let until = Instant::now() + MAX_WAIT;
    loop {
        match store.enqueue(vec![draft(2)]).await {
            Ok(answers) => break assert_eq!(answers, [Enqueued::Created(draft(2).id)]),
            Err(error) => assert!(error.is_transient() && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.enqueue(vec![draft(1)]).await, Ok(vec![Enqueued::Existing(draft(1).id)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_come_through_a_pooler_in_session_mode() {
    let pooler = PrivatePgbouncer::start(PrivatePostgres::shared(), PoolMode::Session, 20);
    let hears = open(&pooler.url(), options("hinted", Listening::On)).await;
    let tells = open(&pooler.url(), options("hinted", Listening::Off)).await;
    let mut wakeups = hears.wakeups();
    wakeups.arm();
    tells.enqueue(vec![draft(1)]).await.expect("enqueue answers");
    timeout(MAX_WAIT, wakeups.wait()).await.expect("it is heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_come_with_a_transaction_that_goes_through_a_pooler() {
    let pooler = PrivatePgbouncer::start(PrivatePostgres::shared(), PoolMode::Transaction, 1);
    let store = open(&pooler.url(), options("with_theirs", Listening::Off)).await;
    store.enqueue(vec![draft(1)]).await.expect("enqueue answers");
    for number in [2, 3] {
        // Each of them is another client, and all share one connection.
        let mut theirs = client(&pooler.url()).await;
        let transaction = theirs.transaction().await.expect("a transaction");
        let mut task = draft(number);
        task.after = vec![draft(1).id];
        store.enqueue_in(&transaction, vec![task]).await.expect("it is taken in");
        transaction.commit().await.expect("it commits");
    }
    let answers = store.enqueue(vec![draft(2), draft(3)]).await;
    assert_eq!(answers, Ok(vec![Enqueued::Existing(draft(2).id), Enqueued::Existing(draft(3).id)]));
}
