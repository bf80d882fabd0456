//! Subscribers: two processes hear of every end, at least once and each at its own pace, though one is killed again and again.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Outcome, SessionId};
use ostler_sqlite::{Durability, Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Fenced, Kinds, QueueChange, Ran, Report};
use ostler_store::outbox::{OutboxAnswer, OutboxFilter, Subscription};
use ostler_store::{Store, SystemClock};
use ostler_testkit::{Ids, MAX_WAIT, Twin, Voice, scratch};

const FOLDER: &str = "OSTLER_TEST_FOLDER";
const NAME: &str = "OSTLER_TEST_SUBSCRIBER";
/// The number of batches after which the process stops between the delivery and the acknowledgement, to be killed there.
const BATCHES: &str = "OSTLER_TEST_BATCHES";
const SEED: &str = "OSTLER_TEST_SEED";
const QUEUE: &str = "mail";
const TTL: Duration = Duration::from_secs(600);
const ENDS: usize = 10_000;
const BATCH: usize = 200;
const KILLS: u64 = 12;
/// The polling interval, in case no bell rings.
const LOOK: Duration = Duration::from_millis(100);

fn open(folder: &Path) -> Sqlite {
    let options = Options { durability: Durability::Relaxed, ..Options::default() };
    Sqlite::open(folder.join("ostler.db"), Arc::new(SystemClock), options)
        .unwrap_or_else(|error| panic!("{error}"))
}

async fn join(store: &dyn Store, ids: &Ids) -> SessionId {
    let node = ids.new_session("node", TTL);
    let session = node.id;
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
    session
}

fn subscriber(folder: &Path, name: &str, batches: u64, seed: u64) -> Twin {
    let (batches, seed) = (batches.to_string(), seed.to_string());
    let variables = [
        (FOLDER, folder.as_os_str()),
        (NAME, OsStr::new(name)),
        (BATCHES, OsStr::new(&batches)),
        (SEED, OsStr::new(&seed)),
    ];
    Twin::start("subscribers::subscribing_node", &variables)
}

/// What a subscriber wrote down: the numbers of entries in the order of their delivery, and how often each was taken before.
fn heard(folder: &Path, name: &str) -> Vec<(u64, u32)> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let entry = |line: &str| {
        let (number, earlier) = line.split_once(' ').expect("two numbers");
        (number.parse().expect("a number"), earlier.parse().expect("a number"))
    };
    text.lines().map(entry).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_hear_of_every_end_though_one_is_killed_again_and_again() {
    let folder = scratch();
    let store = open(folder.path());
    let ids = Ids::new(1);
    for name in ["steady", "killed"] {
        let subscription = Subscription { name: name.to_owned(), wants: OutboxFilter::ALL };
        store.configure(QUEUE, vec![QueueChange::Subscribe(subscription)]).await.expect("configure answers");
    }
    let steady = subscriber(folder.path(), "steady", u64::MAX, 2);
    let ends = tokio::spawn(async move { finish_all(&store, &ids).await });
    for kill in 0..KILLS {
        let mut killed = subscriber(folder.path(), "killed", 1 + kill % 4, 10 + kill);
        killed.expect("delivered");
        killed.kill();
    }
    subscriber(folder.path(), "killed", u64::MAX, 9).succeed();
    steady.succeed();
    ends.await.expect("all ends are written");

    let [steady, killed] = ["steady", "killed"].map(|name| heard(folder.path(), name));
    let numbers = |heard: &[(u64, u32)]| heard.iter().map(|(number, _)| *number).collect::<Vec<_>>();
    let mut once = numbers(&steady);
    assert!(steady.iter().all(|(_, earlier)| *earlier == 0) && once.is_sorted(), "one at a time, in order");
    once.dedup();
    assert_eq!(once.len(), ENDS, "a subscriber that lives hears of every end once");

    let mut times: BTreeMap<u64, u32> = BTreeMap::new();
    for (number, earlier) in &killed {
        let before = times.entry(*number).or_default();
        assert!(
            *earlier >= *before,
            "a repeat says that it is one: {number} was heard {before} times, and says {earlier}"
        );
        *before += 1;
    }
    assert_eq!(times.len(), ENDS, "the killed one hears of every end, too");
    let repeats = times.values().filter(|count| **count > 1).count();
    assert!(repeats >= BATCH, "it was killed with deliveries that were not acknowledged: {repeats}");
    let shared: HashMap<u64, u32> = steady.into_iter().collect();
    assert!(times.keys().all(|number| !shared.contains_key(number)), "each has entries of its own");
}

/// Completes the tasks, in batches.
async fn finish_all(store: &Sqlite, ids: &Ids) {
    let session = join(store, ids).await;
    let mut left = ENDS;
    while left > 0 {
        store.enqueue(ids.new_tasks(BATCH.min(left), QUEUE, "send")).await.expect("enqueue answers");
        let claim = Claim { session, queue: QUEUE.to_owned(), kinds: Kinds::Any, limit: BATCH };
        let ClaimAnswer::Tasks { tasks, .. } = store.claim(claim).await.expect("claim answers") else {
            panic!("the session is over, and should not be")
        };
        let ran = Some(Ran { worker: ids.worker(), took: Duration::from_millis(1) });
        let report = |lease| Report { lease, ran, outcome: Outcome::Success, output: None, reading: None };
        left -= tasks.len();
        store
            .finish(tasks.into_iter().map(|claimed| report(claimed.lease)).collect())
            .await
            .expect("finish answers");
    }
}

#[tokio::test]
#[ignore = "another process of the test above"]
async fn subscribing_node() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let said = |name: &str| std::env::var(name).expect("it is set");
    let number = |name: &str| said(name).parse::<u64>().expect("a number");
    let (name, mut batches) = (said(NAME), number(BATCHES));
    let store = open(&folder);
    let session = join(&store, &Ids::new(number(SEED))).await;
    // What a killed process had taken is free as soon as its death is known.
    store.expire(100).await.expect("expire answers");
    let mut distinct: std::collections::HashSet<u64> =
        heard(&folder, &name).into_iter().map(|(number, _)| number).collect();
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join(&name)).expect("a file");
    let mut wakeups = store.wakeups();
    let mut until = Instant::now() + MAX_WAIT;
    while distinct.len() < ENDS {
        assert!(Instant::now() < until, "it has heard of {} ends", distinct.len());
        wakeups.arm();
        let taken = store.take_outbox(session, QUEUE, &name, BATCH).await.expect("take_outbox answers");
        let OutboxAnswer::Entries(entries) = taken else { panic!("the session is over, and should not be") };
        if entries.is_empty() {
            let _ = tokio::time::timeout(LOOK, wakeups.wait()).await;
            continue;
        }
        until = Instant::now() + MAX_WAIT;
        let lines: String =
            entries.iter().map(|entry| format!("{} {}\n", entry.number, entry.earlier)).collect();
        file.write_all(lines.as_bytes()).expect("it is written");
        distinct.extend(entries.iter().map(|entry| entry.number));
        batches -= 1;
        if batches == 0 {
            Voice::say("delivered");
            // The test kills this process here.
            let _ = Voice::hear();
        }
        store
            .ack_outbox(session, entries.iter().map(|entry| entry.number.into()).collect())
            .await
            .expect("told answers");
    }
}
