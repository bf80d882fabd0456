//! Complete move: all data arrives, and the moved store continues the work.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_conformance::Picture;
use ostler_core::{Outcome, StateName, TaskId};
use ostler_postgres::tokio_postgres::{NoTls, connect};
use ostler_store::Store;
use ostler_store::calls::{Enqueued, Finished, NewTask, Replay, Report};
use ostler_store::transfer::Table;
use ostler_store::unique::Unique;
use ostler_store::views::TaskRef;
use ostler_testkit::{Ids, scratch};

use crate::fill::{LONG, QUEUE, claim, end, fill};
use crate::place::Place;

/// Columns that only the new store has: derived from others, or for live nodes.
const FOLLOWS: [(&str, &str); 8] = [
    ("task", "queue"),
    ("session", "expires_at"),
    ("session", "renewals"),
    ("session", "heart_pid"),
    ("session", "heart_since"),
    ("session", "heart_server"),
    ("session", "departed"),
    ("session", "host"),
];
/// Tables of the new store that are empty after a move.
const EMPTY: [&str; 8] =
    ["meta", "arrival", "commit_mark", "inbox", "lane_delta", "orders", "reservation", "worker"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_the_old_store_shows_the_new_one_shows_too_and_goes_on_with() {
    let folder = scratch();
    let place = Place::new(folder.path());
    let old = place.old().expect("the store opens");
    let filled = fill(&old, &place.clock).await;
    let held = claim(&old, filled.session, "many", 1).await;

    let moved = place.carry().await.expect("the store moves");
    assert_eq!(moved.tables.len(), Table::ALL.len(), "every table was compared");
    let rows =
        |table: Table| moved.tables.iter().find(|moved| moved.table == table).map_or(0, |moved| moved.rows);
    for table in Table::ALL {
        let expected = !matches!(table, Table::Freed | Table::UnusedKey);
        assert!(!expected || rows(table) > 0, "the test has something in {}", table.name());
    }
    let new = place.new_store().await.expect("the new store opens");
    // A connection that is already open can still read the old store.
    let (before, after) = (Picture::take(&old).await, Picture::take(&new).await);
    assert_eq!(before, after, "what the two stores show");

    // A node that worked on the old store is too late.
    for claimed in held {
        let report = Report {
            lease: claimed.lease,
            ran: None,
            outcome: Outcome::Success,
            output: None,
            reading: None,
        };
        assert_eq!(old.finish(vec![report]).await.expect("finish answers"), [Finished::LeaseLost]);
    }
    goes_on(&new, &filled, &place).await;
}

async fn goes_on(new: &dyn Store, filled: &crate::fill::Filled, place: &Place) {
    let ids = Ids::new(8);
    let node = ids.new_session("there", LONG);
    let session = node.id;
    new.join(node).await.expect("join answers");
    let state = async |task: TaskId| {
        let shown = new.show(TaskRef::Id(task)).await.expect("show answers").expect("the task is there");
        shown.task.state.name()
    };

    // A unique key that is taken stays taken.
    let mut again = ids.new_task(QUEUE, "send");
    again.unique = Some(Unique::new("letter"));
    assert_eq!(new.enqueue(vec![again]).await, Ok(vec![Enqueued::Existing(filled.unique)]));
    // A new task gets an unused number.
    let fresh = NewTask::new(ids.task(), QUEUE, "send", "{}");
    assert_eq!(new.enqueue(vec![fresh.clone()]).await, Ok(vec![Enqueued::Created(fresh.id)]));

    // Of three tasks with one key, one runs at once, and its completion frees the next. A task that waited for another is freed too.
    let mut keyed = Vec::new();
    let mut rounds = 0;
    loop {
        let claimed = claim(new, session, QUEUE, 100).await;
        if claimed.is_empty() {
            break;
        }
        rounds += 1;
        let of_key = |task: &TaskId| filled.keyed.contains(task);
        let together: Vec<TaskId> =
            claimed.iter().map(|claimed| claimed.lease.task()).filter(of_key).collect();
        assert!(together.len() <= 1, "at most one of the key runs at once: {together:?}");
        keyed.extend(together);
        for claimed in claimed {
            end(new, &ids, claimed.lease, Outcome::Success).await;
        }
    }
    assert_eq!(keyed, filled.keyed, "all of the key have run, in their order");
    assert!(rounds >= 3, "{rounds}");
    for task in [filled.awaited, filled.dependent, filled.unique, fresh.id] {
        assert_eq!(state(task).await, StateName::Completed, "{task}");
    }

    // A waiting retry runs when it is due, and a dead letter can be replayed with its steps.
    assert_eq!(state(filled.retried).await, StateName::Queued);
    new.replay(vec![filled.dead], Replay::default()).await.expect("replay answers");
    place.clock.advance(Duration::from_secs(1_800));
    new.renew(session, &[]).await.expect("renew answers");
    new.make_ready(1_000).await.expect("make_ready answers");
    for claimed in claim(new, session, QUEUE, 100).await {
        end(new, &ids, claimed.lease, Outcome::Success).await;
    }
    for task in [filled.retried, filled.dead] {
        assert_eq!(state(task).await, StateName::Completed, "{task}");
    }
    let shown = new.show(TaskRef::Id(filled.dead)).await.expect("show answers").expect("it is there");
    assert_eq!((shown.steps.len(), shown.attempts.len()), (2, 2), "its steps and both its attempts");
    // A task that the move handed back runs again here.
    let many = claim(new, session, "many", 1_000).await;
    assert!(many.iter().any(|claimed| claimed.lease.task() == filled.running), "it was handed back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_column_of_the_new_store_is_filled_or_named_here() {
    let folder = scratch();
    let place = Place::new(folder.path());
    drop(place.arrival().await);
    let (client, connection) = connect(&place.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let rows = client
        .query(
            "SELECT c.table_name::text, c.column_name::text FROM information_schema.columns c
                JOIN information_schema.tables t USING (table_schema, table_name)
             WHERE c.table_schema = $1 AND t.table_type = 'BASE TABLE'",
            &[&place.schema],
        )
        .await
        .expect("the columns");
    let there: BTreeSet<(String, String)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .filter(|(table, _): &(String, String)| !EMPTY.contains(&table.as_str()))
        .collect();
    let carried =
        Table::ALL.iter().flat_map(|table| table.columns().iter().map(|column| (table.name(), column.name)));
    let filled: BTreeSet<(String, String)> =
        carried.chain(FOLLOWS).map(|(table, column)| (table.to_owned(), column.to_owned())).collect();
    assert_eq!(there, filled);
}
