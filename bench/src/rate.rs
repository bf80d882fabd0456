//! Rate limits across nodes: two processes on one store, and how many tasks they start in a given time.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ostler::Rate;
use ostler_core::TaskId;
use ostler_sqlite::{Options, Sqlite};
use ostler_store::calls::{NewTask, QueueChange};
use ostler_store::{Store as _, SystemClock};

use crate::child::{Other, Role, say};
use crate::load::{KIND, PAYLOAD, QUEUE};
use crate::{Bench, Error, Place, Scale, machine};

const NODES: usize = 2;
/// Before the measurement, so that the burst is used up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Tasks per enqueue.
const BATCH: usize = 10_000;

/// The requested run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The measured time.
    pub(crate) seconds: u64,
    /// The rate, in tasks per second.
    pub(crate) per_second: u64,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { seconds: 30, per_second: 100 }
    }
}

/// Measures, and prints tasks, seconds and the deviation.
pub(crate) fn run(wanted: Wanted, dir: Option<PathBuf>) -> Result<(), Error> {
    let bench = Bench::new(Scale::FULL, None)?;
    let place = Place::new(&dir.unwrap_or_else(machine::default_dir))?;
    let path = place.path().join("rate.db");
    bench.runtime.block_on(fill(&path, wanted))?;
    let mut nodes =
        (0..NODES).map(|_| Other::start(Role::RatedNode, &path)).collect::<Result<Vec<_>, Error>>()?;
    pause(&bench, WARM_UP);
    let (before, began) = (counts(&mut nodes)?, Instant::now());
    pause(&bench, Duration::from_secs(wanted.seconds));
    let (after, took) = (counts(&mut nodes)?, began.elapsed());
    nodes.into_iter().try_for_each(Other::end)?;
    let each: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let tasks: u64 = each.iter().sum();
    let expected = wanted.per_second as f64 * took.as_secs_f64();
    let off = (tasks as f64 / expected - 1.0) * 100.0;
    println!(
        "{tasks} tasks in {:.2} s on {NODES} nodes ({}), at {} a second: {off:+.2} %",
        took.as_secs_f64(),
        each.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        wanted.per_second,
    );
    Ok(())
}

/// Enqueues more tasks than can start, in a queue with the rate.
async fn fill(path: &Path, wanted: Wanted) -> Result<(), Error> {
    let store = Sqlite::open(path, Arc::new(SystemClock), Options::default())?;
    let rate = Rate::even(wanted.per_second, Duration::from_secs(1));
    store.configure(QUEUE, vec![QueueChange::Rate(vec![rate])]).await?;
    let ids = ostler::ids()?;
    let mut left = usize::try_from(wanted.per_second * (wanted.seconds + 10))?;
    while left > 0 {
        let some = left.min(BATCH);
        let task = |_| NewTask::new(TaskId(ids()), QUEUE, KIND, PAYLOAD);
        store.enqueue((0..some).map(task).collect()).await?;
        left -= some;
    }
    Ok(())
}

fn pause(bench: &Bench, time: Duration) {
    bench.runtime.block_on(async { tokio::time::sleep(time).await });
}

/// The number of tasks that each node has started.
fn counts(nodes: &mut [Other]) -> Result<Vec<u64>, Error> {
    nodes.iter_mut().try_for_each(Other::tell)?;
    nodes.iter_mut().map(|node| Ok(node.hear()?.parse()?)).collect()
}

/// One of the nodes: answers each line with the number of tasks it has started.
pub(crate) fn serve(bench: &Bench, path: &Path) -> Result<(), Error> {
    let begun = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&begun);
    let handler = move |_: serde_json::Value, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }
    };
    let pool = bench.runtime.block_on(async {
        ostler::open(path)?.queue(QUEUE).handle(KIND, handler).workers(8).start().await
    })?;
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        say(&begun.load(Ordering::Relaxed).to_string())?;
    }
    bench.runtime.block_on(pool.stop_now());
    Ok(())
}
