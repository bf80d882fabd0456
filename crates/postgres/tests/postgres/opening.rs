//! Opening a store: refusals and their errors, and concurrent opening.

use std::sync::Arc;

use ostler_core::{Id, TaskId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{Enqueued, NewTask};
use ostler_store::{Error, ErrorKind, Store};
use ostler_testkit::{Disk, PrivatePostgres};

/// Nodes that start at once.
const NODES: u128 = 8;

fn options(schema: &str) -> Options {
    Options { schema: schema.to_owned(), connections: 2, ..Options::default() }
}

async fn open(schema: &str) -> Result<Postgres, Error> {
    Postgres::open(&PrivatePostgres::shared().url(), options(schema)).await
}

async fn client() -> Client {
    let (client, connection) = connect(&PrivatePostgres::shared().url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Returns the error of a refused opening.
async fn refusal(opened: Result<Postgres, Error>) -> Error {
    opened.err().expect("it is refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_nodes_that_start_at_once_on_an_empty_database_all_come_up() {
    let starting: Vec<_> = (0..NODES)
        .map(|node| {
            tokio::spawn(async move {
                let store = open("at_once").await.expect("it comes up");
                let task = NewTask::new(TaskId(Id::from_bits(node + 1)), "mail", "send", "{}");
                let id = task.id;
                assert_eq!(store.enqueue(vec![task]).await, Ok(vec![Enqueued::Created(id)]));
                store
            })
        })
        .collect();
    let mut stores = Vec::new();
    for node in starting {
        stores.push(node.await.expect("no node panics"));
    }
    let survey = stores[0].survey().await.expect("survey answers");
    assert_eq!(survey.lanes.len(), 1, "one queue with one kind, whichever node made it");
    assert_eq!(u128::from(survey.lanes[0].counts.queued), NODES);
    let row = client().await.query_one("SELECT count(*) FROM at_once.meta", &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 1, "the tables were made once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_there_is_there_when_it_is_opened_again() {
    let task = NewTask::new(TaskId(Id::from_bits(1)), "mail", "send", "{}");
    open("again").await.expect("it opens").enqueue(vec![task.clone()]).await.expect("enqueue answers");
    let answer = open("again").await.expect("it opens").enqueue(vec![task.clone()]).await;
    assert_eq!(answer, Ok(vec![Enqueued::Existing(task.id)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_schema_is_refused_and_left_as_it_is() {
    let client = client().await;
    client.batch_execute("CREATE SCHEMA theirs; CREATE TABLE theirs.task(x integer)").await.expect("a table");
    let error = refusal(open("theirs").await).await;
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    let row = client
        .query_one("SELECT count(*) FROM pg_tables WHERE schemaname = 'theirs'", &[])
        .await
        .expect("a count");
    assert_eq!(row.get::<_, i64>(0), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_there_and_empty_is_used() {
    client().await.batch_execute("CREATE SCHEMA prepared").await.expect("a schema");
    open("prepared").await.expect("it opens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_used_as_long_as_it_can_be_shared() {
    open("newer").await.expect("it opens");
    let client = client().await;
    client.batch_execute("UPDATE newer.meta SET version = 1000").await.expect("a newer version");
    open("newer").await.expect("what a newer one added does no harm");
    client.batch_execute("UPDATE newer.meta SET since = 1000").await.expect("a much newer version");
    let error = refusal(open("newer").await).await;
    assert_eq!(error.kind(), ErrorKind::TooNew, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_refused_with_a_sentence() {
    let primary = PrivatePostgres::start(Disk::Unsynced);
    let standby = primary.standby();
    let error = refusal(Postgres::open(&standby.url(), options("ostler")).await).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.to_string().contains("standby"), "{error}");
    // Of two servers, the writable one is found.
    let both = format!(
        "host={},{} user=ostler dbname=ostler",
        standby.folder().display(),
        primary.folder().display()
    );
    let store = Postgres::open(&both, options("ostler")).await.expect("it opens at the primary");
    let task = NewTask::new(TaskId(Id::from_bits(1)), "mail", "send", "{}");
    assert!(store.enqueue(vec![task]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_told_apart_from_a_bad_url() {
    for (url, kind) in [
        ("postgres://ostler@127.0.0.1:1/ostler", ErrorKind::Unavailable),
        ("postgres://ostler@%2Fno%2Fsuch%2Ffolder/ostler", ErrorKind::Unavailable),
        ("postgres://", ErrorKind::Invalid),
        ("postgres://host:port/x", ErrorKind::Invalid),
        ("postgres://host/x?nonsense=1", ErrorKind::Invalid),
    ] {
        let error = refusal(Postgres::open(url, options("ostler")).await).await;
        assert_eq!(error.kind(), kind, "{url}: {error}");
    }
    let url = PrivatePostgres::shared().url();
    let nowhere = format!("{}/nowhere", url.strip_suffix("/ostler").expect("it ends with the database"));
    let error = refusal(Postgres::open(&nowhere, options("ostler")).await).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "there is no such database: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_has_a_plain_name() {
    for name in ["", "Ostler", "1st", "a-b", "a b", "a\"b", "pg_ostler", &"x".repeat(49)] {
        let error = refusal(open(name).await).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error}");
    }
    // An SQL keyword is a valid name.
    let store = Arc::new(open("select").await.expect("it opens"));
    assert!(store.survey().await.is_ok());
}
