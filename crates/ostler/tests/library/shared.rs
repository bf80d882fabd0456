//! The library on a PostgreSQL server: only the URL differs, and tasks can be submitted within the caller's own
//! transaction.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ostler::postgres::tokio_postgres::{Client, NoTls, connect};
use ostler::postgres::{NewTask, Options, Postgres};
use ostler::{Overrides, Pool, StateName, Submission, SubmitError, TaskId};
use ostler_core::Ending;
use ostler_store::Store as _;
use ostler_store::views::{Filter, TaskRef};
use ostler_testkit::{MAX_WAIT, PrivatePostgres, Twin, Voice, scratch};
use tokio::runtime::Builder;

/// Poll interval.
const LOOK: Duration = Duration::from_millis(20);
/// How soon a node that is not blocked must have ended its blocking attempts: sooner than a connection that no task drives
/// times out.
const AGAIN_WITHIN: Duration = Duration::from_secs(15);

/// A separate store on the shared server.
fn url() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{}?schema=library_{}", PrivatePostgres::shared().url(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A pool that counts letters.
async fn pool(url: &str) -> Pool {
    let handler = |text: String, _| async move { Ok(text.len()) };
    ostler::open(url).expect("the URL is right").handle("count", handler).start().await.expect("it starts")
}

/// The caller's own connection.
async fn client() -> Client {
    let (client, connection) = connect(&PrivatePostgres::shared().url(), NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

async fn ended(pool: &Pool, id: TaskId) -> Option<String> {
    let task = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").expect("it is there");
    assert_eq!(task.state.name(), StateName::Completed);
    task.output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pools_on_one_server_run_what_either_submits() {
    let url = url();
    let (one, two) = (pool(&url).await, pool(&url).await);
    for pool in [&one, &two] {
        let id = pool.submit("count", &"four").await.expect("it is submitted");
        assert_eq!(ended(&two, id).await.as_deref(), Some("4"));
    }
    one.drain(Duration::from_secs(5)).await;
    let id = two.submit("count", &"three").await.expect("it is submitted");
    assert_eq!(ended(&two, id).await.as_deref(), Some("5"));
    two.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_a_transaction_exists_if_and_only_if_it_commits() {
    let pool = pool(&url()).await;
    let mut client = client().await;
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS public.orders(id integer)")
        .await
        .expect("a table of theirs");
    let transaction = client.transaction().await.expect("it begins");
    transaction.execute("INSERT INTO public.orders VALUES (1)", &[]).await.expect("their own write");
    let gone =
        pool.submit_in(&transaction, "count", &"gone", Submission::default()).await.expect("it is taken");
    transaction.rollback().await.expect("it is undone");
    let transaction = client.transaction().await.expect("it begins");
    transaction.execute("INSERT INTO public.orders VALUES (2)", &[]).await.expect("their own write");
    let kept =
        pool.submit_in(&transaction, "count", &"kept", Submission::default()).await.expect("it is taken");
    assert!(pool.get(kept).await.is_err(), "it is invisible before the commit");
    transaction.commit().await.expect("it commits");
    assert_eq!(ended(&pool, kept).await.as_deref(), Some("4"));
    assert!(pool.get(gone).await.is_err(), "what was undone never was");
    let orders = client.query("SELECT id FROM public.orders", &[]).await.expect("they are there");
    assert_eq!(orders.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [2]);
    pool.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_takes_no_part_in_a_transaction_and_says_so() {
    let folder = scratch();
    let file = folder.path().join("jobs.db");
    let pool = pool(file.to_str().expect("the path is text")).await;
    let mut client = client().await;
    let transaction = client.transaction().await.expect("it begins");
    let refused = pool.submit_in(&transaction, "count", &"x", Submission::default()).await;
    assert!(matches!(refused, Err(SubmitError::NotShared)), "{refused:?}");
    pool.drain(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_is_none_is_refused_without_its_password() {
    let refused =
        ostler::open("postgres://anna:secret@db/jobs?colour=red").err().expect("it is refused").to_string();
    assert!(refused.contains("unknown option `colour`") && !refused.contains("secret"), "{refused}");
    let unreachable = ostler::open("postgres://anna:secret@127.0.0.1:1/jobs").expect("the URL is right");
    let refused = unreachable.start().await.err().expect("no server is there").to_string();
    assert!(refused.contains("cannot be reached") && !refused.contains("secret"), "{refused}");
}

// ---- two nodes, one of which is killed ----------------------------------------------------------------

/// The environment variable with the store URL for the other processes.
const URL: &str = "OSTLER_TEST_URL";
/// The environment variable for a node that hangs: after this many tasks, its handlers never return.
const HANGS_AFTER: &str = "OSTLER_TEST_HANGS_AFTER";
const TASKS: usize = 10_000;
/// Tasks per write and per page.
const MANY: usize = 1_000;
/// How soon all tasks must be done, on a slow machine: sooner than the lease of the dead node expires, which is a minute.
const ALL_WITHIN: Duration = Duration::from_secs(50);

#[test]
#[ignore = "the other process of the test below"]
fn node() {
    let url = std::env::var(URL).expect("the test says where");
    let hangs_after = std::env::var(HANGS_AFTER).map_or(usize::MAX, |count| count.parse().expect("a number"));
    let begun = Arc::new(AtomicUsize::new(0));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let handler = move |(): (), _| {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            async move {
                if number == hangs_after {
                    Voice::say("hangs");
                }
                if number >= hangs_after {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                Ok(())
            }
        };
        let pool = ostler::open(&url).expect("the URL is right").handle("work", handler).workers(16);
        let _pool = pool.start().await.expect("it starts");
        Voice::say("up");
        std::future::pending::<()>().await;
    });
}

async fn completed(store: &Postgres) -> u64 {
    let survey = store.survey().await.expect("it is read");
    survey.lanes.iter().map(|lane| lane.counts.completed).sum()
}

async fn until_completed(store: &Postgres, count: usize) -> Duration {
    let began = Instant::now();
    while completed(store).await < count as u64 {
        assert!(began.elapsed() < ALL_WITHIN, "not in time: {} of {count}", completed(store).await);
        tokio::time::sleep(LOOK).await;
    }
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_ten_thousand_tasks_and_one_is_killed_in_the_middle() {
    let url = url();
    let store = Postgres::open(&url, Options::default()).await.expect("it opens");
    // The one that dies hangs before, so that it has tasks when it is killed.
    let [lives, mut dies] = [usize::MAX, 100].map(|count| {
        let mut twin =
            Twin::start("shared::node", &[(URL, url.as_ref()), (HANGS_AFTER, count.to_string().as_ref())]);
        twin.expect("up");
        twin
    });
    let ids = ostler::ids().expect("there is chance");
    for _ in 0..TASKS / MANY {
        let tasks = (0..MANY).map(|_| NewTask::new(TaskId(ids()), "default", "work", "null")).collect();
        store.enqueue(tasks).await.expect("they are submitted");
    }
    dies.expect("hangs");
    until_completed(&store, TASKS / 4).await;
    dies.kill();
    let before = completed(&store).await;
    assert!(before < TASKS as u64, "it is killed in the middle");
    let took = until_completed(&store, TASKS).await;
    let (mut tasks, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Filter::default(), after, MANY).await.expect("it is read");
        tasks.extend(page.tasks);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(tasks.len(), TASKS);
    let mut moved = 0;
    for task in tasks {
        assert_eq!((task.state.name(), task.failures), (StateName::Completed, 0));
        if task.runs > 1 || task.suspect {
            moved += 1;
            let attempts =
                store.show(TaskRef::Id(task.id)).await.expect("it is read").expect("it is there").attempts;
            let ends = attempts.iter().filter_map(|attempt| attempt.end.as_ref());
            assert_eq!(ends.filter(|end| end.ending == Ending::Success).count(), 1, "{attempts:?}");
        }
    }
    assert!(moved > 0, "the node that died had some");
    println!(
        "killed after {before} of {TASKS} tasks: {moved} were moved, and all were done {took:?} later, none twice"
    );
    lives.kill();
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
struct Wall(Arc<(Mutex<bool>, Condvar)>);

impl Wall {
    fn block(&self) {
        let open = self.0.0.lock().expect("no holder panics");
        drop(self.0.1.wait_while(open, |open| !*open));
    }

    fn open(&self) {
        *self.0.0.lock().expect("no holder panics") = true;
        self.0.1.notify_all();
    }
}

#[test]
fn handlers_that_block_every_thread_of_the_caller_do_not_hold_up_the_node() {
    const THREADS: usize = 2;
    let url = url();
    let theirs = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().expect("a runtime");
    let wall = Wall::default();
    let behind = wall.clone();
    let handler = move |(): (), _| {
        let wall = behind.clone();
        async move {
            wall.block();
            Ok(())
        }
    };
    let timeout =
        Overrides { timeout: Some(Duration::from_millis(100)), attempts: Some(1), ..Overrides::NONE };
    let pool = ostler::open(&url).expect("the URL is right").handle("deaf", handler).defaults(timeout);
    let pool = theirs.block_on(pool.grace(Duration::from_millis(50)).start()).expect("it starts");
    // By now, connections of their runtime are open.
    theirs.block_on(pool.stats()).expect("it is read");
    let ours = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let began = Instant::now();
    ours.block_on(async {
        let looking = Postgres::open(&url, Options::default()).await.expect("it opens");
        let ids = ostler::ids().expect("there is chance");
        let tasks: Vec<NewTask> =
            (0..THREADS).map(|_| NewTask::new(TaskId(ids()), "default", "deaf", "null")).collect();
        looking.enqueue(tasks.clone()).await.expect("they are submitted");
        for task in tasks {
            loop {
                let found =
                    looking.show(TaskRef::Id(task.id)).await.expect("it is read").expect("it is there");
                if found.task.state.name() == StateName::Failed {
                    break;
                }
                assert!(began.elapsed() < AGAIN_WITHIN, "the node is held up: {:?}", found.task.state);
                tokio::time::sleep(LOOK).await;
            }
        }
    });
    wall.open();
    theirs.block_on(pool.drain(Duration::from_secs(5)));
}
