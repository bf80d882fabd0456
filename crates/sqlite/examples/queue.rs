//! A durable queue in one file: enqueue, claim, run, finish.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::{Id, Minter, Outcome, SessionId, TaskId, WorkerId};
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{Claim, ClaimAnswer, Kinds, NewSession, NewTask, Ran, Report};
use ostler_store::{Clock as _, Store as _, SystemClock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "queue.db".to_owned());
    let store = Sqlite::open(path, Arc::new(SystemClock), Options::default())?;

    // What this returns is on disk. The unique key makes a repeat answer with the task that exists.
    let hello = NewTask::new(TaskId(new_id()), "mail", "send", r#"{"to":"ada@example.org"}"#);
    let answers = store.enqueue(vec![NewTask { unique_key: Some("order-1".into()), ..hello }]).await?;
    println!("enqueued: {answers:?}");

    // A node joins with a session of its own, and claims. A lease holds while the session does.
    let (session, worker, ttl) = (SessionId(new_id()), WorkerId(new_id()), Duration::from_secs(60));
    let (pid, version, settings) = (std::process::id(), "0.1".into(), String::new());
    store.join(NewSession { id: session, name: "example".into(), pid, version, ttl, settings }).await?;
    let claim = Claim { session, queue: "mail".into(), kinds: Kinds::Any, limit: 10 };
    if let ClaimAnswer::Tasks(tasks) = store.claim(claim).await? {
        for task in tasks {
            let began = Instant::now();
            println!("attempt {} of {}: {}", task.attempt, task.lease.task(), task.payload);

            // The end takes the lease away, and answers where the task stands now, or that the lease was lost.
            let ran = Some(Ran { worker, took: began.elapsed() });
            let output = Some(r#"{"sent":true}"#.to_owned());
            let report = Report { lease: task.lease, ran, outcome: Outcome::Success, output };
            println!("finished: {:?}", store.finish(vec![report]).await?);
        }
    }
    store.leave(session).await?;
    Ok(())
}

/// The rules take time and chance as arguments; a program brings both.
fn new_id() -> Id {
    let chance = || u128::from(RandomState::new().hash_one(0));
    Minter::new().mint(SystemClock.now(), chance() << 64 | chance())
}
