//! Failover time: from the kill -9 of a node to the start of its task in another node's handler.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::child::{Other, Role, monotonic, say};
use crate::load::QUEUE;
use crate::report::{LatencyRow, Report};
use crate::stats::Samples;
use crate::{Bench, Error, Place, disk};

/// The victim runs this task forever; the next handler reports when it began.
const FATAL: &str = "fatal";
/// The task that keeps the rescuer busy until the victim has its own.
const HOLD: &str = "hold";
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(bench: &Bench, place: &Place, report: &mut Report) -> Result<(), Error> {
    let what = "from kill -9 of a node to its task's begin in another";
    if !bench.wants(&format!("latency: {what}")) {
        return Ok(());
    }
    let fdatasync = disk::probe(place.path(), bench.scale.probe)?;
    let folder = place.path().join("failover");
    std::fs::create_dir(&folder)?;
    let samples = bench.runtime.block_on(kills(bench, &folder.join("a.db")))?;
    std::fs::remove_dir_all(&folder)?;
    report.latency.push(LatencyRow { place: place.name, what, samples, fdatasync });
    Ok(())
}

async fn kills(bench: &Bench, path: &Path) -> Result<Samples, Error> {
    let (begun, mut begins) = mpsc::unbounded_channel();
    let (held, let_go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (is_held, released) = (Arc::clone(&held), Arc::clone(&let_go));
    let rescuer = ostler::open(path)?
        .queue(QUEUE)
        .handle(FATAL, move |(): (), _| {
            let _ = begun.send(monotonic());
            async { Ok(()) }
        })
        .handle(HOLD, move |(): (), _| {
            let released = Arc::clone(&released);
            is_held.notify_one();
            async move {
                released.notified().await;
                Ok(())
            }
        })
        .workers(1)
        .start()
        .await?;
    let mut samples = Samples::default();
    for _ in 0..bench.scale.kills {
        let hold = rescuer.submit(HOLD, &()).await?;
        held.notified().await;
        let mut victim = Other::start(Role::Victim, path)?;
        let fatal = rescuer.submit(FATAL, &()).await?;
        victim.hear()?;
        let_go.notify_one();
        rescuer.wait(hold).await?;
        let killed = monotonic();
        victim.kill()?;
        let begun =
            tokio::time::timeout(PATIENCE, begins.recv()).await.map_err(|_| "no node took it over")?;
        samples.add(begun.ok_or("the rescuer is gone")?.saturating_sub(killed));
        rescuer.wait(fatal).await?;
    }
    rescuer.drain(PATIENCE).await;
    Ok(samples)
}

/// The victim: reports when it runs its task, and never finishes it.
pub(crate) fn serve_victim(bench: &Bench, path: &Path) -> Result<(), Error> {
    bench.runtime.block_on(async {
        let handler = |(): (), _| async {
            let _ = say("running");
            std::future::pending::<()>().await;
            Ok(())
        };
        let _pool = ostler::open(path)?.queue(QUEUE).handle(FATAL, handler).workers(1).start().await?;
        say("ready")?;
        std::future::pending::<()>().await;
        Ok(())
    })
}
