//! Tasks enqueued within a foreign transaction (the inbox): they exist if and only if it commits.

use std::sync::Arc;
use std::time::Duration;

use ostler_core::{Id, Outcome, SessionId, State, StateName, TaskId, Timestamp, Wait, WorkerId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, NewSession, NewTask, QueueChange, Ran, Report};
use ostler_store::unique::Unique;
use ostler_store::views::{Filter, TaskRef};
use ostler_store::{ErrorKind, Store};
use ostler_testkit::{Ids, MAX_WAIT, PrivatePostgres};

const NODE: SessionId = SessionId(Id::from_bits(99));

/// A store in its own schema, and a foreign connection to the same database.
async fn scene(schema: &str) -> (Arc<Postgres>, Client) {
    let url = PrivatePostgres::shared().url();
    let options = Options { schema: schema.to_owned(), connections: 3, ..Options::default() };
    let store = Postgres::open(&url, options).await.expect("the store opens");
    let (client, connection) = connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    (Arc::new(store), client)
}

fn draft(bits: u128) -> NewTask {
    NewTask::new(TaskId(Id::from_bits(bits)), "mail", "send", "{}")
}

async fn state(store: &Postgres, id: TaskId) -> Option<StateName> {
    store.show(TaskRef::Id(id)).await.expect("show answers").map(|shown| shown.task.state.name())
}

async fn claim(store: &Postgres, limit: usize) -> Vec<ostler_store::calls::Claimed> {
    let claim = Claim { session: NODE, queue: "mail".to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks,
        ClaimAnswer::SessionEnded => panic!("the node is alive"),
    }
}

