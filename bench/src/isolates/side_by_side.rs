//! Hosts of functions and a worker process with a no-op, in turns: both are open at once, so that a busy machine slows both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_core::Seed;
use ostler_exec::Executor;
use ostler_isolate::Isolation;
use ostler_process::Process;

use super::through::{OneWorker, executor, policy};
use super::{FRESH, NOOP, WARM, engines, programs};
use crate::stats::median;
use crate::turns::{blocks, interval, percent};
use crate::workers::{js_worker, supervisor};
use crate::{Error, machine};

/// The length of a turn.
const SLICE: Duration = Duration::from_millis(60);
/// Turns of each side, at least: a block is two.
const MIN_TURNS: usize = 4;
/// Measured times of a row of other tables that a row of this one takes.
const TIMES: usize = 4;

/// Measures every engine and mode, and prints a table.
pub(super) async fn run(time: Duration) -> Result<(), Error> {
    let supervisor = supervisor().await?;
    let turns = (time.as_millis() / SLICE.as_millis()) as usize * TIMES;
    let turns = turns.max(MIN_TURNS);
    println!(
        "\n{turns} turns of {} ms of a host and of a worker process (JavaScript SDK), both with `{NOOP}`; load {}\n",
        SLICE.as_millis(),
        machine::load()
    );
    println!("| host | host, calls/s | worker process, calls/s | the host is faster by | 95 % interval |");
    println!("|---|---:|---:|---:|---:|");
    let scripts = programs().join("functions");
    for engine in engines() {
        for mode in [FRESH, WARM] {
            let hosts = executor(&policy(&scripts, engine, Isolation::Process, mode), &supervisor)?;
            let workers: Arc<dyn Executor> = Arc::new(Process::new(supervisor.clone(), js_worker())?);
            let mut sides = [OneWorker::open(&workers).await?, OneWorker::open(&hosts).await?];
            let mut rates: [Vec<f64>; 2] = Default::default();
            for side in &mut sides {
                slice(side).await?;
            }
            for turn in 0..turns {
                for which in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                    rates[which].push(slice(&mut sides[which]).await?);
                }
            }
            let blocks = blocks(&rates[0], &rates[1]);
            let (low, high) = interval(&blocks, &mut Seed::new(1));
            let [worker, host] = rates.map(median);
            println!(
                "| {}, {mode} | {host:.0} | {worker:.0} | {} | {} to {} |",
                engine.name(),
                percent(median(blocks)),
                percent(low),
                percent(high)
            );
            for side in sides {
                side.close().await;
            }
        }
    }
    supervisor.stop().await;
    Ok(())
}

/// Calls a second in one turn.
async fn slice(side: &mut OneWorker) -> Result<f64, Error> {
    let (began, mut calls) = (Instant::now(), 0_u32);
    while began.elapsed() < SLICE {
        side.call(NOOP).await?;
        calls += 1;
    }
    Ok(f64::from(calls) / began.elapsed().as_secs_f64())
}
