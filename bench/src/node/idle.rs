//! CPU and memory of an idle node.

use std::path::Path;
use std::time::Duration;

use crate::child::{Other, Role, say};
use crate::report::{IdleRow, Report};
use crate::{Bench, Error, Place, machine};

/// The node settles first, after joining and its first queries.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    if !bench.wants("an idle node") {
        return Ok(());
    }
    let folder = place.path().join("idle");
    std::fs::create_dir(&folder)?;
    let node = Other::start(Role::IdleNode, &folder.join("a.db"))?;
    let watch = |about| bench.runtime.block_on(async move { tokio::time::sleep(about).await });
    watch(SETTLE.min(bench.scale.idle));
    let before = cpu(node.pid())?;
    watch(bench.scale.idle);
    let (cpu, resident_kib) = (cpu(node.pid())? - before, machine::resident_kib(node.pid())?);
    node.end()?;
    std::fs::remove_dir_all(&folder)?;
    report.idle = Some(IdleRow { resident_kib, cpu, watched: bench.scale.idle });
    Ok(())
}

/// A node with a pool, idle until its standard input is closed.
pub(crate) fn serve_idle(bench: &Bench, path: &Path) -> Result<(), Error> {
    bench.runtime.block_on(async {
        let handler = |(): (), _| async { Ok(()) };
        let pool = ostler::open(path)?.handle("noop", handler).start().await?;
        say("ready")?;
        let closed =
            tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        let _ = closed.await;
        pool.stop_now().await;
        Ok(())
    })
}

/// The CPU time of a process.
fn cpu(pid: u32) -> Result<Duration, Error> {
    /// Ticks per second, the same on every Linux machine.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Ok(Duration::from_millis((ticks(11) + ticks(12)) * 1_000 / TICKS))
}
