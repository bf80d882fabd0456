//! A sequential thread pool: handlers that are not `Send`, one at a time on each thread, round robin, with a bound on what waits.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ostler::{Choice, Context, Runtimes, TaskError, ThreadPolicy};

const TASKS: u32 = 32;

thread_local! {
    /// How many handlers this thread runs now.
    static AT_ONCE: Cell<usize> = const { Cell::new(0) };
}

/// Holds something that cannot leave its thread, and yields in between. Returns the name of its thread.
async fn isolate(number: u32, ctx: Context) -> Result<String, TaskError> {
    let heap = Rc::new(Cell::new(number));
    AT_ONCE.set(AT_ONCE.get() + 1);
    assert_eq!(AT_ONCE.get(), 1, "no other handler of this thread runs in between");
    for _ in 0..10 {
        heap.set(heap.get() + 1);
        tokio::task::yield_now().await;
    }
    AT_ONCE.set(AT_ONCE.get() - 1);
    ctx.log(format!("{number} became {}", heap.get()));
    Ok(std::thread::current().name().unwrap_or_default().to_owned())
}

/// Runs the tasks. Returns the names of the threads that ran them.
pub(crate) async fn run(store: &Path) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let pool = ostler::open(store)?
        .handle_local("isolate", isolate)
        .threads(ThreadPolicy {
            threads: 4,
            most: 40,
            choice: Choice::RoundRobin,
            runtimes: Runtimes::TwoWorkers,
        })
        // Beside them, in the same queue.
        .handle("count", |words: Vec<String>, _ctx| async move { Ok(words.len()) })
        .start()
        .await?;
    let count = pool.submit("count", &["a", "b"]).await?;
    let mut threads = Vec::new();
    for answer in pool.submit_many("isolate", &(0..TASKS).collect::<Vec<_>>()).await? {
        threads.push(pool.wait_as::<String>(answer?).await?);
    }
    assert_eq!(pool.wait_as::<usize>(count).await?, 2);
    pool.drain(Duration::from_secs(30)).await;
    threads.sort();
    threads.dedup();
    Ok(threads)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "thread_pool.db".to_owned());
    println!("{:?}", run(Path::new(&path)).await?);
    Ok(())
}
