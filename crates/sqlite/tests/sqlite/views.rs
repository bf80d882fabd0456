//! The views for people, as any SQLite tool reads them.

use ostler_sql::views::{Database, views};
use ostler_store::Store as _;
use ostler_store::views::{Filter, Page};
use ostler_testkit::{Ids, TempStore, ViewCase, view_cases};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

fn cell(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text.replace('\0', "?"),
        Value::Real(_) | Value::Blob(_) => panic!("the query asks for texts and numbers"),
    }
}

fn rows(conn: &Connection, sql: &str) -> Vec<Vec<String>> {
    let mut statement = conn.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let columns = statement.column_count();
    let read = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at).map(cell)).collect();
    statement.query_map([], read).expect("it runs").collect::<Result<_, _>>().expect("rows")
}

#[tokio::test]
async fn every_view_shows_what_is_there() {
    let store = TempStore::real();
    let cases = view_cases(store.store().as_ref(), &Ids::new(1)).await;
    let conn = Connection::open_with_flags(store.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("it opens");
    for ViewCase { sql, rows: expected } in cases {
        assert_eq!(rows(&conn, sql), expected, "{sql}");
    }
    for view in views(Database::Sqlite) {
        let statement =
            conn.prepare(&format!("SELECT * FROM {}", view.name)).expect("every column is computed");
        let named: Vec<&str> = view.columns.iter().map(|column| column.name).collect();
        assert_eq!(statement.column_names().collect::<Vec<_>>(), named);
    }
}

#[tokio::test]
async fn times_are_texts_that_compare_with_those_of_sqlite() {
    let store = TempStore::real();
    view_cases(store.store().as_ref(), &Ids::new(1)).await;
    let conn = Connection::open(store.path()).expect("it opens");
    let Page { tasks, .. } = store.store().list(Filter::default(), None, 100).await.expect("list answers");
    let millis = |column: &str| {
        format!(
            "SELECT CAST(round((julianday({column}) - 2440587.5) * 86400000) AS integer) FROM tasks ORDER BY id DESC"
        )
    };
    let created: Vec<Vec<String>> =
        tasks.iter().map(|task| vec![task.created_at.millis().to_string()]).collect();
    assert_eq!(rows(&conn, &millis("created_at")), created);
    let ended = |task: &ostler_core::Task| task.state.finished_at().map(|at| at.millis().to_string());
    let finished: Vec<Vec<String>> = tasks.iter().map(|task| vec![ended(task).unwrap_or_default()]).collect();
    assert_eq!(rows(&conn, &millis("finished_at")), finished);
    let held = "SELECT count(*) FROM tasks WHERE lease_expires_at > datetime('now', '-1 hour')";
    assert_eq!(rows(&conn, held), [["2".to_owned()]]);
}
