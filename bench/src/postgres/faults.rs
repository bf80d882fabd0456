//! Throughput of a store after repeated server crashes under load: the same open store, as a node would have it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::bare::{Bare, CONNECTIONS, connect};
use super::{BATCH, Parts, Sides, Way};
use crate::Error;
use crate::ours::Ours;
use crate::report::{BacklogRound, BacklogRow, Report};

/// The number of crashes.
const CRASHES: usize = 5;
/// The time between two crashes.
const BETWEEN: Duration = Duration::from_secs(1);
/// How long the server may take to restart.
const MAX_BACK: Duration = Duration::from_secs(60);
/// The polling interval.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(super) fn run(parts: &Parts<'_>, report: &mut Report) -> Result<(), Error> {
    let title = format!("after {CRASHES} crashes of the server under load");
    if !parts.bench.wants(&title) {
        return Ok(());
    }
    let round = |_| {
        let mut sides = parts.fresh()?;
        let fdatasync = parts.fdatasync()?;
        let (ours_empty, ceiling_empty) = parts.slices(&mut sides, Way::Cycle, BATCH)?;
        let Sides { ours, bare } = sides;
        drop(bare);
        parts.bench.runtime.block_on(crash_under_load(&parts.server.url(), &ours))?;
        // The ceiling does not reconnect by itself.
        let bare = parts.bench.runtime.block_on(async {
            let mut bare = Bare::make(&parts.server.url(), &parts.schema("bare")).await?;
            bare.fill(crate::ceiling::Rows::Finished, parts.bench.scale.warm_up).await?;
            Ok::<_, Error>(bare)
        })?;
        let (ours, ceiling) = parts.slices(&mut Sides { ours, bare }, Way::Cycle, BATCH)?;
        Ok(BacklogRound::of(fdatasync, (ours_empty, ceiling_empty), (ours, ceiling)))
    };
    let rounds = (0..parts.bench.scale.rounds).map(round).collect::<Result<_, Error>>()?;
    let what = format!("enqueue to done, batch {BATCH}");
    report.backlog.push(BacklogRow {
        place: parts.place,
        backlog: title,
        outside_index: false,
        what,
        rounds,
    });
    Ok(())
}

/// Runs the store while the server crashes; failed calls are expected.
async fn crash_under_load(url: &str, ours: &Arc<Ours>) -> Result<(), Error> {
    // Shortens the server's recovery, which is not measured and takes long after this many rows.
    connect(url).await?.batch_execute("checkpoint").await?;
    let (ends, ended) = watch::channel(false);
    let work = (0..CONNECTIONS).map(|_| {
        let (ours, ended) = (Arc::clone(ours), ended.clone());
        tokio::spawn(async move {
            while !*ended.borrow() {
                // Failures are expected here.
                let _ = ours.cycle(BATCH).await;
            }
        })
    });
    let work: Vec<_> = work.collect();
    for _ in 0..CRASHES {
        tokio::time::sleep(BETWEEN).await;
        crash(url).await?;
    }
    ends.send(true)?;
    for worker in work {
        worker.await?;
    }
    Ok(())
}

/// Kills a process of the server, which restarts all of it, and waits until it has.
pub(crate) async fn crash(url: &str) -> Result<(), Error> {
    let (victim, witness) = (connect(url).await?, connect(url).await?);
    let pid: i32 = victim.query_one("select pg_backend_pid()", &[]).await?.try_get(0)?;
    kill_process(Pid::from_raw(pid).ok_or("the server names no process")?, Signal::KILL)?;
    let begun = Instant::now();
    // The server ends its other processes first: an earlier connection would be ended too.
    while !witness.is_closed() {
        if begun.elapsed() > MAX_BACK {
            return Err("the server goes on without one of its processes".into());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    back(url).await.map(drop)
}

/// Connects as soon as the server accepts connections again.
async fn back(url: &str) -> Result<Client, Error> {
    let begun = Instant::now();
    loop {
        match connect(url).await {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > MAX_BACK => return Err(error),
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}
