//! Lost commits: the server dies during commits, restarts, and gives the ids of the lost transactions to others.
//! Acknowledged writes exist nevertheless, once, and no task stays leased to a node that does not know of it.
//!
//! `verbs.rs` has a case for each verb that writes. A round prepares all of them, holds all their commits (or the replies
//! to these), kills the server, lets others write, and lets the verbs continue. `OSTLER_ROUNDS=200 ./test -p
//! ostler-postgres -- commits --nocapture` does that 200 times and counts.

mod accounts;
mod maintenance;
pub(crate) mod verbs;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{EventBody, Id, TaskId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Listening, Options, Postgres};
use ostler_store::Store;
use ostler_store::calls::{Appended, CancelAnswer, Enqueued, NewTask, Prune, Retention};
use ostler_store::events::EventQuery;
use ostler_testkit::{Disk, MAX_WAIT, ManualClock, PrivatePostgres, Proxy, Weather};
use tokio::time::{sleep, timeout};
use verbs::{Case, Stage};

/// Longer than a server needs to restart on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of a store: one for each verb of a round.
const CONNECTIONS: usize = 48;
/// Transactions of others after the restart: more than were lost.
const OTHERS: usize = 200;
/// How often the server dies in the large test, by default.
const ROUNDS: usize = 3;
/// The polling interval.
const AGAIN: Duration = Duration::from_millis(10);

/// What happens to the server while commits are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// All its processes are killed, and it is started again.
    Crash,
    /// One of its processes is killed, and it restarts by itself.
    Backend,
}

/// The results of the verbs of some rounds.
#[derive(Default)]
struct Tally {
    acknowledged: usize,
    rounds: usize,
    wrong: BTreeMap<String, usize>,
}

impl Tally {
    fn is_clean(&self, least: usize) {
        println!(
            "{} rounds: {} verbs acknowledged, {} wrong",
            self.rounds,
            self.acknowledged,
            self.wrong.values().sum::<usize>()
        );
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        assert!(self.acknowledged >= least, "{} verbs were carried out", self.acknowledged);
    }
}

async fn client(url: &str) -> Client {
    let until = Instant::now() + MAX_WAIT;
    loop {
        match connect(url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => assert!(Instant::now() < until, "no connection: {error}"),
        }
        sleep(AGAIN).await;
    }
}

fn options(schema: &str, clock: &ManualClock) -> Options {
    Options {
        schema: schema.to_owned(),
        connections: CONNECTIONS,
        patience: PATIENCE,
        listening: Listening::Off,
        clock: Some(Arc::new(clock.clone())),
        ..Options::default()
    }
}

async fn open(url: &str, schema: &str, clock: &ManualClock) -> Arc<Postgres> {
    Arc::new(Postgres::open(url, options(schema, clock)).await.expect("the store opens"))
}

/// The server writes its log only on commits: uncommitted transactions are lost with it.
fn server() -> PrivatePostgres {
    PrivatePostgres::start_with(Disk::Unsynced, &["wal_writer_delay=10s", "restart_after_crash=on"])
}

/// Lets others write, so that the server assigns the ids of transactions that it has forgotten.
async fn others_write(url: &str) {
    let client = client(url).await;
    client.batch_execute("CREATE TABLE IF NOT EXISTS public.others(at bigint)").await.expect("a table");
    for at in 0..OTHERS {
        client.batch_execute(&format!("INSERT INTO public.others VALUES({at})")).await.expect("a row");
    }
}

type Acting = tokio::task::JoinHandle<Result<(), String>>;

