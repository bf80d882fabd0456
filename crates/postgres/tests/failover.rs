//! Failover: a node counts as dead before its lease has expired if its connection is gone and it does not reconnect. Each
//! test which shows that a node does *not* count as dead waits until another node, which exited at the same time, does.
//!
//! A program of its own: the time of a failover is measured, which no other tests should lengthen.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, SessionId, TaskId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Failover, Options, Postgres};
use ostler_store::calls::{Claim, ClaimAnswer, Fenced, Kinds, NewSession, NewTask, Renewed};
use ostler_store::{Error, Store};
use ostler_testkit::{Disk, MAX_WAIT, PrivatePostgres, Proxy, Twin, Voice};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The lease TTL of every node here. No test waits for it to expire.
const TTL: Duration = Duration::from_secs(600);
/// The time limit of a failover.
const MAX_FAILOVER: Duration = Duration::from_secs(5);
/// How long a node that lost its connection may take to reconnect.
const GRACE: Duration = Duration::from_secs(3);
/// The interval of a node's renewals and of its checks of the others.
const BEAT: Duration = Duration::from_secs(1);
const UPKEEP: Duration = Duration::from_millis(500);

const URL: &str = "FAILOVER_URL";
const SCHEMA: &str = "FAILOVER_SCHEMA";

const WATCHER: SessionId = session(1);
const NODE: SessionId = session(2);
/// The node that exits, and is found dead.
const CONTROL: SessionId = session(3);

const fn session(number: u128) -> SessionId {
    SessionId(Id::from_bits(number))
}

/// A node that joined and renewed once. It exits when this is dropped.
struct Node {
    store: Arc<Postgres>,
    session: SessionId,
    keeping: JoinSet<()>,
}

impl Node {
    async fn join(url: &str, schema: &str, session: SessionId) -> Self {
        Self::join_as(url, schema, session, Failover::Known).await
    }

    async fn join_as(url: &str, schema: &str, session: SessionId, failover: Failover) -> Self {
        let options = Options { schema: schema.to_owned(), connections: 2, failover, ..Options::default() };
        let store = Arc::new(Postgres::open(url, options).await.expect("the store opens"));
        let (name, version) = ("stable".to_owned(), "1".to_owned());
        let node = NewSession {
            id: session,
            name,
            host: "stable-1".to_owned(),
            pid: 1,
            version,
            ttl: TTL,
            settings: "{}".to_owned(),
        };
        assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
        let node = Self { store, session, keeping: JoinSet::new() };
        node.assert_alive().await;
        node
    }

    /// Renews like a node's heartbeat: periodically, and at once on a control signal.
    fn beats(mut self) -> Self {
        let (store, session) = (Arc::clone(&self.store), self.session);
        self.keeping.spawn(async move {
            loop {
                let mut news = store.control();
                news.arm();
                let _ = store.renew(session, &[]).await;
                let _ = timeout(BEAT, news.wait()).await;
            }
        });
        self
    }

    async fn assert_alive(&self) {
        let renewed = until_answered(async || self.store.renew(self.session, &[]).await).await;
        assert!(matches!(renewed, Renewed::Held { .. }), "{} is alive", self.session);
    }

    /// Checks the other nodes until one of them is found dead, and returns the dead sessions.
    async fn finds_dead(&self) -> Vec<SessionId> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            let found = self.store.expire(100).await.map(|expired| expired.sessions).unwrap_or_default();
            if !found.is_empty() {
                return found;
            }
            assert!(Instant::now() < until, "no node is found dead");
            sleep(UPKEEP).await;
        }
    }
}

