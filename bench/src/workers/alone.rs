//! The executor alone, without a store, as with its peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ostler_core::{Outcome, TaskId, WorkerId};
use ostler_exec::{Control, Executor as _, Work, WorkerOpening, event_channel};
use ostler_process::{Process, ProcessPolicy};
use tokio::task::JoinSet;

use super::{Figures, KIND, executor};
use crate::Error;
use crate::stats::Samples;

/// Calls to each worker before the measurement.
const WARM: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(policy: ProcessPolicy, calls: u32, workers: u32) -> Result<Figures, Error> {
    let (process, supervisor) = executor(policy).await?;
    let process = Arc::new(process);
    let ids = ostler::ids()?;
    let staff: Vec<WorkerId> = (0..workers).map(|_| WorkerId(ids())).collect();
    for worker in &staff {
        match process.open(*worker).await {
            WorkerOpening::Ready => {}
            WorkerOpening::Failed(failure) => return Err(failure.message.into()),
            WorkerOpening::Short(why) => return Err(why.into()),
        }
    }
    let first = *staff.first().ok_or("no workers")?;
    spread(&process, &staff, WARM * workers, &ids).await?;
    let mut samples = Samples::default();
    for number in 0..calls {
        let began = Instant::now();
        call(&process, first, TaskId(ids()), number).await?;
        samples.add(began.elapsed());
    }
    let began = Instant::now();
    spread(&process, &staff, calls, &ids).await?;
    let per_second = f64::from(calls) / began.elapsed().as_secs_f64();
    for worker in staff {
        process.close(worker).await;
    }
    supervisor.stop().await;
    let p50_us = Some(samples.percentile(50).as_secs_f64() * 1e6);
    Ok(Figures { version: None, p50_us, per_second })
}

/// Each worker takes the next call when it is done with one.
async fn spread(
    process: &Arc<Process>,
    staff: &[WorkerId],
    calls: u32,
    ids: &ostler_runtime::Ids,
) -> Result<(), Error> {
    let left = Arc::new(AtomicU32::new(calls));
    let mut all = JoinSet::new();
    for worker in staff.iter().copied() {
        let (process, left, ids) = (Arc::clone(process), Arc::clone(&left), Arc::clone(ids));
        all.spawn(async move {
            let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            while let Ok(number) = take() {
                call(&process, worker, TaskId(ids()), number).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    Ok(())
}

async fn call(process: &Process, worker: WorkerId, task: TaskId, number: u32) -> Result<(), Error> {
    let work = Work {
        traceparent: None,
        task,
        token: 1,
        worker,
        attempt: 1,
        queue: "bench".into(),
        kind: KIND.into(),
        payload: format!("{{\"n\":{number}}}"),
        timeout: PATIENCE,
        grace: PATIENCE,
        folder: None,
    };
    let (said, _heard) = event_channel();
    let outcome = process.run(work, Control::new(said)).await.outcome;
    if outcome == Outcome::Success {
        Ok(())
    } else {
        Err(format!("a call did not succeed: {outcome:?}").into())
    }
}
