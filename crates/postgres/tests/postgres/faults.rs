//! Network and server faults: acknowledged writes exist, unacknowledged ones do not exist twice, and work resumes by
//! itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, Outcome, SessionId, StateName, TaskId, WorkerId};
use ostler_postgres::tokio_postgres::{Client, NoTls, connect};
use ostler_postgres::{Options, Postgres};
use ostler_store::calls::{
    Claim, ClaimAnswer, Claimed, Enqueued, Fenced, Finished, Kinds, NewSession, NewTask, Ran, Renewed, Report,
};
use ostler_store::views::{Counts, Filter, TaskRef};
use ostler_store::{Error, ErrorKind, Store};
use ostler_testkit::{Disk, MAX_WAIT, PrivatePostgres, Proxy, Signal, Weather};
use tokio::time::sleep;

const NODE: SessionId = SessionId(Id::from_bits(9));
/// Short, to keep tests of silence short.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause before a failed call is retried.
const AGAIN: Duration = Duration::from_millis(10);

fn options(schema: &str) -> Options {
    Options { schema: schema.to_owned(), connections: 4, patience: PATIENCE, ..Options::default() }
}

async fn open(url: &str, schema: &str) -> Arc<Postgres> {
    Arc::new(Postgres::open(url, options(schema)).await.expect("the store opens"))
}

fn draft(number: u64) -> NewTask {
    NewTask::new(TaskId(Id::from_bits(u128::from(number) + 1)), "mail", "send", "{}")
}

async fn join(store: &Postgres) {
    let (name, version) = ("stable".to_owned(), "1".to_owned());
    let ttl = 10 * MAX_WAIT;
    let node = NewSession {
        id: NODE,
        name,
        host: "stable-1".to_owned(),
        pid: 1,
        version,
        ttl,
        settings: "{}".to_owned(),
    };
    assert_eq!(store.join(node).await, Ok(Fenced::Recorded));
}

async fn claim(store: &Postgres, limit: usize) -> Result<Vec<Claimed>, Error> {
    let claim = Claim { session: NODE, queue: "mail".to_owned(), kinds: Kinds::Any, limit };
    match store.claim(claim).await? {
        ClaimAnswer::Tasks { tasks, .. } => Ok(tasks),
        ClaimAnswer::SessionEnded => panic!("the node is alive"),
    }
}

fn success(claimed: Claimed) -> Report {
    let ran = Some(Ran { worker: WorkerId(Id::from_bits(3)), took: Duration::from_millis(1) });
    Report { lease: claimed.lease, ran, outcome: Outcome::Success, output: None, reading: None }
}

async fn counts(store: &Postgres) -> Counts {
    let lanes = store.survey().await.expect("survey answers").lanes;
    lanes.iter().fold(Counts::default(), |sum, lane| sum.plus(lane.counts))
}

