//! Latency of single operations on the PostgreSQL store: a durable enqueue, and the time from an enqueue to a claim that waited for it.

use std::time::{Duration, Instant};

use super::bare::Bare;
use super::{Parts, side};
use crate::child::{Other, Role, monotonic, say};
use crate::latency::wait_for_one;
use crate::report::{LatencyRow, Report};
use crate::stats::Samples;
use crate::{Bench, Error};

/// Between two samples, so that each finds an idle store: longer than the minimum interval of hints.
const PAUSE: Duration = Duration::from_millis(20);
/// The schema that both processes share.
const SCHEMA: &str = "latency";

pub(super) fn run(parts: &Parts<'_>, report: &mut Report) -> Result<(), Error> {
    type Measure = fn(&Parts<'_>) -> Result<Samples, Error>;
    let rows: [(&str, Measure); 3] = [
        ("one durable enqueue", enqueue),
        ("the same, ceiling", enqueue_bare),
        ("from enqueue to claimed, waiting, another process", pick_up_from_another),
    ];
    for (what, measure) in rows {
        if !parts.bench.wants(&format!("latency: {what}")) {
            continue;
        }
        let fdatasync = parts.fdatasync()?;
        let samples = measure(parts)?;
        report.latency.push(LatencyRow { place: parts.place, what, samples, fdatasync });
    }
    Ok(())
}

fn pause(bench: &Bench) {
    bench.runtime.block_on(async { tokio::time::sleep(PAUSE).await });
}

fn enqueue(parts: &Parts<'_>) -> Result<Samples, Error> {
    let (bench, mut samples) = (parts.bench, Samples::default());
    let ours = bench.runtime.block_on(side::open(&parts.server.url(), &parts.schema("ours")))?;
    bench.runtime.block_on(ours.enqueue_one())?;
    for _ in 0..bench.scale.samples {
        let begun = Instant::now();
        bench.runtime.block_on(ours.enqueue_one())?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    Ok(samples)
}

fn enqueue_bare(parts: &Parts<'_>) -> Result<Samples, Error> {
    let (bench, mut samples) = (parts.bench, Samples::default());
    let mut bare = bench.runtime.block_on(Bare::make(&parts.server.url(), &parts.schema("bare")))?;
    for _ in 0..bench.scale.samples {
        let begun = Instant::now();
        bench.runtime.block_on(bare.enqueue_one())?;
        samples.add(begun.elapsed());
        pause(bench);
    }
    Ok(samples)
}

fn pick_up_from_another(parts: &Parts<'_>) -> Result<Samples, Error> {
    let (bench, url) = (parts.bench, parts.server.url());
    let ours = bench.runtime.block_on(side::open(&url, SCHEMA))?;
    let _wakeups = ours.wakeups();
    let mut enqueuer = Other::start(Role::SharedEnqueuer, url.as_ref())?;
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

/// The other process: enqueues one task for each line it reads, and answers with the time before the enqueue.
pub(crate) fn serve_enqueuer(bench: &Bench, url: &str) -> Result<(), Error> {
    let ours = bench.runtime.block_on(side::open(url, SCHEMA))?;
    say("ready")?;
    for line in std::io::stdin().lines() {
        line?;
        let before = monotonic();
        bench.runtime.block_on(ours.enqueue_one())?;
        say(&before.as_nanos().to_string())?;
    }
    Ok(())
}
