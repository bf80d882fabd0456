//! Commands per second: one child for each task, through the node and its supervisor, compared with a loop that spawns and reaps
//! the same children and stores nothing.

use std::path::Path;
use std::process::{Command as Bare, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ostler_process::supervisor::{Supervisor, SupervisorProgram};
use ostler_process::{Command, CommandPolicy};
use ostler_runtime::PoolConfig;

use super::drained::drained;
use crate::child::Role;
use crate::load::{KIND, QUEUE};
use crate::report::{CommandRow, Report};
use crate::{Bench, Error, Place, disk};

const PROGRAM: &str = "true";
/// Concurrent children.
const AT_ONCE: usize = 8;

pub(super) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    if !bench.wants(&format!("{}: commands", place.name)) {
        return Ok(());
    }
    let fdatasync = disk::probe(place.path(), bench.scale.probe)?;
    let folder = place.path().join("commands");
    std::fs::create_dir(&folder)?;
    let tasks = bench.scale.commands;
    let node = bench.runtime.block_on(through_node(&folder.join("a.db"), tasks))?;
    let bare = bare(tasks)?;
    std::fs::remove_dir_all(&folder)?;
    report.commands.push(CommandRow { place: place.name, at_once: AT_ONCE, tasks, node, bare, fdatasync });
    Ok(())
}

/// Tasks per second through a node.
async fn through_node(path: &Path, tasks: usize) -> Result<f64, Error> {
    let program = SupervisorProgram::this(["child", Role::Supervisor.name(), "-"]);
    let supervisor = Supervisor::start(program, Vec::new()).await?;
    let executor = Command::new(supervisor.clone(), CommandPolicy::new([PROGRAM]))?;
    let pool = PoolConfig::durable(QUEUE, Arc::new(executor), AT_ONCE);
    let rate = drained(path, KIND, tasks, pool).await?;
    supervisor.stop().await;
    Ok(rate)
}

/// The same children, spawned and reaped by the same number of threads.
fn bare(tasks: usize) -> Result<f64, Error> {
    let left = AtomicUsize::new(tasks);
    let begun = Instant::now();
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let work = || {
        while take() {
            Bare::new(PROGRAM).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        }
        Ok::<(), std::io::Error>(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(tasks as f64 / begun.elapsed().as_secs_f64())
}