/// A separate connection that may terminate those of others.
async fn meddler(url: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// Retries until it succeeds, as long as the store is only unavailable.
async fn until_answered<T>(mut say: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + MAX_WAIT;
    loop {
        match say().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(error.is_transient(), "it may work again later: {error}");
                assert!(Instant::now() < until, "it does not come back: {error}");
                sleep(AGAIN).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_went_through_and_is_not_done_twice() {
    let server = PrivatePostgres::shared();
    let proxy = Proxy::start(server).await;
    let store = open(&proxy.url(), "lost_answer").await;
    join(&store).await;
    let task = draft(1);
    proxy.set(Weather::LosesAnswer);
    assert_eq!(store.enqueue(vec![task.clone()]).await, Ok(vec![Enqueued::Created(task.id)]));
    assert_eq!(proxy.weather(), Weather::Fair, "an answer was lost");
    proxy.set(Weather::LosesAnswer);
    let claimed = claim(&store, 10).await.expect("claim answers");
    assert_eq!(proxy.weather(), Weather::Fair);
    assert_eq!(claimed.iter().map(|claimed| claimed.lease.as_ref().token).collect::<Vec<_>>(), [1]);
    proxy.set(Weather::LosesAnswer);
    let finished = store.finish(claimed.into_iter().map(success).collect()).await.expect("finish answers");
    assert_eq!(proxy.weather(), Weather::Fair);
    assert_eq!(finished, [Finished::Recorded(StateName::Completed)]);
    assert_eq!(counts(&store).await, Counts { completed: 1, ..Counts::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_tried_again() {
    let proxy = Proxy::start(PrivatePostgres::shared()).await;
    let store = open(&proxy.url(), "lost_commit").await;
    join(&store).await;
    let task = draft(1);
    proxy.set(Weather::LosesCommit);
    assert_eq!(store.enqueue(vec![task.clone()]).await, Ok(vec![Enqueued::Created(task.id)]));
    assert_eq!(proxy.weather(), Weather::Fair, "a commit was lost");
    proxy.set(Weather::LosesCommit);
    let claimed = claim(&store, 10).await.expect("claim answers");
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].lease.as_ref().token, 1, "the claim that was lost never was");
    assert_eq!(counts(&store).await, Counts { claimed: 1, ..Counts::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_ends_in_an_error_and_the_store_comes_back_by_itself() {
    let proxy = Proxy::start(PrivatePostgres::shared()).await;
    let store = open(&proxy.url(), "silent").await;
    join(&store).await;
    store.enqueue(vec![draft(1)]).await.expect("enqueue answers");
    assert!(matches!(store.renew(NODE, &[]).await, Ok(Renewed::Held { .. })));
    proxy.set(Weather::Silent);
    let began = Instant::now();
    let (written, looked, renewed) =
        tokio::join!(store.enqueue(vec![draft(2)]), store.survey(), store.renew(NODE, &[]));
    let kinds = [
        written.expect_err("the server does not answer").kind(),
        looked.expect_err("the server does not answer").kind(),
        renewed.expect_err("the server does not answer").kind(),
    ];
    assert_eq!(kinds, [ErrorKind::Unavailable; 3]);
    assert!(began.elapsed() < MAX_WAIT, "every wait has an end");
    proxy.set(Weather::Cut);
    proxy.set(Weather::Fair);
    until_answered(async || store.enqueue(vec![draft(3)]).await).await;
    assert!(matches!(until_answered(async || store.renew(NODE, &[]).await).await, Renewed::Held { .. }));
    let shown = store.show(TaskRef::Id(draft(1).id)).await.expect("show answers");
    assert!(shown.is_some(), "what was acknowledged is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backends_that_are_ended_under_load_lose_nothing() {
    const TASKS: u64 = 2_000;
    const BATCH: usize = 20;
    const ROUNDS: u64 = 120;
    let url = PrivatePostgres::shared().url();
    let store = open(&url, "terminated").await;
    join(&store).await;
    // One connection is terminated for each reply: terminating them faster than anything can succeed shows nothing.
    let answers = Signal::new("an answer");
    let meddling = tokio::spawn({
        let (answers, url) = (answers.clone(), url.clone());
        async move {
            let (client, mut ended) = (meddler(&url).await, 0);
            for round in 1..=ROUNDS {
                answers.wait_for(round).await;
                // Vary the point in time.
                sleep(Duration::from_millis(7 * round % 40)).await;
                let rows = client
                    .query(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ostler'
                            AND query LIKE '%terminated%' ORDER BY random() LIMIT 1",
                        &[],
                    )
                    .await;
                ended += rows.expect("backends are ended").len();
            }
            ended
        }
    });
    for first in (0..TASKS).step_by(BATCH) {
        let batch: Vec<NewTask> = (first..first + BATCH as u64).map(draft).collect();
        until_answered(async || store.enqueue(batch.clone()).await).await;
        answers.emit();
    }
    let (mut seen, mut done) = (HashSet::new(), 0);
    let until = Instant::now() + 2 * MAX_WAIT;
    while done < TASKS {
        assert!(Instant::now() < until, "{done} of {TASKS} are done");
        let claimed = until_answered(async || claim(&store, 50).await).await;
        for task in &claimed {
            assert!(seen.insert(task.lease.task()), "no task is claimed twice");
        }
        let mut reports: Vec<Report> = claimed.into_iter().map(success).collect();
        while !reports.is_empty() {
            assert!(Instant::now() < until, "{done} of {TASKS} are done");
            match store.finish(reports).await {
                Ok(finished) => {
                    done += finished.len() as u64;
                    break;
                }
                Err(unwritten) => reports = unwritten.reports,
            }
        }
        answers.emit();
    }
    let ended = meddling.await.expect("the meddler ends");
    assert!(ended > 10, "only {ended} connections were ended: nothing was tested");
    let counts = counts(&store).await;
    assert_eq!(counts, Counts { completed: TASKS, ..Counts::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_started_again_has_what_it_acknowledged() {
    const ROUNDS: u64 = 3;
    let mut server = PrivatePostgres::start(Disk::Unsynced);
    let store = open(&server.url(), "ostler").await;
    join(&store).await;
    let mut acknowledged = Vec::new();
    let mut number = 0;
    for _ in 0..ROUNDS {
        let (enqueuer, first, some) = (Arc::clone(&store), number, Signal::new("a task is enqueued"));
        let enqueued = some.clone();
        let enqueueing = tokio::spawn(async move {
            let mut number = first;
            let mut acknowledged = Vec::new();
            // Until the server is gone.
            loop {
                match enqueuer.enqueue(vec![draft(number)]).await {
                    Ok(_) => {
                        acknowledged.push(draft(number).id);
                        enqueued.emit();
                    }
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        return (acknowledged, number + 1);
                    }
                }
                number += 1;
            }
        });
        some.wait_for(20).await;
        server.stop();
        let (some, next) = enqueueing.await.expect("the one who enqueues ends");
        acknowledged.extend(some);
        number = next;
        server.start_again();
        until_answered(async || store.survey().await.map(drop)).await;
    }
    assert!(matches!(until_answered(async || store.renew(NODE, &[]).await).await, Renewed::Held { .. }));
    for id in acknowledged {
        assert!(store.show(TaskRef::Id(id)).await.expect("show answers").is_some(), "{id} was acknowledged");
    }
    let listed = store.list(Filter::default(), None, 1_000).await.expect("list answers").tasks.len() as u64;
    assert_eq!(counts(&store).await.queued.min(1_000), listed, "the counts are those of the rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_is_found_by_who_knows_both() {
    let mut primary = PrivatePostgres::start(Disk::Unsynced);
    let standby = primary.standby();
    let both = format!(
        "host={},{} user=ostler dbname=ostler",
        primary.folder().display(),
        standby.folder().display()
    );
    let store = open(&both, "ostler").await;
    store.enqueue(vec![draft(1)]).await.expect("enqueue answers");
    // The standby has it as well.
    let there = meddler(&standby.url()).await;
    let until = Instant::now() + MAX_WAIT;
    while there.query_one("SELECT count(*) FROM ostler.task", &[]).await.map_or(0, |row| row.get::<_, i64>(0))
        < 1
    {
        assert!(Instant::now() < until, "the standby does not follow");
        sleep(AGAIN).await;
    }
    primary.stop();
    standby.promote();
    let answer = until_answered(async || store.enqueue(vec![draft(1), draft(2)]).await).await;
    assert_eq!(answer, [Enqueued::Existing(draft(1).id), Enqueued::Created(draft(2).id)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_callers_than_connections_take_turns() {
    let store = open(&PrivatePostgres::shared().url(), "turns").await;
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.enqueue(vec![draft(number)]).await })
        })
        .collect();
    for call in calls {
        assert!(call.await.expect("no caller panics").is_ok());
    }
    assert_eq!(counts(&store).await.queued, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_gives_up_in_the_middle_leaves_no_open_transaction_behind() {
    let store = open(&PrivatePostgres::shared().url(), "given_up").await;
    for number in 0..200 {
        let call = store.enqueue(vec![draft(number)]);
        let _ = tokio::time::timeout(Duration::from_micros(number * 20), call).await;
    }
    let client = meddler(&PrivatePostgres::shared().url()).await;
    let until = Instant::now() + MAX_WAIT;
    loop {
        let row = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%given_up%'",
                &[],
            )
            .await
            .expect("a count");
        if row.get::<_, i64>(0) == 0 {
            break;
        }
        assert!(Instant::now() < until, "a transaction is still open");
        sleep(AGAIN).await;
    }
    assert!(store.enqueue(vec![draft(1_000)]).await.is_ok());
}
