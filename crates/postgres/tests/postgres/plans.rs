//! Query plans of the store's statements.

use ostler_core::{Id, OnConflict, SessionId, TaskId};
use ostler_postgres::tokio_postgres::{NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{Claim, Fenced, Kinds, NewSession, NewTask, Prune, QueueChange, Replay, Retention};
use ostler_store::unique::Unique;
use ostler_store::{Stats, Store, Totals};
use ostler_testkit::{Ids, MAX_WAIT, PrivatePostgres};

const NODE: SessionId = SessionId(Id::from_bits(9));

/// Makes the server log every plan, including JIT compilation.
const TELLING: &str = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_analyze=on";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_is_compiled_which_takes_a_hundred_times_as_long_as_to_carry_it_out() {
    let server = PrivatePostgres::shared();
    let url = format!("host={} user=ostler dbname=ostler options='{TELLING}'", server.folder().display());
    let options = Options { schema: "planned".to_owned(), ..Options::default() };
    let store = Postgres::open(&url, options).await.expect("the store opens");
    let node = NewSession { id: NODE, ..Ids::new(9).new_session("stable", MAX_WAIT) };
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    // A queue with a limit, whose tasks are counted.
    store.configure("mail", vec![QueueChange::Limit(Some(10))]).await.expect("configure answers");
    let task = NewTask::new(TaskId(Id::from_bits(1)), "mail", "send", "{}");
    store.enqueue(vec![task]).await.expect("enqueue answers");
    let claim = Claim { session: NODE, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 10 };
    store.claim(claim).await.expect("claim answers");
    store.prune(Prune::Retention(Retention::default())).await.expect("prune answers");
    store.survey().await.expect("survey answers");
    let log = std::fs::read_to_string(server.folder().join("server.log")).expect("the server has a log");
    for statement in [r#"DELETE FROM "planned".session WHERE"#, r#"SELECT sum(queued) FROM "planned".lane "#]
    {
        assert!(log.contains(statement), "the plan of {statement} is logged");
    }
    let compiled: Vec<&str> = log.split("Query Text: ").filter(|plan| plan.contains("JIT:")).collect();
    assert!(compiled.is_empty(), "{compiled:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_summed_up_and_stay_as_they_were() {
    let url = PrivatePostgres::shared().url();
    let options = Options { schema: "summed_up".to_owned(), ..Options::default() };
    let store = Postgres::open(&url, options).await.expect("the store opens");
    let (client, connection) = connect(&url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    let draft = |bits: u128, kind: &str| NewTask::new(TaskId(Id::from_bits(bits)), "mail", kind, "{}");
    for bits in 1..=150 {
        store.enqueue(vec![draft(bits, "send")]).await.expect("enqueue answers");
    }
    // One task that alternates between kinds: its departure and its arrival are two rows of one transaction, in either
    // order.
    for (bits, kind) in (151..=230).zip(["sort", "send"].into_iter().cycle()) {
        let unique = Some(Unique { on_conflict: OnConflict::Replace, ..Unique::new("one") });
        store.enqueue(vec![NewTask { unique, ..draft(bits, kind) }]).await.expect("enqueue answers");
    }
    store.cancel(vec![TaskId(Id::from_bits(1))]).await.expect("cancel answers");
    store.replay(vec![TaskId(Id::from_bits(1))], Replay::default()).await.expect("replay answers");
    let rows =
        "SELECT (SELECT count(*) FROM summed_up.lane_delta), (SELECT max(seq) FROM summed_up.lane_delta),
        (SELECT max(high_water) FROM summed_up.lane)";
    let row = client.query_one(rows, &[]).await.expect("an answer");
    let (left, made, kept): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    assert!(made > 256 && left < made - 200, "{left} of {made} rows are left");
    assert_eq!(kept, 151, "the sum of all kinds, after each transaction");
    let stats = Stats::of(&store.survey().await.expect("survey answers"), Some("mail"));
    assert_eq!((stats.tasks.queued, stats.queue_high_water), (151, 151));
    let expected = Totals { submitted: 151, cancelled: 1, replayed: 1, ..Totals::default() };
    assert_eq!(stats.totals, expected);
}
