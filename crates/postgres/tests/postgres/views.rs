//! The views for people, their comments, the role that only reads, and what edits by hand leave.

use std::time::Duration;

use ostler_postgres::integrity::check;
use ostler_postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage, connect};
use ostler_postgres::{Address, Options, Postgres};
use ostler_sql::views::{Database, views};
use ostler_store::Store as _;
use ostler_store::calls::{Prune, Pruned};
use ostler_store::views::{Filter, Page};
use ostler_testkit::{Ids, PrivatePostgres, ViewCase, view_cases};

/// A filled store in a schema, which the connection looks in by default, and what its views must show.
async fn scene(schema: &str) -> (Postgres, Client, Vec<ViewCase>) {
    let url = PrivatePostgres::shared().url();
    let options = Options { schema: schema.to_owned(), ..Options::default() };
    let store = Postgres::open(&url, options).await.expect("the store opens");
    let (client, connection) = connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await.expect("it is set");
    let cases = view_cases(&store, &Ids::new(1)).await;
    (store, client, cases)
}

async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let answer = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let cells = |message: &SimpleQueryMessage| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
    };
    answer.iter().filter_map(cells).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_view_shows_what_is_there() {
    let (_store, client, cases) = scene("views_shown").await;
    for ViewCase { sql, rows: expected } in cases {
        assert_eq!(rows(&client, sql).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_are_timestamps_and_an_id_leads_to_its_row() {
    let (store, client, _) = scene("views_times").await;
    let Page { tasks, .. } = store.list(Filter::default(), None, 100).await.expect("list answers");
    let expected: Vec<Vec<String>> =
        tasks.iter().map(|task| vec![task.id.to_string(), task.created_at.millis().to_string()]).collect();
    let sql = "SELECT id, (extract(epoch FROM created_at) * 1000)::bigint FROM tasks WHERE created_at <= now() ORDER BY id DESC";
    assert_eq!(rows(&client, sql).await, expected);
    assert_eq!(rows(&client, "SELECT count(*) FROM tasks WHERE lease_expires_at > now()").await, [["2"]]);
    for task in tasks {
        let sql = format!("SELECT id FROM tasks WHERE uid = uid('{}')", task.id);
        assert_eq!(rows(&client, &sql).await, [[task.id.to_string()]]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_view_column_and_function_has_a_comment() {
    let (_store, client, _) = scene("views_comments").await;
    let bare = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'views_comments'::regnamespace
            AND c.relkind IN ('r', 'v') AND obj_description(c.oid, 'pg_class') IS NULL
        UNION ALL SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'views_comments'::regnamespace
            AND p.proname IN ('enqueue', 'cancel', 'retry', 'uid', 'grant_read') AND obj_description(p.oid, 'pg_proc') IS NULL";
    assert_eq!(rows(&client, bare).await, Vec::<Vec<String>>::new(), "these have no comment");
    for view in views(Database::Postgres) {
        let sql = format!(
            "SELECT a.attname, col_description(a.attrelid, a.attnum) FROM pg_attribute a
             WHERE a.attrelid = 'views_comments.{}'::regclass AND a.attnum > 0 ORDER BY a.attnum",
            view.name
        );
        let expected: Vec<[&str; 2]> =
            view.columns.iter().map(|column| [column.name, column.about]).collect();
        assert_eq!(rows(&client, &sql).await, expected, "{}", view.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_edited_by_hand_is_found_and_orphans_are_removed_once_they_are_old() {
    let (store, client, _) = scene("views_edited").await;
    let url = format!("{}?schema=views_edited", PrivatePostgres::shared().url());
    let address = Address::parse(&url).expect("the URL is right");
    let problems = async || check(&address).await.expect("it answers").expect("it is there").problems;
    assert_eq!(problems().await, Vec::<String>::new());
    client
        .batch_execute(
            "INSERT INTO step VALUES(99999, 'old', 0, '1', 0, 1), (99999, 'young', 1, '1', 9000000000000000, 1);
             INSERT INTO event(task, number, at, token, kind, data) VALUES(99999, 1, 0, 1, 0, 'lost');
             INSERT INTO attempt VALUES(99999, 1, 1, gen_random_uuid(), gen_random_uuid(), 0, NULL, NULL, NULL);
             UPDATE lane SET queued = queued + 1",
        )
        .await
        .expect("it is edited");
    let counts = "the counts of queue \"mail\", kind \"send\" are not those of its tasks";
    let found = ["1 attempts without a task", "2 steps without a task", "1 events without a task"];
    assert_eq!(problems().await, [&[counts][..], &found[..]].concat());
    let orphans = |batch| Prune::Orphans { older: Duration::from_secs(60), batch };
    assert_eq!(store.prune(orphans(2)).await, Ok(Pruned { tasks: 0, orphans: 2, more: true }));
    assert_eq!(store.prune(orphans(2)).await, Ok(Pruned { tasks: 0, orphans: 1, more: false }));
    assert_eq!(
        problems().await,
        [counts, "1 steps without a task"],
        "young rows stay, so that they can be examined"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_reads_can_do_nothing_else() {
    let (_store, client, cases) = scene("views_role").await;
    for _ in 0..2 {
        client.batch_execute("SELECT grant_read('views reader')").await.expect("it is granted");
    }
    client.batch_execute("SET ROLE \"views reader\"").await.expect("the role is there");
    for ViewCase { sql, rows: expected } in cases {
        assert_eq!(rows(&client, sql).await, expected, "{sql}");
    }
    for denied in [
        "SELECT * FROM task",
        "DELETE FROM task",
        "UPDATE tasks SET priority = 1",
        "SELECT enqueue('mail', 'send')",
        "SELECT cancel(id) FROM tasks",
        "SELECT retry(id) FROM dead_letters",
    ] {
        let refused = client.batch_execute(denied).await.expect_err(denied);
        let said = refused.as_db_error().expect("the server says why").message().to_owned();
        assert!(
            said.starts_with("permission denied") || said.starts_with("cannot update view"),
            "{denied}: {said}"
        );
    }
}
