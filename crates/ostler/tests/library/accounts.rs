//! Accounts through the library: queues that share a usage limit, in one process and over a server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler::{
    AccountChange, AccountRecord, Builder, Client, Context, Pool, StateName, TaskError, TaskId, Timestamp,
};
use ostler_testkit::{MAX_WAIT, PrivatePostgres, Signal, scratch};

const ACCOUNT: &str = "claude";
/// Poll interval.
const LOOK: Duration = Duration::from_millis(10);

/// Whether the provider refuses, and who has asked it.
#[derive(Clone)]
struct Provider {
    refuses: Arc<AtomicBool>,
    resets_in: Duration,
    asked: Signal,
}

impl Provider {
    fn new(resets_in: Duration) -> Self {
        Self { refuses: Arc::new(AtomicBool::new(true)), resets_in, asked: Signal::new("asked") }
    }

    /// The queue of this builder asks the provider, which refuses once.
    fn serves(&self, builder: Builder) -> Builder {
        let provider = self.clone();
        let handler = move |(): (), _: Context| {
            let provider = provider.clone();
            async move {
                provider.asked.emit();
                if provider.refuses.swap(false, Ordering::SeqCst) {
                    return Err(TaskError::usage_limit(provider.resets_in, "5-hour limit reached"));
                }
                Ok(())
            }
        };
        builder.handle("ask", handler).account(ACCOUNT)
    }
}

async fn account(pool: &Client) -> AccountRecord {
    let all = pool.accounts().await.expect("the store answers");
    all.into_iter().find(|record| record.name == ACCOUNT).expect("a queue uses it")
}

