//! Presence in a real Redis: monitors see the node; whatever happens to Redis, work goes on and presence recovers.

#![cfg(feature = "redis")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{SessionId, StateName, TaskId};
use ostler_exec::{Inline, TaskError};
use ostler_runtime::{
    LeaseTimes, Node, NodeConfig, NodeDeps, PoolConfig, Presence, PresenceStatus, PresenceTimes,
    RedisAddress, RedisFault,
};
use ostler_store::views::TaskRef;
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Heard, Ids, MAX_WAIT, PrivateRedis, Proxy, Signal, TempStore, Weather};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

const QUEUE: &str = "documents";
const KIND: &str = "read";
const CHANNEL: &str = "ostler:events";
/// Short, so that tests are quick.
const EVERY: Duration = Duration::from_millis(100);
const TTL: Duration = Duration::from_secs(600);
/// An exiting node waits at most a second for Redis. The rest is slack for a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A store, and a node with presence.
struct Scene {
    here: TempStore,
    ids: Arc<Ids>,
    node: Node,
    standing: watch::Receiver<PresenceStatus>,
    /// Signalled by each task of this node that starts.
    began: Signal,
    /// Opened to end the waiting tasks.
    gate: watch::Sender<bool>,
}

impl Scene {
    async fn start(url: &str) -> Self {
        let (here, ids) = (TempStore::real(), Arc::new(Ids::new(17)));
        let (began, gate) = (Signal::new("a task began"), watch::Sender::new(true));
        let (emits, opens) = (began.clone(), gate.clone());
        let handlers = Inline::new().handle(KIND, move |_, _| {
            emits.emit();
            let mut open = opens.subscribe();
            async move {
                let _ = open.wait_for(|open| *open).await;
                Ok::<_, TaskError>(None)
            }
        });
        let address = RedisAddress::parse(url).expect("it is an address");
        let presence = Presence::new(address).beating(PresenceTimes { interval: EVERY, ttl: TTL });
        let standing = presence.standing();
        let makes = Arc::clone(&ids);
        let parts = NodeDeps {
            store: here.store(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(move || makes.task().0),
        };
        let pool =
            PoolConfig { grace: Duration::from_secs(2), ..PoolConfig::new(QUEUE, Arc::new(handlers), 2) };
        let lease = LeaseTimes { ttl: MAX_WAIT, heartbeat: Duration::from_millis(100), poll: MAX_WAIT };
        let config = NodeConfig { lease, presence: Some(presence), ..NodeConfig::new("node", vec![pool]) };
        let node = Node::start(parts, config).await.expect("the node starts");
        Self { here, ids, node, standing, began, gate }
    }

    async fn add(&self) -> TaskId {
        let task = self.ids.new_task(QUEUE, KIND);
        let id = task.id;
        self.here.store().enqueue(vec![task]).await.expect("it is enqueued");
        id
    }

    /// Submits a task and waits for its completion.
    async fn works(&self) {
        let id = self.add().await;
        let done = async {
            loop {
                let shown = self.here.store().show(TaskRef::Id(id)).await.expect("the store answers");
                if shown.is_some_and(|detail| detail.task.state.name() == StateName::Completed) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(MAX_WAIT, done).await.expect("work goes on");
    }

    async fn until(&mut self, so: impl FnMut(&PresenceStatus) -> bool) -> PresenceStatus {
        let waited = tokio::time::timeout(MAX_WAIT, self.standing.wait_for(so)).await;
        waited.expect("it comes to this in time").expect("the node is up").clone()
    }

    async fn until_known(&mut self) {
        self.until(|standing| *standing == PresenceStatus::Known).await;
    }

    async fn until_away(&mut self) -> RedisFault {
        match self.until(|standing| matches!(standing, PresenceStatus::Away(_))).await {
            PresenceStatus::Away(fault) => fault,
            PresenceStatus::Known | PresenceStatus::Untold => unreachable!("it was waited for"),
        }
    }

    /// Drains the node and asserts that Redis does not delay it.
    async fn goes(self) {
        let began = Instant::now();
        self.node.drain(MAX_WAIT).await;
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

fn key(node: SessionId) -> String {
    format!("ostler:node:{node}")
}

fn read(event: &str) -> Value {
    serde_json::from_str(event).expect("an event is JSON")
}

/// The next event of a type, skipping others.
fn hears(heard: &Heard, sort: &str) -> Value {
    let until = Instant::now() + MAX_WAIT;
    loop {
        let event = read(&heard.next());
        if event["type"] == sort {
            return event;
        }
        assert!(Instant::now() < until, "no {sort} is heard");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_online_beats_shows_its_work_and_goes() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let scene = Scene::start(&redis.url()).await;
    let node = scene.node.session();
    let first = read(&heard.next());
    assert_eq!(
        (&first["type"], &first["node"]),
        (&"node_online".into(), &node.to_string().into()),
        "{first}"
    );
    assert_eq!(read(&heard.next())["type"], "node_heartbeat");
    scene.gate.send_replace(false);
    let task = scene.add().await;
    scene.began.wait().await;
    let until = Instant::now() + MAX_WAIT;
    let (event, execution) = loop {
        let event = hears(&heard, "node_heartbeat");
        let workers = event["pools"][0]["workers"].as_array().expect("a list").clone();
        if let Some(busy) = workers.iter().find(|worker| worker["state"] == "busy") {
            break (event, busy["execution"].clone());
        }
        assert!(Instant::now() < until, "no worker is busy: {event}");
    };
    let pool = &event["pools"][0];
    assert_eq!(
        (&pool["name"], &pool["size"], &pool["busy"]),
        (&QUEUE.into(), &2.into(), &1.into()),
        "{event}"
    );
    assert_eq!(execution["task"], task.to_string());
    assert!(execution["started_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{execution}");
    let kept = read(&redis.ask(&["GET", &key(node)]));
    assert_eq!(
        (&kept["type"], &kept["node"]),
        (&"node_heartbeat".into(), &node.to_string().into()),
        "{kept}"
    );
    let left: u128 = redis.ask(&["PTTL", &key(node)]).parse().expect("it expires");
    assert!(left > 0 && left <= TTL.as_millis(), "{left}");
    scene.gate.send_replace(true);
    scene.goes().await;
    assert_eq!(hears(&heard, "node_offline")["node"], node.to_string());
    assert_eq!(redis.ask(&["EXISTS", &key(node)]), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_key_is_set_again_and_the_node_is_online_again() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let scene = Scene::start(&redis.url()).await;
    hears(&heard, "node_online");
    hears(&heard, "node_heartbeat");
    assert_eq!(redis.ask(&["FLUSHALL"]), "OK");
    hears(&heard, "node_online");
    assert_eq!(redis.ask(&["EXISTS", &key(scene.node.session())]), "1");
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_later_goes_and_comes_back_is_found_each_time() {
    let mut redis = PrivateRedis::start();
    redis.stop();
    let mut scene = Scene::start(&redis.url()).await;
    assert!(matches!(scene.until_away().await, RedisFault::Unreachable(_)));
    scene.works().await;
    for _ in 0..2 {
        redis.start_again();
        scene.until_known().await;
        assert_eq!(redis.ask(&["EXISTS", &key(scene.node.session())]), "1");
        redis.stop();
        scene.until_away().await;
        scene.works().await;
    }
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_behind_a_network_that_falls_silent_or_cuts_holds_up_nothing() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let proxy = Proxy::before(&redis).await;
    let mut scene = Scene::start(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    scene.until_known().await;
    hears(&heard, "node_heartbeat");
    proxy.set(Weather::Silent);
    scene.works().await;
    assert_eq!(scene.until_away().await, RedisFault::Silent);
    proxy.set(Weather::Cut);
    scene.until(|standing| matches!(standing, PresenceStatus::Away(RedisFault::Unreachable(_)))).await;
    scene.works().await;
    proxy.set(Weather::Fair);
    scene.until_known().await;
    hears(&heard, "node_online");
    // Redis becomes silent at the worst time: the node has a connection and wants to remove its presence.
    let node = scene.node.session();
    proxy.set(Weather::Silent);
    scene.goes().await;
    let left: u128 = redis.ask(&["PTTL", &key(node)]).parse().expect("it expires");
    assert!(left > 0 && left <= TTL.as_millis(), "what is left goes by itself: {left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_takes_five_seconds_for_an_answer_is_as_good_as_away() {
    let redis = PrivateRedis::start();
    let proxy = Proxy::before(&redis).await;
    proxy.set(Weather::Slow(Duration::from_secs(5)));
    let mut scene = Scene::start(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    scene.works().await;
    assert_eq!(scene.until_away().await, RedisFault::Silent);
    scene.works().await;
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_stopped_in_its_tracks_is_found_when_it_goes_on() {
    let mut redis = PrivateRedis::start();
    let mut scene = Scene::start(&redis.url()).await;
    scene.until_known().await;
    redis.pause();
    assert_eq!(scene.until_away().await, RedisFault::Silent);
    scene.works().await;
    redis.resume();
    scene.until_known().await;
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_memory_or_for_readers_only_is_said_to_be_so_until_it_is_not() {
    let redis = PrivateRedis::start();
    let mut scene = Scene::start(&redis.url()).await;
    scene.until_known().await;
    for (breaks, mends, fault) in [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], RedisFault::Full),
        (["REPLICAOF", "127.0.0.1", "1", ""], ["REPLICAOF", "NO", "ONE", ""], RedisFault::ReadOnly),
    ] {
        let words =
            |words: [&'static str; 4]| words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        assert_eq!(redis.ask(&words(breaks)), "OK");
        assert_eq!(scene.until_away().await, fault);
        scene.works().await;
        assert_eq!(redis.ask(&words(mends)), "OK");
        scene.until_known().await;
    }
    // Each failed heartbeat had its own connection, and none of these is left: only those of the node and of this query.
    let clients = || redis.ask(&["CLIENT", "LIST", "TYPE", "normal"]).lines().count();
    let until = Instant::now() + MAX_WAIT;
    while clients() > 2 {
        assert!(Instant::now() < until, "{} connections", clients());
    }
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_does_not_let_the_node_in_does_so_when_the_password_is_right() {
    let redis = PrivateRedis::guarded("first");
    let mut scene = Scene::start(&redis.url().replace("first", "second")).await;
    assert_eq!(scene.until_away().await, RedisFault::NotLetIn);
    scene.works().await;
    assert_eq!(redis.ask(&["CONFIG", "SET", "requirepass", "second"]), "OK");
    scene.until_known().await;
    scene.goes().await;
    let anonymous = RedisAddress::parse(&format!("redis://127.0.0.1:{}", redis.port())).expect("an address");
    assert_eq!(anonymous.probe().await, Err(RedisFault::NotLetIn));
}

/// A server that is not Redis: replies to all input with this answer, or echoes it.
async fn impostor(answer: Option<&'static [u8]>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port can be had");
    let port = listener.local_addr().expect("the port is known").port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut said = vec![0; 4096];
                while let Ok(count @ 1..) = client.read(&mut said).await {
                    if client.write_all(answer.unwrap_or(&said[..count])).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_redis_is_said_to_be_none_and_is_not_repeated() {
    let answers: [Option<&'static [u8]>; 5] = [
        None,
        Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        Some(b"-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n"),
        Some(b"-hunter2 is what you said\r\n"),
        Some(b"$1000000000\r\nhunter2"),
    ];
    for answer in answers {
        let port = impostor(answer).await;
        let url = format!("redis://anna:hunter2@127.0.0.1:{port}");
        let mut scene = Scene::start(&url).await;
        let fault = scene.until_away().await;
        for said in [fault.to_string(), format!("{fault:?}"), format!("{:?}", scene.standing.borrow())] {
            assert!(!said.contains("hunter2"), "{said}");
        }
        scene.works().await;
        scene.goes().await;
        let address = RedisAddress::parse(&url).expect("an address");
        let probed = address.probe().await.expect_err("this is no Redis");
        assert!(!probed.to_string().contains("hunter2"), "{probed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_session_is_offline_and_comes_online_as_another() {
    let redis = PrivateRedis::start();
    let heard = redis.listen(CHANNEL);
    let mut scene = Scene::start(&redis.url()).await;
    let lost = scene.node.session();
    scene.until_known().await;
    scene.here.store().kill(lost);
    assert_eq!(hears(&heard, "node_offline")["node"], lost.to_string());
    let online = hears(&heard, "node_online");
    assert_ne!(online["node"], lost.to_string());
    assert_eq!(online["node"], scene.node.session().to_string());
    assert_eq!(redis.ask(&["EXISTS", &key(lost), &key(scene.node.session())]), "1");
    scene.works().await;
    scene.goes().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_finds_what_is_right_and_changes_nothing() {
    let redis = PrivateRedis::start();
    let address = RedisAddress::parse(&redis.url()).expect("an address");
    assert_eq!(address.probe().await, Ok(()));
    assert_eq!(redis.ask(&["DBSIZE"]), "0");
    assert_eq!(redis.ask(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    assert_eq!(address.probe().await, Err(RedisFault::Full));
    assert_eq!(redis.ask(&["ACL", "SETUSER", "clerk", "on", ">hush", "+get", "+auth", "+client"]), "OK");
    let clerk = redis.url().replace("redis://", "redis://clerk:hush@");
    let clerk = RedisAddress::parse(&clerk).expect("an address");
    assert_eq!(clerk.probe().await, Err(RedisFault::NotAllowed));
}
