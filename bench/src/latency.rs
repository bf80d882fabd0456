//! Latency of single operations: a durable enqueue, the time from an enqueue to a claim that waited for it, and a commit
//! beside a process that writes all the time.

use std::path::Path;
use std::time::{Duration, Instant};

use ostler_sqlite::Durability;
use ostler_store::Lease;

use crate::ceiling::{Bare, Synchronous};
use crate::child::{MAX_BUSY, Other, Role, monotonic};
use crate::load::Keys;
use crate::ours::Ours;
use crate::report::{LatencyRow, Report};
use crate::stats::Samples;
use crate::{Bench, Error, Place, disk};

/// Between two samples, so that each finds an idle store.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    type Measure = fn(&Bench, &Path) -> Result<Samples, Error>;
    let rows: [(&str, Measure); 6] = [
        ("one durable enqueue", enqueue),
        ("the same, ceiling", enqueue_bare),
        ("from enqueue to claimed, waiting, same process", pick_up),
        ("from enqueue to claimed, waiting, another process", pick_up_from_another),
        ("one enqueue beside a hot writer process", beside),
        ("the same, ceiling (busy_timeout)", beside_bare),
    ];
    for (what, measure) in rows {
        if !bench.wants(&format!("latency: {what}")) {
            continue;
        }
        let fdatasync = disk::probe(place.path(), bench.scale.probe)?;
        let folder = place.path().join("latency");
        std::fs::create_dir(&folder)?;
        let samples = measure(bench, &folder.join("a.db"))?;
        std::fs::remove_dir_all(&folder)?;
        report.latency.push(LatencyRow { place: place.name, what, samples, fdatasync });
    }
    Ok(())
}

fn pause(bench: &Bench) {
    bench.runtime.block_on(async { tokio::time::sleep(PAUSE).await });
}

fn enqueue(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let ours = bench.runtime.block_on(Ours::open(path, Durability::Full, Keys::Without))?;
    bench.runtime.block_on(ours.warm_up(bench.scale.warm_up))?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.samples {
        let begun = Instant::now();
        bench.runtime.block_on(ours.enqueue_one())?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    Ok(samples)
}

fn enqueue_bare(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let mut bare = Bare::open(path, Synchronous::Full)?;
    bare.warm_up(bench.scale.warm_up)?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.samples {
        let begun = Instant::now();
        bare.enqueue(1)?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    Ok(samples)
}

/// Arms, claims nothing, lets `go` trigger an enqueue, waits, and claims; returns the time of the claim.
pub(crate) async fn wait_for_one(
    ours: &Ours,
    go: impl FnOnce() -> Result<(), Error>,
) -> Result<Duration, Error> {
    let mut wakeups = ours.wakeups();
    wakeups.arm();
    let mut held = ours.claim(1).await?;
    if !held.is_empty() {
        return Err("there was a task before one was enqueued".into());
    }
    go()?;
    while held.is_empty() {
        wakeups.wait().await;
        wakeups.arm();
        held = ours.claim(1).await?;
    }
    let claimed = monotonic();
    finish_one(ours, held).await?;
    Ok(claimed)
}

async fn finish_one(ours: &Ours, held: Vec<Lease>) -> Result<(), Error> {
    match ours.finish(held).await? {
        1 => Ok(()),
        other => Err(format!("{other} tasks were claimed, not one").into()),
    }
}

fn pick_up(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let ours = bench.runtime.block_on(Ours::open(path, Durability::Full, Keys::Without))?;
    bench.runtime.block_on(ours.warm_up(bench.scale.warm_up))?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.samples {
        let (go, gone) = tokio::sync::oneshot::channel();
        let enqueuer = {
            let ours = std::sync::Arc::clone(&ours);
            bench.runtime.spawn(async move {
                let _ = gone.await;
                tokio::time::sleep(PAUSE).await;
                let before = monotonic();
                ours.enqueue_one().await?;
                Ok::<_, Error>(before)
            })
        };
        let go = || go.send(()).map_err(|()| "the enqueuer is gone".into());
        let claimed = bench.runtime.block_on(wait_for_one(&ours, go))?;
        samples.add(claimed.saturating_sub(bench.runtime.block_on(enqueuer)??));
    }
    Ok(samples)
}

fn pick_up_from_another(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let ours = bench.runtime.block_on(Ours::open(path, Durability::Full, Keys::Without))?;
    bench.runtime.block_on(ours.warm_up(bench.scale.warm_up))?;
    // Listen before the other process starts, so that it finds the socket.
    let _wakeups = ours.wakeups();
    let mut enqueuer = Other::start(Role::Enqueuer, path)?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.samples {
        let claimed = bench.runtime.block_on(wait_for_one(&ours, || enqueuer.tell()))?;
        let before = Duration::from_nanos(enqueuer.hear()?.parse()?);
        samples.add(claimed.saturating_sub(before));
        pause(bench);
    }
    enqueuer.end()?;
    Ok(samples)
}

fn beside(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let ours = bench.runtime.block_on(Ours::open(path, Durability::Full, Keys::Without))?;
    let hot = Other::start(Role::HotStore, path)?;
    let mut samples = Samples::default();
    let until = Instant::now() + bench.scale.beside;
    while Instant::now() < until {
        let begun = Instant::now();
        bench.runtime.block_on(ours.enqueue_one())?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    hot.end()?;
    Ok(samples)
}

fn beside_bare(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let mut bare = Bare::open(path, Synchronous::Full)?;
    bare.wait_for_others(MAX_BUSY)?;
    let hot = Other::start(Role::HotCeiling, path)?;
    let mut samples = Samples::default();
    let until = Instant::now() + bench.scale.beside;
    while Instant::now() < until {
        let begun = Instant::now();
        bare.enqueue_elsewhere()?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    hot.end()?;
    Ok(samples)
}
