//! The views for people, their comments, and the role that only reads.

use ostler_postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage, connect};
use ostler_postgres::{Options, Postgres};
use ostler_sql::views::{Database, views};
use ostler_store::Store as _;
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
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    rows.collect()
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