/// Runs a task that reaches the limit. Returns it, and until when the account is held.
async fn reach_the_limit(pool: &Client) -> (TaskId, Option<Timestamp>) {
    let id = pool.submit("ask", &()).await.expect("it is submitted");
    let held = async {
        loop {
            if let Some(hold) = account(pool).await.account.hold {
                return hold.until;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    (id, tokio::time::timeout(MAX_WAIT, held).await.expect("the account is held"))
}

/// Waits for a task. Returns when its last attempt started, and asserts that none has failed.
async fn completed(pool: &Client, id: TaskId) -> Timestamp {
    let task = tokio::time::timeout(MAX_WAIT, pool.wait(id)).await.expect("in time").expect("it is there");
    assert_eq!((task.state.name(), task.failures), (StateName::Completed, 0));
    pool.show(id).await.expect("it is shown").attempts.last().expect("it ran").started_at
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_limit_in_one_queue_holds_the_other_until_it_resets() {
    let folder = scratch();
    let provider = Provider::new(Duration::from_millis(1_500));
    let first = provider.serves(ostler::open(folder.path().join("jobs.db")).unwrap().queue("first"));
    let pool: Pool = provider.serves(first.and_queue("second")).start().await.unwrap();
    let second = pool.on("second");
    let (refused, until) = reach_the_limit(&pool).await;
    let until = until.expect("it resets");
    let mut ids = vec![refused];
    for _ in 0..3 {
        ids.push(pool.submit("ask", &()).await.unwrap());
        ids.push(second.submit("ask", &()).await.unwrap());
    }
    for id in ids {
        let started_at = completed(&pool, id).await;
        assert!(started_at >= until, "{id} started {:?} before the reset", until.since(started_at));
    }
    assert_eq!(pool.show(refused).await.unwrap().attempts.len(), 2, "the refused one is tried again");
    pool.drain(MAX_WAIT).await;
}

/// The URL of a store of its own on the shared server.
fn server() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}?schema=accounts_{number}", PrivatePostgres::shared().url())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_by_one_node_stops_another_and_a_release_lets_both_go_on() {
    let url = server();
    let provider = Provider::new(Duration::from_secs(3_600));
    let free = |(): (), _: Context| async { Ok(()) };
    let node = |queue: &str| {
        let here = provider.serves(ostler::open(&url).expect("the URL is right").queue(queue));
        here.and_queue("free").handle("other", free)
    };
    let one = node("first").start().await.expect("it starts");
    let (refused, _) = reach_the_limit(&one).await;
    let two = node("second").start().await.expect("it starts");
    let waiting = [one.submit("ask", &()).await.unwrap(), two.submit("ask", &()).await.unwrap()];
    // Other work of both nodes is done, so they had every opportunity.
    for _ in 0..10 {
        let id = two.on("free").submit("other", &()).await.unwrap();
        completed(&two, id).await;
    }
    assert_eq!(provider.asked.count(), 1, "the provider is not asked while the account is held");
    assert_eq!(account(&two).await.queues, ["first", "second"]);
    two.change_account(ACCOUNT, AccountChange::Release).await.expect("it is released");
    for id in waiting.into_iter().chain([refused]) {
        completed(&two, id).await;
    }
    for pool in [one, two] {
        pool.drain(MAX_WAIT).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_stops_another_node_in_the_middle_of_its_work_within_a_second() {
    const TASKS: usize = 300;
    const WORK: Duration = Duration::from_millis(50);
    const STOPPED_WITHIN: Duration = Duration::from_secs(1);
    let url = server();
    let refused = Arc::<Mutex<Option<TaskId>>>::default();
    let refuses = Arc::<AtomicBool>::default();
    let node = |queue: &str, asked: &Signal| {
        let (asked, refused, refuses) = (asked.clone(), Arc::clone(&refused), Arc::clone(&refuses));
        let handler = move |(): (), context: Context| {
            asked.emit();
            let is_refused = refuses.swap(false, Ordering::SeqCst);
            if is_refused {
                *refused.lock().expect("no test panicked") = Some(context.task());
            }
            async move {
                if is_refused {
                    return Err(TaskError::usage_limit(Duration::from_secs(3_600), "5-hour limit reached"));
                }
                tokio::time::sleep(WORK).await;
                Ok(())
            }
        };
        let here = ostler::open(&url).expect("the URL is right").queue(queue).workers(4);
        let free = |(): (), _: Context| async { Ok(()) };
        here.handle("ask", handler).account(ACCOUNT).and_queue("free").handle("other", free)
    };
    let asked = [Signal::new("the first node works"), Signal::new("the second node works")];
    let one = node("first", &asked[0]).start().await.expect("it starts");
    let two = node("second", &asked[1]).start().await.expect("it starts");
    let mut queues = Vec::new();
    for pool in [&one, &two] {
        let answers = pool.submit_many("ask", &[(); TASKS]).await.expect("they are submitted");
        queues.push(answers.into_iter().map(|id| id.expect("there is room")).collect::<Vec<_>>());
    }
    for asked in &asked {
        asked.wait_for(20).await;
    }
    refuses.store(true, Ordering::SeqCst);
    let held = async {
        while account(&one).await.account.hold.is_none() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, held).await.expect("the account is held");
    let id = refused.lock().expect("no test panicked").expect("one was refused");
    let attempt = one.show(id).await.expect("it is shown").attempts.remove(0);
    // The hold is stored in the transaction that ends the attempt.
    let held_at = attempt.end.expect("it has ended").finished_at;

    // Both nodes do other work, long enough for a start that comes too late.
    for pool in [&one, &two] {
        let other = async {
            loop {
                let id = pool.on("free").submit("other", &()).await.expect("it is submitted");
                if completed(pool, id).await > held_at.after(2 * STOPPED_WITHIN) {
                    return;
                }
            }
        };
        tokio::time::timeout(MAX_WAIT, other).await.expect("time passes");
    }
    for ids in queues {
        let mut starts = Vec::new();
        for id in ids {
            let task = one.show(id).await.expect("it is shown");
            starts.extend(task.attempts.iter().map(|attempt| attempt.started_at));
        }
        let last = starts.iter().max().expect("it has worked");
        assert!(starts.iter().any(|start| *start < held_at), "it worked before the hold");
        assert!(starts.len() < TASKS, "work was left");
        let late = last.since(held_at);
        println!("the last of {} starts came {late:?} after the hold", starts.len());
        assert!(late <= STOPPED_WITHIN, "a task started {late:?} after the hold");
    }
    for pool in [one, two] {
        pool.drain(MAX_WAIT).await;
    }
}
