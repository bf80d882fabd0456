//! What the server makes of the statements of the store.

use ostler_core::{Id, SessionId, TaskId};
use ostler_postgres::{Options, Postgres};
use ostler_store::Store;
use ostler_store::calls::{Claim, Fenced, Kinds, NewSession, NewTask, Prune, QueueChange, Retention};
use ostler_testkit::{Disk, MAX_WAIT, PrivatePostgres};

const NODE: SessionId = SessionId(Id::from_bits(9));

/// The server tells every plan, and what it compiled for it.
const TELLING: &str = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_analyze=on";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_is_compiled_which_takes_a_hundred_times_as_long_as_to_carry_it_out() {
    let server = PrivatePostgres::start(Disk::Unsynced);
    let url = format!("host={} user=ostler dbname=ostler options='{TELLING}'", server.folder().display());
    let store = Postgres::open(&url, Options::default()).await.expect("the store opens");
    let (name, version) = ("stable".to_owned(), "1".to_owned());
    let node = NewSession { id: NODE, name, pid: 1, version, ttl: MAX_WAIT, settings: "{}".to_owned() };
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    // A queue whose tasks are counted.
    store.configure("mail", vec![QueueChange::Limit(Some(10))]).await.expect("configure answers");
    let task = NewTask::new(TaskId(Id::from_bits(1)), "mail", "send", "{}");
    store.enqueue(vec![task]).await.expect("enqueue answers");
    let claim = Claim { session: NODE, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 10 };
    store.claim(claim).await.expect("claim answers");
    store.prune(Prune::Retention(Retention::default())).await.expect("prune answers");
    store.survey().await.expect("survey answers");
    let log = std::fs::read_to_string(server.folder().join("server.log")).expect("the server has a log");
    for told in ["DELETE FROM ostler.session WHERE", "SELECT sum(queued) FROM ostler.lane "] {
        assert!(log.contains(told), "the plan of {told} is told");
    }
    let compiled: Vec<&str> = log.split("Query Text: ").filter(|plan| plan.contains("JIT:")).collect();
    assert!(compiled.is_empty(), "{compiled:#?}");
}