/// Retries until it succeeds: a server that was just restarted accepts no connections.
async fn until_answered<T>(mut say: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + MAX_WAIT;
    loop {
        match say().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient() && Instant::now() < until, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn client(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The pid of the server process behind a node's heartbeat, if it is known.
async fn heartbeat(client: &Client, schema: &str, session: SessionId) -> Option<i32> {
    let asked = format!("SELECT heart_pid FROM {schema}.session WHERE uid = '{:032x}'", session.0.bits());
    client.query_one(&asked, &[]).await.expect("the session is there").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_node_that_is_killed_runs_elsewhere_in_seconds() {
    let url = PrivatePostgres::shared().url();
    let watcher = Node::join(&url, "killed", WATCHER).await.beats();
    let task = NewTask::new(TaskId(Id::from_bits(1)), "mail", "send", "{}");
    watcher.store.enqueue(vec![task]).await.expect("enqueue answers");
    let variables = [(URL, OsStr::new(&url)), (SCHEMA, OsStr::new("killed"))];
    let mut twin = Twin::start("the_part_of_a_node_that_is_killed", &variables);
    twin.expect("works");
    assert_eq!(claimed(&watcher).await, 0, "the other one has it");
    let killed = Instant::now();
    twin.kill();
    assert_eq!(watcher.finds_dead().await, [NODE]);
    assert_eq!(claimed(&watcher).await, 1);
    let took = killed.elapsed();
    println!("failover after a kill: {} ms", took.as_millis());
    assert!(took >= GRACE, "a node has time to come back, and this took {took:?}");
    assert!(took <= MAX_FAILOVER, "it took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of the test above, in a process of its own"]
async fn the_part_of_a_node_that_is_killed() {
    let said = |name| std::env::var(name).expect("the test says where");
    let node = Node::join(&said(URL), &said(SCHEMA), NODE).await.beats();
    assert_eq!(claimed(&node).await, 1);
    Voice::say("works");
    let _ = tokio::task::spawn_blocking(Voice::hear).await;
}

async fn claimed(node: &Node) -> usize {
    let claim = Claim { session: node.session, queue: "mail".to_owned(), kinds: Kinds::Any, limit: 10 };
    match node.store.claim(claim).await.expect("claim answers") {
        ClaimAnswer::Tasks { tasks, .. } => tasks.len(),
        ClaimAnswer::SessionEnded => panic!("the node is alive"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_says_nothing_over_a_connection_that_stands_is_alive() {
    let url = PrivatePostgres::shared().url();
    let watcher = Node::join(&url, "quiet", WATCHER).await.beats();
    let quiet = Node::join(&url, "quiet", NODE).await;
    drop(Node::join(&url, "quiet", CONTROL).await);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    quiet.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_connection_is_ended_opens_another_and_keeps_its_work() {
    let url = PrivatePostgres::shared().url();
    let watcher = Node::join(&url, "blip", WATCHER).await.beats();
    let node = Node::join(&url, "blip", NODE).await.beats();
    let control = Node::join(&url, "blip", CONTROL).await;
    let client = client(&url).await;
    let before = heartbeat(&client, "blip", NODE).await.expect("it is known");
    let ended = client.query_one("SELECT pg_terminate_backend($1)", &[&before]).await.expect("it is asked");
    assert!(ended.get::<_, bool>(0), "the connection was there");
    drop(control);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    let after = heartbeat(&client, "blip", NODE).await.expect("it is known");
    assert_ne!(before, after, "the heartbeat has another connection");
    node.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_connection_is_news_for_the_node() {
    let url = PrivatePostgres::shared().url();
    let node = Node::join(&url, "news", NODE).await;
    let client = client(&url).await;
    let mut news = node.store.control();
    news.arm();
    let pid = heartbeat(&client, "news", NODE).await.expect("it is known");
    client.query_one("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("it is asked");
    timeout(MAX_WAIT, news.wait()).await.expect("the node is asked to renew");
    node.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_renews_at_the_last_moment_is_alive() {
    let url = PrivatePostgres::shared().url();
    let watcher = Node::join(&url, "last", WATCHER).await.beats();
    let node = Node::join(&url, "last", NODE).await;
    let mut client = client(&url).await;
    let pid = heartbeat(&client, "last", NODE).await.expect("it is known");
    // A transaction that ends the session has to wait for this.
    let held = client.transaction().await.expect("a transaction");
    let name = format!("ostler last: session {NODE}");
    held.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&name]).await.expect("a lock");
    held.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("it is asked");
    let until = Instant::now() + MAX_WAIT;
    let ended = loop {
        let mut ends = Box::pin(watcher.store.expire(100));
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND pg_backend_pid() = ANY(pg_blocking_pids(pid))";
        let waiting = async {
            while held.query_one(waits, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let finished = tokio::select! {
            ended = &mut ends => Some(ended),
            () = waiting => None,
        };
        assert!(Instant::now() < until, "no expiry wants to end the session");
        match finished {
            Some(ended) => assert_eq!(ended.expect("expire answers").sessions, []),
            None => break ends,
        }
        sleep(UPKEEP).await;
    };
    node.assert_alive().await;
    held.commit().await.expect("the lock is given back");
    assert_eq!(ended.await.expect("expire answers").sessions, []);
    node.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_server_no_node_is_known_to_be_dead() {
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let url = server.url();
    let watcher = Node::join(&url, "ostler", WATCHER).await.beats();
    // The node does not renew, and its connection is gone with the server.
    let silent = Node::join(&url, "ostler", NODE).await;
    server.stop();
    server.start_again();
    watcher.assert_alive().await;
    drop(Node::join(&url, "ostler", CONTROL).await);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    silent.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_drops_all_connections_moves_no_work() {
    let server = PrivatePostgres::start(Disk::Unsynced);
    let url = server.url();
    let watcher = Node::join(&url, "ostler", WATCHER).await.beats();
    let node = Node::join(&url, "ostler", NODE).await.beats();
    let client = client(&url).await;
    // The server cannot trust its shared memory after that: it closes all connections, and continues as the same server.
    let victim: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a number").get(0);
    let killed = std::process::Command::new("kill").args(["-9", &victim.to_string()]).status();
    assert!(killed.expect("kill can be started").success());
    watcher.assert_alive().await;
    let late = until_answered(async || {
        let options = Options { connections: 2, ..Options::default() };
        Postgres::open(&url, options).await.map(drop)
    });
    late.await;
    drop(Node::join(&url, "ostler", CONTROL).await);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    node.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_the_lease_alone_decides() {
    let server = PrivatePostgres::shared();
    let (pooler, plain) = (Proxy::pooling(server).await, Proxy::start(server).await);
    let watcher = Node::join(&server.url(), "pooled", WATCHER).await.beats();
    let node = Node::join(&pooler.url(), "pooled", NODE).await;
    let control = Node::join(&plain.url(), "pooled", CONTROL).await;
    let client = client(&server.url()).await;
    assert_eq!(heartbeat(&client, "pooled", NODE).await, None);
    assert!(heartbeat(&client, "pooled", CONTROL).await.is_some());
    drop((node, control));
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    assert!(is_open(&client, "pooled", NODE).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_node_is_dead_when_its_lease_has_run_out() {
    let url = PrivatePostgres::shared().url();
    let watcher = Node::join(&url, "strict", WATCHER).await.beats();
    drop(Node::join_as(&url, "strict", NODE, Failover::Strict).await);
    drop(Node::join(&url, "strict", CONTROL).await);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    let client = client(&url).await;
    assert!(is_open(&client, "strict", NODE).await);
    let over = format!("UPDATE strict.session SET expires_at = 0 WHERE uid = '{:032x}'", NODE.0.bits());
    client.execute(&over, &[]).await.expect("its lease runs out");
    assert_eq!(watcher.finds_dead().await, [NODE]);
}

async fn is_open(client: &Client, schema: &str, session: SessionId) -> bool {
    let asked =
        format!("SELECT ended_at IS NULL FROM {schema}.session WHERE uid = '{:032x}'", session.0.bits());
    client.query_one(&asked, &[]).await.expect("the session is there").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_see_the_connections_of_others_sees_that_they_are_gone() {
    let url = PrivatePostgres::shared().url();
    let alive = Node::join(&url, "unseen", NODE).await;
    let client = client(&url).await;
    client
        .batch_execute(
            "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA unseen TO guest;
             GRANT ALL ON ALL TABLES IN SCHEMA unseen TO guest; GRANT ALL ON ALL SEQUENCES IN SCHEMA unseen TO guest",
        )
        .await
        .expect("there is a guest");
    let watcher = Node::join(&url.replace("ostler@", "guest@"), "unseen", WATCHER).await.beats();
    drop(Node::join(&url, "unseen", CONTROL).await);
    assert_eq!(watcher.finds_dead().await, [CONTROL]);
    alive.assert_alive().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heartbeat_needs_nothing_of_the_runtime_that_asks_for_it() {
    let node = Node::join(&PrivatePostgres::shared().url(), "threads", NODE).await;
    let store = Arc::clone(&node.store);
    // Like a node's heartbeat: the runtime has only a timer.
    let beat = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(store.renew(NODE, &[]))
    });
    let renewed =
        tokio::task::spawn_blocking(|| beat.join().expect("the beat ends")).await.expect("it is waited for");
    assert!(matches!(renewed, Ok(Renewed::Held { .. })));
}