/// The cases of a round, each of which waits for the end of its commit.
struct Held {
    cases: Vec<(&'static str, Acting, verbs::Check)>,
}

/// Prepares the cases one after the other: maintenance comes last and skips rows that the others have locked; if it came
/// first, it would make them wait.
async fn hold(stage: &Stage, proxy: &Proxy, how: Weather) -> Held {
    let cases = verbs::all(stage).await;
    proxy.set(how);
    let mut held = Vec::new();
    for Case { verb, act, check } in cases {
        held.push((verb, tokio::spawn(act), check));
        if !proxy.holds(held.len()).await {
            let waits = "SELECT format('%s %s: %s', wait_event_type, wait_event, query) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let waits = stage.direct.query(waits, &[]).await.expect("the server answers");
            let waits: Vec<String> = waits.iter().map(|row| row.get(0)).collect();
            panic!("the commit of {verb} is not held; what waits for a lock: {waits:#?}");
        }
    }
    Held { cases: held }
}

/// Lets the verbs continue after the restart, and checks their results.
async fn settle(held: Held, stage: &Stage, proxy: &Proxy, tally: &mut Tally) {
    proxy.set(Weather::Fair);
    let mut checks = Vec::new();
    for (verb, act, check) in held.cases {
        match timeout(2 * MAX_WAIT, act).await.expect("every verb ends").expect("no verb panics") {
            Ok(()) => {
                tally.acknowledged += 1;
                checks.push((verb, check));
            }
            Err(wrong) => *tally.wrong.entry(format!("{verb}: {wrong}")).or_default() += 1,
        }
    }
    for (verb, check) in checks {
        if let Err(wrong) = check(stage).await {
            *tally.wrong.entry(format!("{verb} was acknowledged, but {wrong}")).or_default() += 1;
        }
    }
    tally.rounds += 1;
}

/// Kills the server, and waits until it serves again.
async fn die(server: &mut PrivatePostgres, death: Death) {
    match death {
        Death::Crash => tokio::task::block_in_place(|| {
            server.crash();
            server.start_again();
        }),
        Death::Backend => {
            let client = client(&server.url()).await;
            let asked = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("a number");
            let pid: i32 = asked.get(0);
            tokio::task::block_in_place(|| server.kill_backend(pid));
        }
    }
}

async fn rounds(count: usize, rounds: &[(Death, Weather)]) -> (Tally, usize) {
    let mut server = server();
    let proxy = Proxy::start(&server).await;
    let clock = ManualClock::new();
    let (store, aside) =
        (open(&proxy.url(), "ostler", &clock).await, open(&proxy.url(), "aside", &clock).await);
    let (mut tally, mut verbs) = (Tally::default(), 0);
    for round in 0..count {
        let (death, how) = rounds[round % rounds.len()];
        let (store, aside, clock) = (Arc::clone(&store), Arc::clone(&aside), clock.clone());
        let stage = Stage { store, aside, direct: client(&server.url()).await, clock, round };
        let held = hold(&stage, &proxy, how).await;
        verbs += held.cases.len();
        die(&mut server, death).await;
        others_write(&server.url()).await;
        let stage = Stage { direct: client(&server.url()).await, ..stage };
        settle(held, &stage, &proxy, &mut tally).await;
    }
    (tally, verbs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_is_there_when_the_server_dies_at_the_commit() {
    let count = std::env::var("OSTLER_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let (tally, verbs) = rounds(
        count,
        &[
            (Death::Crash, Weather::HoldsCommits),
            (Death::Backend, Weather::HoldsCommits),
            (Death::Crash, Weather::HoldsAnswers),
        ],
    )
    .await;
    tally.is_clean(verbs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_is_there_when_a_standby_is_promoted_at_the_commit() {
    let mut primary = server();
    let proxy = Proxy::start(&primary).await;
    let clock = ManualClock::new();
    let (store, aside) =
        (open(&proxy.url(), "ostler", &clock).await, open(&proxy.url(), "aside", &clock).await);
    let stage = Stage { store, aside, direct: client(&primary.url()).await, clock, round: 0 };
    let standby = tokio::task::block_in_place(|| primary.standby());
    let held = hold(&stage, &proxy, Weather::HoldsCommits).await;
    // Wait until the standby has replayed all commits.
    let asked =
        stage.direct.query_one("SELECT pg_current_wal_flush_lsn()::text", &[]).await.expect("a place");
    let (reached, there) = (asked.get::<_, String>(0), client(&standby.url()).await);
    let until = Instant::now() + MAX_WAIT;
    let behind = "SELECT coalesce(pg_last_wal_replay_lsn() < $1::text::pg_lsn, true)";
    while there.query_one(behind, &[&reached]).await.expect("a place").get::<_, bool>(0) {
        assert!(Instant::now() < until, "the standby does not follow");
        sleep(AGAIN).await;
    }
    tokio::task::block_in_place(|| {
        primary.crash();
        standby.promote();
    });
    proxy.lead_to(&standby);
    others_write(&standby.url()).await;
    let stage = Stage { direct: client(&standby.url()).await, ..stage };
    let (mut tally, verbs) = (Tally::default(), held.cases.len());
    settle(held, &stage, &proxy, &mut tally).await;
    tally.is_clean(verbs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_it_was_given_up_does_nothing() {
    let server = PrivatePostgres::shared();
    let (proxy, clock) = (Proxy::start(server).await, ManualClock::new());
    let store = open(&proxy.url(), "late", &clock).await;
    let direct = client(&server.url()).await;
    let stage = Stage { aside: Arc::clone(&store), store, direct, clock, round: 0 };
    let (_, running) = verbs::started(&stage, "late").await;
    let (here, lease) = (Arc::clone(&stage.store), running.lease.as_ref());
    proxy.set(Weather::DelaysCommit);
    let event = EventBody::line("a line");
    let appending = tokio::spawn(async move { here.append(lease, vec![event]).await });
    assert!(proxy.holds(1).await, "the commit is under way");
    // The verb is retried, and waits for the abandoned transaction.
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%late%'";
    let until = Instant::now() + MAX_WAIT;
    while stage.direct.query_one(waits, &[]).await.expect("a count").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < until, "no transaction waits");
        sleep(AGAIN).await;
    }
    proxy.set(Weather::Fair);
    let appended = timeout(2 * MAX_WAIT, appending).await.expect("it ends").expect("it does not panic");
    assert_eq!(appended, Ok(Appended::Recorded { last: 1 }), "the first one never was");
    assert_eq!(stage.store.read_events(lease.task, EventQuery::default()).await.expect("events").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_marks_are_removed_and_a_process_that_comes_back_later_takes_another() {
    let server = PrivatePostgres::shared();
    let clock = ManualClock::new();
    let (idle, busy) =
        (open(&server.url(), "swept", &clock).await, open(&server.url(), "swept", &clock).await);
    let direct = client(&server.url()).await;
    let marks = async || {
        let asked = direct.query_one("SELECT count(*) FROM swept.commit_mark", &[]).await;
        asked.expect("a count").get::<_, i64>(0)
    };
    let draft = |number: u128| vec![NewTask::new(TaskId(Id::from_bits(number)), "mail", "send", "{}")];
    for number in 1..=3 {
        idle.enqueue(draft(number)).await.expect("enqueue answers");
    }
    assert_eq!(marks().await, 1, "one after the other needs one row");
    clock.advance(Duration::from_secs(2 * 60 * 60));
    busy.prune(Prune::Retention(Retention::default())).await.expect("prune answers");
    busy.enqueue(draft(4)).await.expect("enqueue answers");
    assert_eq!(marks().await, 1, "the other is gone");
    assert_eq!(idle.enqueue(draft(5)).await, Ok(vec![Enqueued::Created(TaskId(Id::from_bits(5)))]));
    assert_eq!(marks().await, 2);
    // A call that finds nothing to do writes nothing.
    let written = direct.query_one("SELECT sum(mark)::bigint FROM swept.commit_mark", &[]).await;
    let written = written.expect("a sum").get::<_, i64>(0);
    assert_eq!(idle.cancel(vec![TaskId(Id::from_bits(99))]).await, Ok(vec![CancelAnswer::NotFound]));
    let after = direct.query_one("SELECT sum(mark)::bigint FROM swept.commit_mark", &[]).await;
    assert_eq!(after.expect("a sum").get::<_, i64>(0), written);
}
