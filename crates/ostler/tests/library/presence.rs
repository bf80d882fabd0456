//! Presence in Redis through the library.

#![cfg(feature = "redis")]

use std::time::Duration;

use ostler::PresenceTimes;
use ostler_testkit::{PrivateRedis, scratch};
use serde_json::Value;

fn next(heard: &ostler_testkit::Heard) -> Value {
    serde_json::from_str(&heard.next()).expect("an event is JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_comes_online_and_goes_offline() {
    let redis = PrivateRedis::start();
    let heard = redis.listen("ostler:events");
    let folder = scratch();
    let builder = ostler::open(folder.path().join("ostler.db")).expect("a store is made");
    let builder = builder.handle("echo", |words: String, _| async move { Ok(words) });
    let pool = builder.presence(&redis.url()).start().await.expect("it starts");
    let online = next(&heard);
    assert_eq!((&online["type"], &online["pools"][0]["name"]), (&"node_online".into(), &"default".into()));
    pool.drain(ostler_testkit::MAX_WAIT).await;
    let last = std::iter::repeat_with(|| next(&heard)).find(|event| event["type"] == "node_offline");
    assert_eq!(last.expect("it says farewell")["node"], online["node"]);
    assert_eq!(redis.ask(&["DBSIZE"]), "0");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_keeps_the_pool_from_starting() {
    let folder = scratch();
    let builder = ostler::open(folder.path().join("ostler.db")).expect("a store is made");
    let refused = builder.presence("redis://anna:hunter2@cache:port").start().await;
    let sentence = refused.err().expect("it is refused").to_string();
    assert!(sentence.contains("presence: write redis://user:password@host"), "{sentence}");
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_of_its_own_are_kept_and_those_that_cannot_work_are_refused() {
    let redis = PrivateRedis::start();
    let heard = redis.listen("ostler:events");
    let folder = scratch();
    let builder = |interval, ttl| {
        let times =
            PresenceTimes { interval: Duration::from_millis(interval), ttl: Duration::from_millis(ttl) };
        let builder = ostler::open(folder.path().join("ostler.db")).expect("a store is made");
        builder.presence_times(times).presence(&redis.url())
    };
    let sentence = builder(600, 1_199).start().await.err().expect("it is refused").to_string();
    assert!(sentence.contains("presence.ttl is 1.199s, but must be at least two intervals"), "{sentence}");
    let pool = builder(100, 60_000).start().await.expect("it starts");
    let online = next(&heard);
    let key = format!("ostler:node:{}", online["node"].as_str().expect("an id"));
    let left: u64 = redis.ask(&["PTTL", &key]).parse().expect("it is there, and expires");
    assert!(left > 30_000 && left <= 60_000, "{left}");
    assert_eq!(next(&heard)["type"], "node_heartbeat");
    pool.drain(ostler_testkit::MAX_WAIT).await;
}
