//! Pick-up latency of an idle pool: from just before the enqueue of a task to the start of its handler.

use std::path::Path;
use std::time::Duration;

use ostler::Pool;
use tokio::sync::mpsc;

use crate::child::{Other, Role, monotonic};
use crate::load::{KIND, QUEUE};
use crate::report::{LatencyRow, Report};
use crate::stats::Samples;
use crate::{Bench, Error, Place, disk};

/// Between two samples, so that each finds an idle pool.
const PAUSE: Duration = Duration::from_millis(2);
/// How long one task may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

type Begun = mpsc::UnboundedReceiver<Duration>;

pub(super) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    type Measure = fn(&Bench, &Path) -> Result<Samples, Error>;
    let rows: [(&str, Measure); 2] = [
        ("from submit to the handler's begin, same process", same_process),
        ("from enqueue to the handler's begin, another process", another_process),
    ];
    for (what, measure) in rows {
        if !bench.wants(&format!("latency: {what}")) {
            continue;
        }
        let fdatasync = disk::probe(place.path(), bench.scale.probe)?;
        let folder = place.path().join("pick-up");
        std::fs::create_dir(&folder)?;
        let samples = measure(bench, &folder.join("a.db"))?;
        std::fs::remove_dir_all(&folder)?;
        report.latency.push(LatencyRow { place: place.name, what, samples, fdatasync });
    }
    Ok(())
}

/// A pool whose handler reports when it begins.
async fn pool(path: &Path) -> Result<(Pool, Begun), Error> {
    let (begun, begins) = mpsc::unbounded_channel();
    let handler = move |_: serde_json::Value, _| {
        let _ = begun.send(monotonic());
        async { Ok(()) }
    };
    let pool = ostler::open(path)?.queue(QUEUE).handle(KIND, handler).workers(8).start().await?;
    Ok((pool, begins))
}

async fn next(begins: &mut Begun) -> Result<Duration, Error> {
    let begun = tokio::time::timeout(PATIENCE, begins.recv()).await.map_err(|_| "no task began")?;
    begun.ok_or_else(|| "the pool is gone".into())
}

fn same_process(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    bench.runtime.block_on(async {
        let (pool, mut begins) = pool(path).await?;
        let mut samples = Samples::default();
        for _ in 0..bench.scale.samples {
            let before = monotonic();
            pool.submit(KIND, &()).await?;
            samples.add(next(&mut begins).await?.saturating_sub(before));
            tokio::time::sleep(PAUSE).await;
        }
        pool.drain(PATIENCE).await;
        Ok(samples)
    })
}

fn another_process(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let (pool, mut begins) = bench.runtime.block_on(pool(path))?;
    let mut enqueuer = Other::start(Role::Enqueuer, path)?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.samples {
        enqueuer.tell()?;
        let before = Duration::from_nanos(enqueuer.hear()?.parse()?);
        let begun = bench.runtime.block_on(next(&mut begins))?;
        samples.add(begun.saturating_sub(before));
        bench.runtime.block_on(async { tokio::time::sleep(PAUSE).await });
    }
    enqueuer.end()?;
    bench.runtime.block_on(pool.drain(PATIENCE));
    Ok(samples)
}
