//! Retries: transient conflicts and silent servers are retried internally, and permanent failures are reported in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, SessionId, TaskId};
use ostler_postgres::tokio_postgres::{Client, NoTls, Transaction, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{
    CancelAnswer, Claim, ClaimAnswer, Enqueued, Fenced, Kinds, NewSession, NewTask, Renewed,
};
use ostler_store::{ErrorKind, Store};
use ostler_testkit::{MAX_WAIT, PrivatePostgres, Proxy, Weather};
use tokio::time::sleep;

const NODE: SessionId = SessionId(Id::from_bits(9));
/// Short, to keep tests of silence short; longer than it takes to try another server.
const PATIENCE: Duration = Duration::from_secs(5);

async fn open(url: &str, schema: &str) -> Arc<Postgres> {
    Arc::new(Postgres::open(url, options(schema)).await.expect("the store opens"))
}

fn options(schema: &str) -> Options {
    Options { schema: schema.to_owned(), connections: 4, patience: PATIENCE, ..Options::default() }
}

fn draft(number: u128) -> NewTask {
    NewTask::new(TaskId(Id::from_bits(number)), "mail", "send", "{}")
}

async fn join(store: &Postgres) {
    let (name, version) = ("stable".to_owned(), "1".to_owned());
    let node = NewSession {
        id: NODE,
        name,
        host: "stable-1".to_owned(),
        pid: 1,
        version,
        ttl: 10 * MAX_WAIT,
        settings: "{}".to_owned(),
    };
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
}

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Waits until another transaction is blocked by this one.
async fn until_in_the_way(transaction: &Transaction<'_>) {
    let asked =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))";
    let until = Instant::now() + MAX_WAIT;
    while transaction.query_one(asked, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < until, "no transaction waits");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_that_is_ended_because_of_a_deadlock_is_tried_again() {
    let url = PrivatePostgres::shared().url();
    let store = open(&url, "deadlock").await;
    store.enqueue(vec![draft(1), draft(2)]).await.expect("enqueue answers");
    let mut client = client(&url).await;
    // Deadlock detection must happen in the other transaction, so that that one is aborted.
    client.batch_execute("SET deadlock_timeout = '1h'").await.expect("it may be set");
    let ours = client.transaction().await.expect("a transaction");
    let hold = "SELECT 1 FROM deadlock.task WHERE uid = $1::text::uuid FOR UPDATE";
    let name = |number: u128| format!("{number:032x}");
    ours.execute(hold, &[&name(2)]).await.expect("a row is held");
    let cancelling = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.cancel(vec![draft(1).id, draft(2).id]).await })
    };
    // The other transaction holds the first lock, and waits for the second.
    until_in_the_way(&ours).await;
    ours.execute(hold, &[&name(1)]).await.expect("the other transaction was ended");
    ours.commit().await.expect("it commits");
    let answers = cancelling.await.expect("the call ends");
    assert_eq!(answers, Ok(vec![CancelAnswer::Cancelled; 2]));
    let log = std::fs::read_to_string(PrivatePostgres::shared().folder().join("server.log"));
    // The log names the statements of a deadlock in the lines after it.
    let log = log.expect("the server has a log");
    let ours = |after: &str| after.lines().take(6).any(|line| line.contains("deadlock.task"));
    assert!(log.split("deadlock detected").skip(1).any(ours), "there was a deadlock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verb_that_could_not_be_serialized_is_tried_again() {
    let url = PrivatePostgres::shared().url();
    let store = open(&url, "serial").await;
    let client = client(&url).await;
    // A sequence value stays used when the transaction is rolled back.
    client
        .batch_execute(
            "CREATE SEQUENCE serial.tries;
             CREATE FUNCTION serial.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('serial.tries') < 4 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF;
                RETURN NEW;
             END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON serial.task FOR EACH ROW EXECUTE FUNCTION serial.refuse()",
        )
        .await
        .expect("a server that refuses three times");
    assert_eq!(store.enqueue(vec![draft(1)]).await, Ok(vec![Enqueued::Created(draft(1).id)]));
    // A failure that persists is reported.
    client
        .batch_execute("ALTER SEQUENCE serial.tries RESTART MINVALUE -1000 START -1000")
        .await
        .expect("anew");
    let error = store.enqueue(vec![draft(2)]).await.expect_err("it is refused for ever");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.is_transient());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_set_to_another_isolation_gives_each_task_to_one() {
    const TASKS: u128 = 100;
    let url = format!(
        "host={} user=ostler dbname=ostler options='-c default_transaction_isolation=serializable'",
        PrivatePostgres::shared().folder().display()
    );
    let store = open(&url, "isolated").await;
    join(&store).await;
    let enqueuing: Vec<_> = (1..=TASKS)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue(vec![draft(number)]).await })
        })
        .collect();
    for call in enqueuing {
        assert!(call.await.expect("no caller panics").is_ok());
    }
    let claiming: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            let claim = Claim { session: NODE, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 10 };
            tokio::spawn(async move { store.claim(claim).await })
        })
        .collect();
    let mut tasks = Vec::new();
    for call in claiming {
        match call.await.expect("no caller panics").expect("claim answers") {
            ClaimAnswer::Tasks { tasks: some, .. } => tasks.extend(some.iter().map(|one| one.lease.task())),
            ClaimAnswer::SessionEnded => panic!("the node is alive"),
        }
    }
    tasks.sort();
    tasks.dedup();
    assert_eq!(tasks.len() as u128, TASKS, "each of them, once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_nothing_is_told_when_a_store_is_opened() {
    let proxy = Proxy::start(PrivatePostgres::shared()).await;
    proxy.set(Weather::Silent);
    let began = Instant::now();
    let error =
        Postgres::open(&proxy.url(), options("mute")).await.err().expect("the server does not answer");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(began.elapsed() < MAX_WAIT, "it took {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_one_that_says_nothing_is_passed_over() {
    let server = PrivatePostgres::shared();
    let (first, second) = (Proxy::start(server).await, Proxy::start(server).await);
    let both = format!("postgres://ostler@127.0.0.1:{},127.0.0.1:{}/ostler", first.port(), second.port());
    first.set(Weather::Silent);
    let store = open(&both, "passed").await;
    join(&store).await;
    assert!(matches!(store.renew(NODE, &[]).await, Ok(Renewed::Held { .. })));
    // Now the other way round, with open connections.
    first.set(Weather::Fair);
    second.set(Weather::Silent);
    let until = Instant::now() + 2 * MAX_WAIT;
    let mut number = 1;
    while let Err(error) = store.enqueue(vec![draft(number)]).await {
        assert!(error.is_transient() && Instant::now() < until, "{error}");
        number += 1;
    }
    while let Err(error) = store.renew(NODE, &[]).await {
        assert!(error.is_transient() && Instant::now() < until, "{error}");
    }
}