async fn join(store: &Postgres) {
    let node = NewSession { id: NODE, ..Ids::new(9).new_session("stable", MAX_WAIT) };
    store.join(node).await.expect("join answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_exists_if_and_only_if_the_callers_transaction_commits() {
    let (store, mut client) = scene("tx_commit").await;
    let (kept, gone) = (draft(1), draft(2));
    let ids = [kept.id, gone.id];
    client.batch_execute("CREATE TABLE public.orders(id integer)").await.expect("a table");
    let transaction = client.transaction().await.expect("a transaction");
    transaction.execute("INSERT INTO public.orders VALUES(1)", &[]).await.expect("an order");
    store.enqueue_in(&transaction, vec![kept]).await.expect("it is taken");
    assert_eq!(state(&store, ids[0]).await, None, "it is invisible before the commit");
    transaction.commit().await.expect("it commits");
    assert_eq!(state(&store, ids[0]).await, Some(StateName::Queued));
    let transaction = client.transaction().await.expect("a transaction");
    store.enqueue_in(&transaction, vec![gone]).await.expect("it is taken");
    transaction.rollback().await.expect("it is rolled back");
    assert_eq!(state(&store, ids[1]).await, None);
    let listed = store.list(Filter::default(), None, 10).await.expect("list answers");
    assert_eq!(listed.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [ids[0]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_from_sql_is_claimed_run_and_shown_like_any_other() {
    let (store, client) = scene("tx_sql").await;
    join(&store).await;
    let row = client
        .query_one(
            "SELECT tx_sql.enqueue('mail', 'send', '{\"to\": \"ann\"}', priority => 7, unique_key => 'order 1')",
            &[],
        )
        .await
        .expect("it is enqueued");
    let id: TaskId = row.get::<_, String>(0).parse().expect("it answers with an id");
    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.iter().map(|claimed| claimed.lease.task()).collect::<Vec<_>>(), [id]);
    assert_eq!((claimed[0].payload.as_str(), claimed[0].priority.points()), ("{\"to\": \"ann\"}", 7));
    let ran = Some(Ran { worker: WorkerId(Id::from_bits(3)), took: Duration::from_millis(1) });
    let report = |lease| Report { lease, ran, outcome: Outcome::Success, output: None, reading: None };
    store.finish(claimed.into_iter().map(|claimed| report(claimed.lease)).collect()).await.expect("finish");
    assert_eq!(state(&store, id).await, Some(StateName::Completed));
    // A repeated key finds the existing task.
    client
        .query_one("SELECT tx_sql.enqueue('mail', 'send', '{}', unique_key => 'order 1')", &[])
        .await
        .expect("it is enqueued");
    let which = TaskRef::Key { queue: "mail".to_owned(), key: "order 1".to_owned() };
    assert_eq!(store.show(which).await.expect("show answers").map(|shown| shown.task.id), Some(id));
    assert_eq!(claim(&store, 10).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_made_by_the_function_rise_with_time_and_none_comes_twice() {
    let (_store, client) = scene("tx_ids").await;
    let mut ids: Vec<String> = Vec::new();
    for row in client.query("SELECT tx_ids.new_id() FROM generate_series(1, 500)", &[]).await.expect("ids") {
        ids.push(row.get(0));
    }
    assert!(ids.iter().all(|id| id.parse::<TaskId>().is_ok()));
    let made = |id: &String| id.parse::<TaskId>().expect("an id").0.bits() >> 80;
    assert!(ids.is_sorted_by_key(made), "the time comes first");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_repeated_adds_nothing() {
    let (store, client) = scene("tx_repeat").await;
    let id = "01JC8Z0Q4M9T7N3V5X1B2D6F8H";
    for _ in 0..2 {
        let row = client.query_one("SELECT tx_repeat.enqueue('mail', 'send', id => $1)", &[&id]).await;
        assert_eq!(row.expect("it is taken").get::<_, String>(0), id);
    }
    assert_eq!(store.list(Filter::default(), None, 10).await.expect("list answers").tasks.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_function_refuses_what_breaks_a_rule_and_says_what_would_be_right() {
    let (store, client) = scene("tx_refuse").await;
    for (call, field) in [
        ("tx_refuse.enqueue('', 'send')", "queue"),
        ("tx_refuse.enqueue(NULL, 'send')", "queue"),
        ("tx_refuse.enqueue(E'a\\nb', 'send')", "queue"),
        ("tx_refuse.enqueue('mail', repeat('x', 129))", "kind"),
        ("tx_refuse.enqueue('mail', 'send', to_json(repeat('x', 1048577)))", "payload"),
        ("tx_refuse.enqueue('mail', 'send', priority => 101)", "priority"),
        ("tx_refuse.enqueue('mail', 'send', unique_key => '')", "unique_key"),
        ("tx_refuse.enqueue('mail', 'send', limit_key => repeat('x', 513))", "limit_key"),
        ("tx_refuse.enqueue('mail', 'send', id => 'x')", "id"),
        ("tx_refuse.enqueue('mail', 'send', unique_key => 'a', if_taken => 'take')", "if_taken"),
        ("tx_refuse.enqueue('mail', 'send', key_for => '0 s')", "key_for"),
        ("tx_refuse.enqueue('mail', 'send', unique_key => 'a', key_until => 'x')", "key_until is x"),
        ("tx_refuse.enqueue('mail', 'send', key_until => 'end', key_for => '1 s')", "key_until and key_for"),
        ("tx_refuse.enqueue('mail', 'send', timeout => '-1 s')", "key_for and timeout"),
        ("tx_refuse.enqueue('mail', 'send', after => '{01JC8Z0Q4M9T7N3V5X1B2D6F8H}')", "after"),
        ("tx_refuse.enqueue('mail', 'send', after => '{x}')", "id"),
        ("tx_refuse.enqueue('mail', 'send', if_failed => 'x')", "if_failed"),
        ("tx_refuse.enqueue('mail', 'send', attempts => 0)", "attempts"),
        ("tx_refuse.enqueue('mail', 'send', cost => 1000001)", "cost"),
        ("tx_refuse.enqueue('mail', 'send', folder => repeat('x', 4097))", "folder"),
        ("tx_refuse.cancel('x')", "id"),
        ("tx_refuse.retry('')", "id"),
    ] {
        let refused = client.query_one(&format!("SELECT {call}"), &[]).await.expect_err(call);
        let said = refused.as_db_error().expect("the server says why").message().to_owned();
        assert!(said.starts_with(field), "{call}: {said}");
    }
    assert!(store.list(Filter::default(), None, 10).await.expect("list answers").tasks.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_from_sql_may_be_held_until_the_end_of_its_task() {
    let (store, client) = scene("tx_key_until").await;
    let enqueue = async || {
        let sql = "SELECT tx_key_until.enqueue('mail', 'send', unique_key => 'doc', key_until => 'end')";
        let id: String = client.query_one(sql, &[]).await.expect("it is enqueued").get(0);
        id.parse::<TaskId>().expect("an id")
    };
    let (first, again) = (enqueue().await, enqueue().await);
    assert_eq!((state(&store, first).await, state(&store, again).await), (Some(StateName::Queued), None));
    store.cancel(vec![first]).await.expect("cancel answers");
    let second = enqueue().await;
    assert_eq!(state(&store, second).await, Some(StateName::Queued));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_function_takes_all_that_a_submission_takes() {
    let (store, client) = scene("tx_all").await;
    let first = TaskId(Id::from_bits(1));
    store.enqueue(vec![draft(1)]).await.expect("it is enqueued");
    let sql = format!(
        "SELECT tx_all.enqueue('mail', 'send', '{{\"a\":\"\\u0000\"}}', priority => -7, run_at => to_timestamp(9000000000),
            unique_key => 'u', key_for => '1 hour', if_taken => 'reject', limit_key => 'l', cost => 3, after => ARRAY['{first}'],
            if_failed => 'wait', attempts => 4, timeout => '90 seconds', not_after => to_timestamp(9000000001),
            deadline => to_timestamp(9000000002), folder => '/srv', id => '01JC8Z0Q4M9T7N3V5X1B2D6F8H')"
    );
    let id: TaskId = client
        .query_one(&sql, &[])
        .await
        .expect("it is enqueued")
        .get::<_, String>(0)
        .parse()
        .expect("an id");
    let shown = store.show(TaskRef::Id(id)).await.expect("show answers").expect("it is there");
    let task = shown.task;
    assert_eq!(id.to_string(), "01JC8Z0Q4M9T7N3V5X1B2D6F8H");
    assert_eq!((task.payload.as_str(), task.priority.points(), task.cost), ("{\"a\":\"\\u0000\"}", -7, 3));
    assert_eq!((task.unique_key.as_deref(), task.limit_key.as_deref()), (Some("u"), Some("l")));
    assert_eq!((task.overrides.attempts, task.overrides.timeout), (Some(4), Some(Duration::from_secs(90))));
    let at = |seconds: i64| Some(Timestamp::from_millis(seconds * 1_000));
    assert_eq!((task.not_after, task.deadline), (at(9_000_000_001), at(9_000_000_002)));
    assert_eq!((task.folder.as_deref(), shown.after), (Some("/srv"), vec![first]));
    let State::Queued { why, run_at, .. } = task.state else { panic!("it waits") };
    assert_eq!((why, Some(run_at)), (Wait::Dependency, at(9_000_000_000)));
    // `wait`: the failure of the first does not cancel it. `reject` and the duration hold for the key.
    store.cancel(vec![first]).await.expect("cancel answers");
    assert_eq!(state(&store, id).await, Some(StateName::Queued));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_and_retry_happen_if_and_only_if_the_callers_transaction_commits() {
    let (store, mut client) = scene("tx_requests").await;
    store.enqueue(vec![draft(1)]).await.expect("it is enqueued");
    let id = TaskId(Id::from_bits(1));
    let sql = |function: &str| format!("SELECT tx_requests.{function}('{id}')");
    for (function, before, after) in [
        ("cancel", StateName::Queued, StateName::Cancelled),
        ("retry", StateName::Cancelled, StateName::Queued),
    ] {
        let transaction = client.transaction().await.expect("a transaction");
        assert!(transaction.query_one(&sql(function), &[]).await.expect("it answers").get::<_, bool>(0));
        transaction.rollback().await.expect("it is rolled back");
        assert_eq!(state(&store, id).await, Some(before), "{function} was rolled back");
        assert!(client.query_one(&sql(function), &[]).await.expect("it answers").get::<_, bool>(0));
        assert_eq!(state(&store, id).await, Some(after), "{function}");
    }
    let answer = async |sql: &str| client.query_one(sql, &[]).await.expect("it answers").get::<_, bool>(0);
    assert!(!answer(&sql("retry")).await, "it has not ended");
    assert!(
        !answer("SELECT tx_requests.cancel('01JC8Z0Q4M9T7N3V5X1B2D6F8H')").await,
        "there is no such task"
    );
    // One that no call on the store has seen yet.
    let new =
        "SELECT tx_requests.cancel(tx_requests.enqueue('mail', 'send', id => '01JC8Z0Q4M9T7N3V5X1B2D6F8H'))";
    assert!(answer(new).await);
    let new = "01JC8Z0Q4M9T7N3V5X1B2D6F8H".parse().expect("an id");
    assert_eq!(state(&store, new).await, Some(StateName::Cancelled));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_full_queue_has_no_room_for_comes_in_when_it_has() {
    let (store, client) = scene("tx_full").await;
    join(&store).await;
    store.configure("mail", vec![QueueChange::Limit(Some(1))]).await.expect("configure answers");
    for _ in 0..2 {
        client.query_one("SELECT tx_full.enqueue('mail', 'send')", &[]).await.expect("it is enqueued");
    }
    let queued = async |store: &Postgres| {
        let survey = store.survey().await.expect("survey answers");
        survey.lanes.iter().map(|lane| lane.counts.queued).sum::<u64>()
    };
    assert_eq!(queued(&store).await, 1);
    let again = store.make_ready(10).await.expect("make_ready answers");
    assert!(again.next.is_some(), "it is looked at again");
    assert_eq!(queued(&store).await, 1);
    assert_eq!(claim(&store, 1).await.len(), 1);
    store.make_ready(10).await.expect("make_ready answers");
    assert_eq!(queued(&store).await, 1, "there was room");
    assert_eq!(claim(&store, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_transaction_does_not_hold_up_others() {
    let (store, mut client) = scene("tx_long").await;
    join(&store).await;
    let transaction = client.transaction().await.expect("a transaction");
    let mut keyed = draft(1);
    keyed.limit_key = Some("k".to_owned());
    keyed.unique = Some(Unique::new("u"));
    let id = keyed.id;
    store.enqueue_in(&transaction, vec![keyed.clone()]).await.expect("it is taken");
    // The same queue continues, with its keys and settings.
    let other = NewTask { id: TaskId(Id::from_bits(2)), ..keyed };
    let going_on = async {
        store.configure("mail", vec![QueueChange::KeyConcurrency(Some(1))]).await.expect("configure answers");
        store.enqueue(vec![other.clone()]).await.expect("enqueue answers");
        claim(&store, 10).await.len()
    };
    assert_eq!(tokio::time::timeout(MAX_WAIT, going_on).await, Ok(1));
    transaction.commit().await.expect("it commits");
    assert_eq!(state(&store, id).await, None, "the other one has the key by now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_woken_by_a_commit_from_sql() {
    let (store, client) = scene("tx_wake").await;
    let mut wakeups = store.wakeups();
    wakeups.arm();
    client.query_one("SELECT tx_wake.enqueue('mail', 'send')", &[]).await.expect("it is enqueued");
    assert_eq!(tokio::time::timeout(MAX_WAIT, wakeups.wait()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_may_wait_for_others_and_not_for_what_is_not_there() {
    let (store, mut client) = scene("tx_after").await;
    let (first, mut second, mut third) = (draft(1), draft(2), draft(3));
    second.after = vec![first.id];
    third.after = vec![TaskId(Id::from_bits(77))];
    let waits = second.id;
    let transaction = client.transaction().await.expect("a transaction");
    store.enqueue_in(&transaction, vec![first, second]).await.expect("they are taken");
    let refused = store.enqueue_in(&transaction, vec![third]).await.expect_err("there is no such task");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    transaction.commit().await.expect("it commits");
    let shown = store.show(TaskRef::Id(waits)).await.expect("show answers").expect("it is there");
    assert!(matches!(shown.task.state, State::Queued { why: Wait::Dependency, .. }));
}
